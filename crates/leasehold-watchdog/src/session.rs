//! What is said on a connection, and what comes of it. Without the connection itself.
//!
//! ```text
//!   New -- Hello(Observer) --> Observer -- LeaseQuery, Status
//!    '---- Hello(Client) ----> Client ---- Changes, Heartbeat, Process, LeaseQuery, Status
//!                                 '------- Disconnect --> the end
//! ```
//!
//! Any other word ends the connection.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use leasehold::watchdog::wire::{Changes, Hello, Introduction, Refusal, Role, ToClient, ToNode};
use leasehold_core::{ClientId, Instant};
use tokio::sync::Notify;

use crate::access::is_allowed;
use crate::client::{Client, Origin, Program};
use crate::process::{Owner, Process, has_ended};
use crate::shared::Shared;
use crate::status::Pages;

/// Who is at the other end.
#[derive(Debug)]
pub(crate) enum Peer {
    /// A process of this machine.
    Local(Arc<Process>, Owner),
    /// Somebody elsewhere.
    Remote(std::net::SocketAddr),
}

/// One side of a conversation.
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
        /// Told when another connection speaks for the client.
        speaker: Arc<Notify>,
        /// The last batch of changes.
        batch: Option<u64>,
    },
}

/// What comes of a word.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing is said.
    Silence,
    /// This is said.
    Say(ToClient),
    /// These are said, each when the one before was read.
    Show(Pages),
    /// The connection ends, after this.
    Refuse(Refusal),
    /// The connection ends.
    ActionResult,
}

impl Session {
    pub(crate) fn new(shared: &Arc<Shared>, peer: Peer) -> Self {
        Self {
            shared: Arc::clone(shared),
            peer,
            stage: Stage::New,
        }
    }

    /// Takes in a word. `descriptor` answers the next of those that were sent along.
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
                // What comes after it on this connection is not from the client that it was.
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
                            // It may be the last that lives. Without it nobody can tell when the client
                            // is dead.
                            self.shared.clients.forget(&client);
                            Step::Refuse(refusal)
                        }
                    },
                    ToNode::Disconnect => {
                        self.shared.clients.forget(&client);
                        Step::ActionResult
                    }
                    _ => Step::Refuse(Refusal::Word),
                }
            }
            (Stage::Observer, _) => Step::Refuse(Refusal::Word),
        }
    }

    /// Waits until another connection speaks for the client.
    pub(crate) fn replaced(&self) -> Option<Arc<Notify>> {
        match &self.stage {
            Stage::Client { speaker, .. } => Some(Arc::clone(speaker)),
            Stage::New | Stage::Observer => None,
        }
    }

    /// Whether it was said hello.
    pub(crate) fn is_introduced(&self) -> bool {
        !matches!(self.stage, Stage::New)
    }

    /// The client that speaks, for the log.
    pub(crate) fn client(&self) -> Option<ClientId> {
        match &self.stage {
            Stage::Client { client, .. } => Some(client.id),
            Stage::New | Stage::Observer => None,
        }
    }

    /// Who is at the other end, for the log.
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

    /// Which token somebody has. Each is compared, so that the time tells nothing.
    fn token(&self, hello: &Hello) -> Result<usize, Refusal> {
        let given = hello.token.as_ref().ok_or(Refusal::Token)?;
        let mut found = None;
        for (place, token) in self.shared.clients.tokens().enumerate() {
            if token.secret.is(given) {
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
                    // Others see it by this one here.
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

    /// Takes in a further process of a client, of whichever user: the command of a run may be by sudo. It only
    /// keeps the client from being taken for dead.
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

    /// Until when a lease is kept. Only this machine knows its clock.
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
