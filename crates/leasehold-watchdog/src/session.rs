//! The session of a connection: messages in, steps out, without I/O.
//!
//! ```text
//!   New -- Hello(Observer) --> Observer -- LeaseQuery, Status
//!    '---- Hello(Client) ----> Client ---- Changes, Heartbeat, Process, LeaseQuery, Status
//!                                 '------- Disconnect --> end
//! ```
//!
//! Any other message ends the connection.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use leasehold::__private::frame::FRAME_MAX;
use leasehold::__private::wire::{Changes, ClientInfo, Hello, Refusal, Role, ToClient, ToNode};
use leasehold::clock::{BootClock, Clock as _};
use leasehold_core::{ClientId, Instant};
use tokio::sync::Notify;

use crate::access::is_allowed;
use crate::client::{ClientParts, Origin, Program, WatchedClient};
use crate::process::{Owner, Process, has_ended};
use crate::shared::Shared;
use crate::status::Pages;

/// The peer of a connection.
#[derive(Debug)]
pub(crate) enum Peer {
    /// A process of this machine.
    Local(Arc<Process>, Owner),
    /// A program on another machine.
    Remote(std::net::SocketAddr),
}

/// The node's side of a session.
#[derive(Debug)]
pub(crate) struct Session {
    shared: Arc<Shared>,
    peer: Peer,
    phase: SessionPhase,
}

#[derive(Debug)]
enum SessionPhase {
    New,
    Observer,
    Client(ConnectedClient),
}

#[derive(Debug)]
struct ConnectedClient {
    client: Arc<WatchedClient>,
    /// Notified when another connection replaces this one.
    replaced: Arc<Notify>,
    /// The number of the last batch of changes.
    batch: Option<u64>,
}

/// The reaction to a message.
#[derive(Debug)]
pub(crate) enum Step {
    /// Sends nothing.
    NoReply,
    /// Sends a reply.
    Reply(ToClient),
    /// Sends these pages, each after the one before was sent.
    ReplyPages(Pages),
    /// Sends a refusal and ends the connection.
    Refuse(Refusal),
    /// Ends the connection.
    End,
}

impl Session {
    pub(crate) fn new(shared: &Arc<Shared>, peer: Peer) -> Self {
        Self {
            shared: Arc::clone(shared),
            peer,
            phase: SessionPhase::New,
        }
    }

    /// Handles a message. `descriptor` returns the next descriptor that was received with it.
    pub(crate) fn handle_message(
        &mut self,
        message: ToNode,
        descriptor: impl FnOnce() -> Option<OwnedFd>,
        now: Instant,
    ) -> Step {
        match (&mut self.phase, message) {
            (SessionPhase::New, ToNode::Hello(hello)) => match self.hello(hello, now) {
                Ok(welcome) => Step::Reply(welcome),
                Err(refusal) => Step::Refuse(refusal),
            },
            (SessionPhase::New, _) => Step::Refuse(Refusal::Message),
            (_, ToNode::Status) => Step::ReplyPages(Pages::new(&self.shared)),
            (_, ToNode::LeaseQuery { client, number }) => {
                Step::Reply(self.lease_status(client, number))
            }
            (SessionPhase::Observer, _) => Step::Refuse(Refusal::Message),
            (SessionPhase::Client(connected), message) => {
                // Another connection has replaced this one.
                if !connected.client.lock().is_active(&connected.replaced) {
                    return Step::Refuse(Refusal::Foreign);
                }
                let client = Arc::clone(&connected.client);
                let last_batch = &mut connected.batch;
                match message {
                    ToNode::Changes(changes) if last_batch.is_none_or(|it| changes.batch > it) => {
                        *last_batch = Some(changes.batch);
                        Step::Reply(self.changes(&client, &changes, now))
                    }
                    ToNode::Heartbeat => {
                        client.lock().message_received(now);
                        if client.due_time.get().is_none() {
                            self.shared.schedule.insert(&client, now);
                        }
                        Step::NoReply
                    }
                    ToNode::Process => match self.add_process(&client, descriptor()) {
                        Ok(()) => Step::Reply(ToClient::Joined),
                        Err(refusal) => {
                            // It may be the last living process. Without it, the client would be taken for dead too
                            // early.
                            self.shared.clients.forget(&client);
                            Step::Refuse(refusal)
                        }
                    },
                    ToNode::Disconnect => {
                        client.log_end();
                        self.shared.clients.forget(&client);
                        Step::End
                    }
                    _ => Step::Refuse(Refusal::Message),
                }
            }
        }
    }

    fn connected(&self) -> Option<&ConnectedClient> {
        match &self.phase {
            SessionPhase::Client(connected) => Some(connected),
            SessionPhase::New | SessionPhase::Observer => None,
        }
    }

    /// Notified when another connection replaces this one. `None`: there is no client.
    pub(crate) fn replaced(&self) -> Option<Arc<Notify>> {
        self.connected().map(|it| Arc::clone(&it.replaced))
    }

    /// Whether the peer has sent its hello.
    pub(crate) fn has_hello(&self) -> bool {
        !matches!(self.phase, SessionPhase::New)
    }

    /// The id of the client.
    pub(crate) fn client(&self) -> Option<ClientId> {
        self.connected().map(|it| it.client.id)
    }

    /// The stores that the node serves, for a client of another one. Not more than fit into a frame.
    pub(crate) fn stores(&self) -> Vec<String> {
        let stores = self.shared.stores.iter().map(|store| store.public_name());
        let mut room = FRAME_MAX / 2;
        stores
            .take_while(|name| {
                room = room.saturating_sub(name.len() + 2);
                room > 0
            })
            .collect()
    }

    /// The peer, for the log.
    pub(crate) fn peer(&self) -> String {
        match &self.peer {
            Peer::Local(process, _) => format!("process {}", process.pid()),
            Peer::Remote(address) => address.to_string(),
        }
    }

    fn hello(&mut self, hello: Hello, now: Instant) -> Result<ToClient, Refusal> {
        let token = match &self.peer {
            Peer::Local(..) => None,
            Peer::Remote(_) => Some(self.token(&hello)?),
        };
        self.phase = match hello.role {
            Role::Observer => SessionPhase::Observer,
            Role::Client(secret, info) => {
                SessionPhase::Client(self.connect(secret.client_id(), info, token, now)?)
            }
        };
        let max_pause = self.shared.clients.max_pause.as_millis();
        Ok(ToClient::Welcome {
            node: self.shared.name.clone(),
            max_pause_ms: u64::try_from(max_pause).unwrap_or(u64::MAX),
        })
    }

    /// The index of the token in a hello. All tokens are compared, so that the time reveals nothing.
    fn token(&self, hello: &Hello) -> Result<usize, Refusal> {
        let secret = hello.token.as_ref().ok_or(Refusal::Token)?;
        let mut found = None;
        for (index, token) in self.shared.clients.tokens().enumerate() {
            if token.secret == *secret {
                found = Some(index);
            }
        }
        found.ok_or(Refusal::Token)
    }

    /// Whether the peer may register locks of a namespace.
    fn may_register(&self, namespace: &str, token: Option<usize>) -> bool {
        match &self.peer {
            Peer::Local(process, owner) => {
                let groups = || process.groups(*owner);
                is_allowed(&self.shared.allow, namespace, owner.uid, groups)
            }
            Peer::Remote(_) => {
                let mut tokens = self.shared.clients.tokens();
                let token = token.and_then(|token| tokens.nth(token));
                token.is_some_and(|token| token.namespaces.contains(namespace))
            }
        }
    }

    fn connect(
        &self,
        id: ClientId,
        mut info: ClientInfo,
        token: Option<usize>,
        now: Instant,
    ) -> Result<ConnectedClient, Refusal> {
        if !self.may_register(&info.namespace, token) {
            return Err(Refusal::Namespace);
        }
        let store = self.shared.store(&info.store);
        let store = Arc::clone(store.ok_or(Refusal::Store)?);
        let process_nonce = info.process_nonce;
        let mut program = Program {
            process_nonce,
            address_hash: None,
            since: now,
        };
        let origin = match &self.peer {
            Peer::Local(process, _) => {
                program.address_hash = process.address_hash();
                if process.pid() != 0 {
                    // The client may have another id for itself, in its own pid namespace.
                    info.pid = process.pid();
                }
                Origin::Local(process.identity())
            }
            Peer::Remote(_) => Origin::Remote {
                token: token.ok_or(Refusal::Token)?,
                process_nonce,
            },
        };
        let (client, replaced) = self.shared.clients.connect(ClientParts {
            id,
            info,
            origin,
            program,
            store,
        })?;
        if let Peer::Local(process, _) = &self.peer {
            if let Ok(true) = client.add_process(process) {
                self.shared.watch_process(&client, process);
            }
            self.shared.handle_exec(&client, now);
        }
        self.shared.schedule.insert(&client, now);
        Ok(ConnectedClient {
            client,
            replaced,
            batch: None,
        })
    }

    fn changes(&self, client: &Arc<WatchedClient>, changes: &Changes, now: Instant) -> ToClient {
        let max = self.shared.clients.limits.leases_per_client;
        let refused = client.apply_changes(changes, max, now);
        self.shared.schedule.insert(client, now);
        ToClient::Acknowledged {
            batch: changes.batch,
            refused,
        }
    }

    /// Adds a further process of a client. It may belong to any user, as a command may run under sudo: all it does is
    /// keep the client from being taken for dead.
    fn add_process(
        &self,
        client: &Arc<WatchedClient>,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), Refusal> {
        let Peer::Local(..) = &self.peer else {
            return Err(Refusal::Process);
        };
        let descriptor = descriptor.ok_or(Refusal::Process)?;
        if has_ended(&descriptor).map_err(|_| Refusal::Process)? {
            return Ok(());
        }
        let permits = &self.shared.permits;
        let file = permits.file();
        let has_room = file.is_some() && permits.has_room();
        let process = Process::new(descriptor, file);
        let process = Arc::new(process.map_err(|_| Refusal::Process)?);
        if !has_room && !client.lock().processes.has(process.identity()) {
            return Err(Refusal::Processes);
        }
        if client.add_process(&process)? {
            self.shared.watch_process(client, &process);
        }
        Ok(())
    }

    /// Until when the node has renewed a lease. Local peers only, as the instant is on the clock of this machine.
    fn lease_status(&self, client: [u8; 16], number: u64) -> ToClient {
        let is_local = matches!(self.peer, Peer::Local(..));
        let client = self.shared.clients.find(ClientId::from_random(client));
        let renewed_until = client
            .filter(|_| is_local)
            .and_then(|client| client.lock().monitor.kept_until(number));
        ToClient::LeaseStatus(renewed_until.map(Instant::as_nanos))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(ConnectedClient {
            client, replaced, ..
        }) = self.connected()
        {
            client.disconnected(replaced);
            let now = BootClock.now();
            self.shared.handle_exec(client, now);
            self.shared.reschedule(client, now);
        }
    }
}
