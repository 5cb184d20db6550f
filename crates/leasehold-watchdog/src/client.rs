//! A client that a node monitors.

mod members;
mod state;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold::__private::wire::{Changes, Introduction, Refusal};
use leasehold::store::{Key, Keyspace};
use leasehold_core::watchdog::{ActionResult, ClientMonitor, Evidence, Liveness, WatchdogAction};
use leasehold_core::{ClientId, Instant, LeaseId, Name, ScopeName};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use self::members::Members;
pub(crate) use self::state::{Lock, State};
use crate::handover::Handover;
use crate::journal::{Entry, Id, Known, Lease};
use crate::monitors::Tally;
use crate::process::{Identity, Process};
use crate::stores::Served;

/// The length to which a text for people is cut, in bytes.
const TEXT_MAX: usize = 128;

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    /// A number that no other client of this node ever had.
    pub(crate) serial: u64,
    pub(crate) origin: Origin,
    pub(crate) about: About,
    pub(crate) space: Keyspace,
    pub(crate) store: Arc<Served>,
    pub(crate) known_since: Instant,
    memory: Option<Arc<Handover>>,
    state: Mutex<State>,
    /// When the scheduler polls it next, in nanoseconds. 0: never.
    pub(crate) scheduled: AtomicU64,
}

/// Where a client connected from first. Connections from elsewhere are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A process of this machine.
    Local(Identity),
    /// A program on another machine, admitted by a token.
    Remote {
        token: usize,
        process_nonce: [u8; 16],
    },
}

impl Origin {
    pub(crate) fn evidence(&self) -> Evidence {
        match self {
            Self::Local(_) => Evidence::Processes,
            Self::Remote { .. } => Evidence::Connection,
        }
    }
}

/// The client info that logs and the status show.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) program: String,
    pub(crate) label: String,
}

/// A program that a process executes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// The random number that the program drew when it started.
    pub(crate) process_nonce: [u8; 16],
    /// A hash of the addresses that the kernel drew for it. `None`: they are not readable.
    pub(crate) drawn: Option<u64>,
    /// When it sent its hello.
    pub(crate) since: Instant,
}

impl Program {
    /// Whether it replaced another program by exec.
    fn has_replaced(&self, before: &Self) -> bool {
        let drawn = match (self.drawn, before.drawn) {
            (Some(drawn), Some(before)) => drawn != before,
            _ => true,
        };
        self.process_nonce != before.process_nonce && drawn && self.since > before.since
    }
}

/// The parameters of [`Client::new`].
pub(crate) struct Making {
    pub(crate) id: ClientId,
    pub(crate) serial: u64,
    pub(crate) introduction: Introduction,
    pub(crate) origin: Origin,
    pub(crate) program: Program,
    pub(crate) store: Arc<Served>,
    pub(crate) charge: ClientMonitor<Name>,
    pub(crate) tallies: Vec<Arc<Tally>>,
    pub(crate) memory: Option<Arc<Handover>>,
}

impl Client {
    pub(crate) fn new(making: Making) -> Result<Self, Refusal> {
        let Making {
            introduction,
            origin,
            program,
            ..
        } = making;
        let scope = |text: &str| ScopeName::parse(text).map_err(|_| Refusal::Value);
        let space = Keyspace::new(
            scope(&introduction.namespace)?,
            scope(&introduction.tenant)?,
        );
        let client = Self {
            id: making.id,
            serial: making.serial,
            origin,
            about: About {
                host: shortened(&introduction.host),
                pid: introduction.pid,
                program: shortened(&introduction.program),
                label: shortened(&introduction.label),
            },
            space,
            store: making.store,
            known_since: program.since,
            // A remote client is known by its connection only, which the next node does not have.
            memory: making.memory.filter(|_| matches!(origin, Origin::Local(_))),
            state: Mutex::new(State {
                charge: making.charge,
                members: Members::default(),
                program,
                speaker: None,
                tallies: making.tallies,
                noted: Liveness::Alive,
            }),
            scheduled: AtomicU64::new(0),
        };
        client.write_all();
        Ok(client)
    }

    pub(crate) fn lock(&self) -> Lock<'_> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let leases_before = state.charge.len();
        Lock {
            client: self,
            state,
            leases_before,
        }
    }

    pub(crate) fn token(&self) -> Option<usize> {
        match self.origin {
            Origin::Remote { token, .. } => Some(token),
            Origin::Local(_) => None,
        }
    }

    /// The id of its lease with this number.
    pub(crate) fn lease(&self, number: u64) -> LeaseId {
        LeaseId {
            client: self.id,
            number,
        }
    }

    pub(crate) fn key(&self, name: &Name) -> Key {
        self.space.key(name.clone())
    }

    /// Checks that a hello with the id of this client has its origin, store and keyspace.
    pub(crate) fn is_again(
        &self,
        introduction: &Introduction,
        origin: &Origin,
        store: &Arc<Served>,
    ) -> Result<(), Refusal> {
        let space = &self.space;
        let same_space = space.namespace().as_str() == introduction.namespace
            && space.tenant().as_str() == introduction.tenant;
        if self.origin != *origin {
            Err(Refusal::Foreign)
        } else if !same_space || !Arc::ptr_eq(&self.store, store) {
            Err(Refusal::Value)
        } else {
            Ok(())
        }
    }

    /// Makes a connection the active one of the client. The previous one is notified, and so is this one when another
    /// replaces it. The registrations stay: the client may be paused before it can send them again.
    pub(crate) fn connected(&self, program: Program) -> Arc<Notify> {
        let mut state = self.lock();
        let speaker = Arc::new(Notify::new());
        if let Some(before) = state.speaker.replace(Arc::clone(&speaker)) {
            before.notify_one();
        }
        state.program = program;
        state.charge.connected(program.since);
        state.note(program.since);
        speaker
    }

    /// Handles the end of a connection. It counts only if the connection is still the active one.
    pub(crate) fn disconnected(&self, speaker: &Arc<Notify>) {
        let mut state = self.lock();
        if state.speaks(speaker) {
            state.speaker = None;
            state.charge.disconnected();
        }
    }

    /// Handles a heartbeat.
    pub(crate) fn beat(&self, now: Instant) {
        self.lock().heard(now);
    }

    /// Applies changes of its leases. Returns the refused ones.
    pub(crate) fn change(
        &self,
        changes: &Changes,
        leases_max: usize,
        now: Instant,
    ) -> Vec<(u64, Refusal)> {
        let mut state = self.lock();
        state.heard(now);
        for number in &changes.unregister {
            state.unregister(*number);
        }
        let mut refused = Vec::new();
        for registration in &changes.register {
            if let Err(refusal) = state.register(registration, leases_max, now) {
                refused.push((registration.number, refusal));
            }
        }
        refused
    }

    /// Adds a process that must end before the client is dead. Returns whether it is a new one, which the
    /// caller has to watch.
    pub(crate) fn join(&self, process: &Arc<Process>) -> Result<bool, Refusal> {
        let mut state = self.lock();
        if state.members.has(process.identity()) {
            return Ok(false);
        }
        for place in state.members.make_room()? {
            self.forget(place);
        }
        let memory = self.memory.as_ref();
        let place = memory.map(|memory| memory.keep(process));
        state.members.push(Arc::clone(process), place);
        if let Some(place) = place {
            self.write(|id| Entry::Process(id, place));
        }
        Ok(true)
    }

    /// Whether a process belongs to the client already.
    pub(crate) fn has_process(&self, identity: Identity) -> bool {
        self.lock().members.has(identity)
    }

    /// Adds a process whose descriptor the service manager keeps already.
    pub(crate) fn rejoin(&self, place: u64, process: &Arc<Process>) {
        let mut state = self.lock();
        state.members.push(Arc::clone(process), Some(place));
        self.write(|id| Entry::Process(id, place));
    }

    /// Adds leases that an earlier node knew.
    pub(crate) fn restore_leases(&self, leases: BTreeMap<u64, Lease>, heard: Instant) {
        let mut state = self.lock();
        for (number, lease) in leases {
            if let Some((name, terms)) = state::restored(&lease) {
                self.write(|id| Entry::Lease(id, number, lease));
                state.charge.register(number, terms, name, heard);
            }
        }
        state.charge.disconnected();
    }

    /// Adds the task that watches one of its processes. It is aborted when the client is forgotten.
    pub(crate) fn watched_by(&self, identity: Identity, watch: AbortHandle) {
        self.lock().members.watched_by(identity, watch);
    }

    /// Handles the end of a process. After the last one the client is dead.
    pub(crate) fn process_gone(&self, identity: Identity, now: Instant) {
        let mut state = self.lock();
        if state.members.gone(identity) {
            state.charge.died(now);
        }
    }

    /// Whether its process has executed that other program instead of its own. Then the client is dead: nothing of a
    /// program outlives an exec. Never while the client has a connection.
    pub(crate) fn is_replaced_by(&self, other: &Program) -> bool {
        let state = self.lock();
        state.speaker.is_none() && other.has_replaced(&state.program)
    }

    pub(crate) fn program(&self) -> Program {
        self.lock().program
    }

    /// Whether an action is still wanted.
    pub(crate) fn is_wanted(&self, number: u64, action: WatchdogAction, now: Instant) -> bool {
        self.lock().charge.is_wanted(number, action, now)
    }

    /// Handles the result of an action.
    pub(crate) fn done(
        &self,
        number: u64,
        action: WatchdogAction,
        end: ActionResult,
        sent: Instant,
        now: Instant,
    ) {
        let mut state = self.lock();
        if end == ActionResult::Over {
            state.unregister(number);
        }
        state.charge.done(number, action, end, sent, now);
    }

    /// Ends it if nothing is left to do for it. Returns whether it has ended.
    pub(crate) fn end_if_over(&self, now: Instant) -> bool {
        let over = self.lock().charge.is_over(now);
        if over {
            self.end();
        }
        over
    }

    /// Removes its leases and processes, and writes to the journal that it has ended.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        self.write(Entry::Over);
        for place in state.members.places() {
            self.forget(place);
        }
        state.members = Members::default();
        let numbers: Vec<_> = state.charge.leases().map(|(number, ..)| number).collect();
        for number in numbers {
            state.charge.unregister(number);
        }
    }

    /// Whether it is in the scheduler.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.scheduled.load(Ordering::Relaxed) != 0
    }

    /// Writes its whole state to the journal.
    pub(crate) fn write_all(&self) {
        if self.memory.is_none() {
            return;
        }
        let state = self.lock();
        self.write(|id| Entry::Client(id, Box::new(self.known(&state))));
        for place in state.members.places() {
            self.write(|id| Entry::Process(id, place));
        }
        for (number, name, terms) in state.charge.leases() {
            self.write(|id| Entry::Lease(id, number, state::saved(name, terms)));
        }
        if let Liveness::Silent { since } = state.noted {
            self.write(|id| Entry::Silent(id, since.as_nanos()));
        }
    }

    fn known(&self, state: &State) -> Known {
        let About {
            host,
            pid,
            program,
            label,
        } = self.about.clone();
        Known {
            process_nonce: state.program.process_nonce,
            drawn: state.program.drawn,
            store: self.store.redacted_url().to_owned(),
            namespace: self.space.namespace().to_string(),
            tenant: self.space.tenant().to_string(),
            host,
            pid,
            program,
            label,
            since: self.known_since.as_nanos(),
        }
    }

    /// Writes an entry to the journal, if the node has one.
    fn write(&self, entry: impl FnOnce(Id) -> Entry) {
        if let Some(memory) = &self.memory {
            memory.write(&entry(self.id.to_bytes()));
        }
    }

    fn forget(&self, place: u64) {
        if let Some(memory) = &self.memory {
            memory.forget(place);
        }
    }
}

/// The beginning of a text, without control characters, which would disturb a terminal.
fn shortened(text: &str) -> String {
    let mut short = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if short.len() + c.len_utf8() > TEXT_MAX {
            break;
        }
        short.push(c);
    }
    short
}
