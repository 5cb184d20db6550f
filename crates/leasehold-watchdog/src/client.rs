//! A client that a node monitors.

mod processes;
mod state;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::__private::store::Keyspace;
use leasehold::__private::wire::{Changes, ClientInfo, Refusal};
use leasehold_core::watchdog::{ActionResult, ClientMonitor, Evidence, Liveness, WatchdogAction};
use leasehold_core::{ClientId, DueTime, Instant, LeaseId, Namespace, Scheduled, ScopeName};
use tokio::sync::Notify;

use self::processes::Processes;
pub(crate) use self::state::{ClientState, StateGuard};
use crate::journal::{Change, ClientRecord, Lease};
use crate::limits::LeaseCount;
use crate::process::{Identity, Process};
use crate::service_manager::ServiceManager;
use crate::stores::ServedStore;

/// The length to which a text for people is cut, in bytes.
const TEXT_MAX: usize = 128;

/// How long the last messages of a client are awaited when all its processes have ended. They have arrived by then,
/// and so has the end of the connection, unless a forked process shares it.
const LAST_MESSAGES_TIMEOUT: Duration = Duration::from_millis(50);

/// A client, as the node watches it.
#[derive(Debug)]
pub(crate) struct WatchedClient {
    pub(crate) id: ClientId,
    /// A number that no other client of this node ever had.
    serial: u64,
    pub(crate) origin: Origin,
    /// As in its first hello, with shortened texts and the URL of the store.
    pub(crate) info: ClientInfo,
    pub(crate) keyspace: Keyspace,
    pub(crate) store: Arc<ServedStore>,
    pub(crate) known_since: Instant,
    /// It keeps the state for the next node. `None`: the client is not handed over.
    manager: Option<Arc<ServiceManager>>,
    state: Mutex<ClientState>,
    /// Notified when its active connection has ended.
    connection_ended: Notify,
    pub(crate) due_time: DueTime,
}

/// Where a client connected from first. Connections from elsewhere are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A process of this machine.
    Local(Identity),
    /// A program on another machine, authenticated by a token.
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

    pub(crate) fn token(&self) -> Option<usize> {
        match self {
            Self::Local(_) => None,
            Self::Remote { token, .. } => Some(*token),
        }
    }
}

/// A program that a process executes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// The random number that the program drew when it started.
    pub(crate) process_nonce: [u8; 16],
    /// A hash of the addresses that the kernel drew for it. `None`: they are not readable.
    pub(crate) address_hash: Option<u64>,
    /// When it sent its hello.
    pub(crate) since: Instant,
}

impl Program {
    /// Whether it replaced another program by exec.
    fn has_replaced(&self, before: &Self) -> bool {
        let other_addresses = match (self.address_hash, before.address_hash) {
            (Some(hash), Some(before)) => hash != before,
            _ => true,
        };
        self.process_nonce != before.process_nonce && other_addresses && self.since > before.since
    }
}

/// A client as its hello or its record in the journal describes it.
pub(crate) struct ClientParts {
    pub(crate) id: ClientId,
    pub(crate) info: ClientInfo,
    pub(crate) origin: Origin,
    pub(crate) program: Program,
    pub(crate) store: Arc<ServedStore>,
}

impl WatchedClient {
    /// A client whose last sign of life was at `last_received`.
    pub(crate) fn new(
        parts: ClientParts,
        serial: u64,
        (max_pause, last_received): (Duration, Instant),
        lease_counts: Vec<Arc<LeaseCount>>,
        manager: Option<Arc<ServiceManager>>,
    ) -> Result<Self, Refusal> {
        let ClientParts {
            id,
            mut info,
            origin,
            program,
            store,
        } = parts;
        let namespace = Namespace::parse(&info.namespace).map_err(|_| Refusal::Value)?;
        let tenant = ScopeName::parse(&info.tenant).map_err(|_| Refusal::Value)?;
        let keyspace = Keyspace::new(namespace, tenant);
        store.redacted_url().clone_into(&mut info.store);
        for text in [&mut info.host, &mut info.program, &mut info.label] {
            *text = shortened(text);
        }
        let client = Self {
            id,
            serial,
            origin,
            info,
            keyspace,
            store,
            known_since: program.since,
            // A remote client is known by its connection only, which the next node does not have.
            manager: manager.filter(|_| matches!(origin, Origin::Local(_))),
            state: Mutex::new(ClientState {
                monitor: ClientMonitor::new(origin.evidence(), max_pause, last_received),
                processes: Processes::default(),
                program,
                active_connection: None,
                lease_counts,
                logged_liveness: Liveness::Alive,
            }),
            connection_ended: Notify::new(),
            due_time: DueTime::default(),
        };
        client.write_all();
        Ok(client)
    }

    pub(crate) fn lock(&self) -> StateGuard<'_> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let leases_before = state.monitor.len();
        StateGuard {
            client: self,
            state,
            leases_before,
        }
    }

    /// The id of its lease with this number.
    pub(crate) fn lease(&self, number: u64) -> LeaseId {
        LeaseId {
            client: self.id,
            number,
        }
    }

    /// Checks that a hello with the id of this client has its origin, store and keyspace.
    pub(crate) fn check_hello(&self, hello: &ClientParts) -> Result<(), Refusal> {
        let same_keyspace =
            self.info.namespace == hello.info.namespace && self.info.tenant == hello.info.tenant;
        if self.origin != hello.origin {
            Err(Refusal::Foreign)
        } else if !same_keyspace || !Arc::ptr_eq(&self.store, &hello.store) {
            Err(Refusal::Value)
        } else {
            Ok(())
        }
    }

    /// Makes a connection the active one of the client. The previous one is notified, and so is this one when another
    /// replaces it. The registrations stay: the client may be paused before it can send them again.
    pub(crate) fn connected(&self, program: Program) -> Arc<Notify> {
        let mut state = self.lock();
        let connection = Arc::new(Notify::new());
        if let Some(before) = state.active_connection.replace(Arc::clone(&connection)) {
            before.notify_one();
        }
        state.program = program;
        state.monitor.connected(program.since);
        state.log_liveness(program.since);
        connection
    }

    /// Handles the end of a connection. It counts only if the connection is still the active one.
    pub(crate) fn disconnected(&self, connection: &Arc<Notify>) {
        let mut state = self.lock();
        if state.is_active(connection) {
            state.active_connection = None;
            state.monitor.disconnected();
            self.connection_ended.notify_waiters();
        }
    }

    /// Applies changes of its leases. Returns the refused ones.
    pub(crate) fn apply_changes(
        &self,
        changes: &Changes,
        leases_max: usize,
        now: Instant,
    ) -> Vec<(u64, Refusal)> {
        let mut state = self.lock();
        state.message_received(now);
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
    pub(crate) fn add_process(&self, process: &Arc<Process>) -> Result<bool, Refusal> {
        let mut state = self.lock();
        if state.processes.has(process.identity()) {
            return Ok(false);
        }
        for descriptor_id in state.processes.make_room()? {
            self.forget_descriptor(descriptor_id);
        }
        let manager = self.manager.as_ref();
        let descriptor_id = manager.map(|manager| manager.keep_process(process));
        state.processes.push(Arc::clone(process), descriptor_id);
        if let Some(descriptor_id) = descriptor_id {
            self.write(Change::Process(descriptor_id));
        }
        Ok(true)
    }

    /// Adds a process whose descriptor the service manager keeps already.
    pub(crate) fn restore_process(&self, descriptor_id: u64, process: &Arc<Process>) {
        let mut state = self.lock();
        state
            .processes
            .push(Arc::clone(process), Some(descriptor_id));
        self.write(Change::Process(descriptor_id));
    }

    /// Adds leases that an earlier node knew.
    pub(crate) fn restore_leases(&self, leases: BTreeMap<u64, Lease>, last_received: Instant) {
        let mut state = self.lock();
        for (number, lease) in leases {
            if let Some((name, terms)) = state::from_record(&lease) {
                self.write(Change::Lease(number, lease));
                state.monitor.register(number, terms, name, last_received);
            }
        }
        state.monitor.disconnected();
    }

    /// Notes the end of a process. Returns whether all have ended.
    pub(crate) fn process_ended(&self, identity: Identity) -> bool {
        let mut state = self.lock();
        state.processes.ended(identity);
        state.processes.have_ended()
    }

    /// Waits until its connection was read to the end, for a moment at most: its last messages may say that it holds
    /// nothing now, or name a further process.
    pub(crate) async fn last_messages(&self) {
        let ended = self.connection_ended.notified();
        let is_connected = self.lock().active_connection.is_some();
        if is_connected {
            let _ = tokio::time::timeout(LAST_MESSAGES_TIMEOUT, ended).await;
        }
    }

    /// Makes the client dead if all its processes have ended.
    pub(crate) fn check_death(&self, now: Instant) {
        let mut state = self.lock();
        if state.processes.have_ended() {
            state.monitor.died(now);
        }
    }

    /// Whether its process has executed that other program instead of its own. Then the client is dead: nothing of a
    /// program outlives an exec. Never while the client has a connection.
    pub(crate) fn is_replaced_by(&self, other: &Program) -> bool {
        let state = self.lock();
        state.active_connection.is_none() && other.has_replaced(&state.program)
    }

    pub(crate) fn program(&self) -> Program {
        self.lock().program
    }

    /// Handles the result of an action.
    pub(crate) fn handle_result(
        &self,
        number: u64,
        action: WatchdogAction,
        result: ActionResult,
        sent: Instant,
        now: Instant,
    ) {
        let mut state = self.lock();
        if result == ActionResult::NotHeld {
            state.unregister(number);
        }
        state
            .monitor
            .handle_result(number, action, result, sent, now);
    }

    /// Ends it if nothing is left to do for it. Returns whether it has ended.
    pub(crate) fn end_if_finished(&self, now: Instant) -> bool {
        let state = self.lock();
        let finished = state.monitor.is_finished(now);
        let is_ordinary = state.monitor.is_empty() && state.logged_liveness != Liveness::Dead;
        drop(state);
        if finished {
            if is_ordinary {
                self.log_end();
            }
            self.end();
        }
        finished
    }

    /// Logs and counts an end that is not a death: the client no longer has a registered lease.
    pub(crate) fn log_end(&self) {
        let ClientInfo {
            host,
            pid,
            program,
            label,
            ..
        } = &self.info;
        metrics::counter!("leasehold_watchdog_ended_total").increment(1);
        tracing::debug!(client = %self.id, host, pid, program, label, "a client has ended");
    }

    /// Removes its leases and processes, and writes to the journal that it has ended.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        self.write(Change::Ended);
        for descriptor_id in state.processes.descriptor_ids() {
            self.forget_descriptor(descriptor_id);
        }
        state.processes = Processes::default();
        let numbers: Vec<_> = state.monitor.leases().map(|(number, ..)| number).collect();
        for number in numbers {
            state.monitor.unregister(number);
        }
    }

    /// Writes its whole state to the journal.
    pub(crate) fn write_all(&self) {
        if self.manager.is_none() {
            return;
        }
        let state = self.lock();
        let info = ClientInfo {
            process_nonce: state.program.process_nonce,
            ..self.info.clone()
        };
        let record = ClientRecord {
            info,
            address_hash: state.program.address_hash,
            since: self.known_since.as_nanos(),
        };
        self.write(Change::Client(Box::new(record)));
        for descriptor_id in state.processes.descriptor_ids() {
            self.write(Change::Process(descriptor_id));
        }
        for (number, name, terms) in state.monitor.leases() {
            self.write(Change::Lease(number, state::to_record(name, terms)));
        }
        if let Liveness::Silent { since } = state.logged_liveness {
            self.write(Change::Silent(since.as_nanos()));
        }
    }

    /// Writes an entry to the journal, if the node has one.
    fn write(&self, change: Change) {
        if let Some(manager) = &self.manager {
            manager.journal.write(self.id.to_bytes(), &change);
        }
    }

    fn forget_descriptor(&self, descriptor_id: u64) {
        if let Some(manager) = &self.manager {
            manager.forget_process(descriptor_id);
        }
    }
}

impl Scheduled for WatchedClient {
    fn number(&self) -> u64 {
        self.serial
    }

    fn due_time(&self) -> &DueTime {
        &self.due_time
    }
}

/// The beginning of a text, without control characters, which would disturb a terminal.
fn shortened(text: &str) -> String {
    let printable = text.chars().filter(|c| !c.is_control());
    let lengths = printable.clone().scan(0, |length, c| {
        *length += c.len_utf8();
        Some(*length)
    });
    let count = lengths.take_while(|length| *length <= TEXT_MAX).count();
    printable.take(count).collect()
}
