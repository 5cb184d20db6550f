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

use leasehold::__private::wire::{Changes, Hello, Introduction, Refusal, Role, ToClient, ToNode};
use leasehold_core::{ClientId, Instant};
use tokio::sync::Notify;

use crate::access::is_allowed;
use crate::client::{Client, Origin, Program};
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
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    New,
    Observer,
    Client {
        client: Arc<Client>,
        /// Notified when another connection replaces this one.
        speaker: Arc<Notify>,
        /// The number of the last batch of changes.
        batch: Option<u64>,
    },
}

/// The reaction to a message.
#[derive(Debug)]
pub(crate) enum Step {
    /// Sends nothing.
    Silence,
    /// Sends a reply.
    Say(ToClient),
    /// Sends these pages, each after the one before was sent.
    Show(Pages),
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
            stage: Stage::New,
        }
    }

    /// Handles a message. `descriptor` returns the next descriptor that was received with it.
    pub(crate) fn hear(
        &mut self,
        word: ToNode,
        descriptor: impl FnOnce() -> Option<OwnedFd>,
        now: Instant,
    ) -> Step {
        match (&mut self.stage, word) {
            (Stage::New, ToNode::Hello(hello)) => match self.hello(hello, now) {
                Ok(said) => Step::Say(said),
                Err(refusal) => Step::Refuse(refusal),
            },
            (Stage::New, _) => Step::Refuse(Refusal::Word),
            (_, ToNode::Status) => Step::Show(Pages::new(&self.shared)),
            (_, ToNode::LeaseQuery { client, number }) => Step::Say(self.kept(client, number)),
            (
                Stage::Client {
                    client,
                    speaker,
                    batch,
                },
                word,
            ) => {
                // Another connection has replaced this one.
                if !client.lock().speaks(speaker) {
                    return Step::Refuse(Refusal::Foreign);
                }
                let client = Arc::clone(client);
                match word {
                    ToNode::Changes(changes) if batch.is_none_or(|last| changes.batch > last) => {
                        *batch = Some(changes.batch);
                        Step::Say(self.changes(&client, &changes, now))
                    }
                    ToNode::Heartbeat => {
                        client.beat(now);
                        if !client.is_scheduled() {
                            self.shared.scheduler.look_at(&client, now);
                        }
                        Step::Silence
                    }
                    ToNode::Process => match self.join(&client, descriptor()) {
                        Ok(()) => Step::Say(ToClient::Joined),
                        Err(refusal) => {
                            // It may be the last living process. Without it, the client would be taken for dead too
                            // early.
                            self.shared.clients.forget(&client);
                            Step::Refuse(refusal)
                        }
                    },
                    ToNode::Disconnect => {
                        self.shared.clients.forget(&client);
                        Step::End
                    }
                    _ => Step::Refuse(Refusal::Word),
                }
            }
            (Stage::Observer, _) => Step::Refuse(Refusal::Word),
        }
    }

    /// Notified when another connection replaces this one. `None`: there is no client.
    pub(crate) fn replaced(&self) -> Option<Arc<Notify>> {
        match &self.stage {
            Stage::Client { speaker, .. } => Some(Arc::clone(speaker)),
            Stage::New | Stage::Observer => None,
        }
    }

    /// Whether the peer has sent its hello.
    pub(crate) fn is_introduced(&self) -> bool {
        !matches!(self.stage, Stage::New)
    }

    /// The id of the client, for the log.
    pub(crate) fn client(&self) -> Option<ClientId> {
        match &self.stage {
            Stage::Client { client, .. } => Some(client.id),
            Stage::New | Stage::Observer => None,
        }
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
        self.stage = match hello.role {
            Role::Observer => Stage::Observer,
            Role::Client(secret, introduction) => {
                self.enter(secret.client_id(), introduction, token, now)?
            }
        };
        let max_pause = self.shared.clients.max_pause().as_millis();
        Ok(ToClient::Welcome {
            node: self.shared.name.clone(),
            max_pause_ms: u64::try_from(max_pause).unwrap_or(u64::MAX),
        })
    }

    /// The index of the token in a hello. All tokens are compared, so that the time reveals nothing.
    fn token(&self, hello: &Hello) -> Result<usize, Refusal> {
        let given = hello.token.as_ref().ok_or(Refusal::Token)?;
        let mut found = None;
        for (place, token) in self.shared.clients.tokens().enumerate() {
            if token.secret == *given {
                found = Some(place);
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

    fn enter(
        &self,
        id: ClientId,
        mut introduction: Introduction,
        token: Option<usize>,
        now: Instant,
    ) -> Result<Stage, Refusal> {
        if !self.may_register(&introduction.namespace, token) {
            return Err(Refusal::Namespace);
        }
        let store = self.shared.store(&introduction.store);
        let store = Arc::clone(store.ok_or(Refusal::Store)?);
        let mut program = Program {
            process_nonce: introduction.process_nonce,
            drawn: None,
            since: now,
        };
        let origin = match &self.peer {
            Peer::Local(process, _) => {
                program.drawn = process.drawn();
                if process.pid() != 0 {
                    // The client may have another id for itself, in its own pid namespace.
                    introduction.pid = process.pid();
                }
                Origin::Local(process.identity())
            }
            Peer::Remote(_) => Origin::Remote {
                token: token.ok_or(Refusal::Token)?,
                process_nonce: introduction.process_nonce,
            },
        };
        let clients = &self.shared.clients;
        let (client, speaker) = clients.enter(id, introduction, origin, program, store)?;
        if let Peer::Local(process, _) = &self.peer {
            if let Ok(true) = client.join(process) {
                self.shared.watch(&client, process);
            }
            self.shared.tell_replaced(&client, now);
        }
        self.shared.scheduler.look_at(&client, now);
        Ok(Stage::Client {
            client,
            speaker,
            batch: None,
        })
    }

    fn changes(&self, client: &Arc<Client>, changes: &Changes, now: Instant) -> ToClient {
        let max = self.shared.clients.limits().leases_per_client;
        let refused = client.change(changes, max, now);
        self.shared.scheduler.look_at(client, now);
        ToClient::Acknowledged {
            batch: changes.batch,
            refused,
        }
    }

    /// Adds a further process of a client. It may belong to any user, as a command may run under sudo: all it does is
    /// keep the client from being taken for dead.
    fn join(&self, client: &Arc<Client>, descriptor: Option<OwnedFd>) -> Result<(), Refusal> {
        let Peer::Local(..) = &self.peer else {
            return Err(Refusal::Process);
        };
        let descriptor = descriptor.ok_or(Refusal::Process)?;
        if has_ended(&descriptor).map_err(|_| Refusal::Process)? {
            return Ok(());
        }
        let process = Process::new(descriptor, self.shared.count_file());
        let process = Arc::new(process.map_err(|_| Refusal::Process)?);
        if !client.has_process(process.identity()) && !self.shared.has_room() {
            return Err(Refusal::Processes);
        }
        if client.join(&process)? {
            self.shared.watch(client, &process);
        }
        Ok(())
    }

    /// Until when the node has renewed a lease. Local peers only, as the instant is on the clock of this machine.
    fn kept(&self, client: [u8; 16], number: u64) -> ToClient {
        let here = matches!(self.peer, Peer::Local(..));
        let client = self.shared.clients.find(ClientId::from_random(client));
        let kept = client
            .filter(|_| here)
            .and_then(|client| client.lock().charge.kept_until(number));
        ToClient::LeaseStatus(kept.map(Instant::as_nanos))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Stage::Client {
            client, speaker, ..
        } = &self.stage
        else {
            return;
        };
        client.disconnected(speaker);
        let now = leasehold::clock::Clock::now(&leasehold::clock::BootClock);
        self.shared.tell_replaced(client, now);
        self.shared.look_again(client, now);
    }
}
