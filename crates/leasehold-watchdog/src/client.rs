//! A client in the charge of a node.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::store::{Key, Space};
use leasehold::watchdog::wire::{Changes, Introduction, Refusal, Registration};
use leasehold_core::watchdog::{Charge, Condition, Deed, End, Evidence, Terms};
use leasehold_core::{ClientId, Instant, LeaseId, Name, Scope, Ttl};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::clients::Tally;
use crate::process::{Identity, Process};
use crate::stores::Served;

/// How many processes of a client are watched.
const PROCESSES_MAX: usize = 64;

/// What is kept of a text that is for people only, in bytes.
const TEXT_MAX: usize = 128;

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    /// Which it is of all that this node ever had.
    pub(crate) serial: u64,
    pub(crate) origin: Origin,
    pub(crate) about: About,
    pub(crate) space: Space,
    pub(crate) store: Arc<Served>,
    pub(crate) known_since: Instant,
    state: Mutex<State>,
    /// When the keeper looks at it, in nanoseconds. 0: never.
    pub(crate) scheduled: AtomicU64,
}

/// Where a client came from first. Nobody else may speak for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A process of this machine.
    Local(Identity),
    /// A program elsewhere, let in by a token.
    Remote { token: usize, image: [u8; 16] },
}

impl Origin {
    pub(crate) fn evidence(&self) -> Evidence {
        match self {
            Self::Local(_) => Evidence::Processes,
            Self::Remote { .. } => Evidence::Connection,
        }
    }
}

/// Who a client is, for people.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) program: String,
    pub(crate) label: String,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) charge: Charge<Name>,
    /// Its first process, which said hello, and others.
    processes: Vec<Member>,
    /// The program that said hello last.
    program: Program,
    /// The connection that speaks for it, which is told when another does.
    speaker: Option<Arc<Notify>>,
    /// What was registered on a connection before, and not on this one yet.
    stale: BTreeSet<u64>,
    tallies: Vec<Arc<Tally>>,
    /// How it was about it when somebody looked last.
    noted: Condition,
}

/// A program in a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// What it drew when it began.
    pub(crate) image: [u8; 16],
    /// What the kernel drew for it, if that can be seen.
    pub(crate) drawn: Option<u64>,
    /// When it said hello.
    pub(crate) since: Instant,
}

impl Program {
    /// Whether it was executed in the place of another.
    fn has_replaced(&self, before: &Self) -> bool {
        let drawn = match (self.drawn, before.drawn) {
            (Some(drawn), Some(before)) => drawn != before,
            _ => true,
        };
        self.image != before.image && drawn && self.since > before.since
    }
}

/// One process of a client.
#[derive(Debug)]
struct Member {
    process: Arc<Process>,
    gone: bool,
    watch: Option<AbortHandle>,
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

/// The state of a client. Keeps the books when it is dropped.
pub(crate) struct Lock<'a> {
    state: MutexGuard<'a, State>,
    leases_before: usize,
}

impl Deref for Lock<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Lock<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let leases = self.state.charge.len();
        for tally in &self.state.tallies {
            tally.change(self.leases_before, leases);
        }
    }
}

impl Client {
    pub(crate) fn new(
        serial: u64,
        introduction: Introduction,
        origin: Origin,
        store: Arc<Served>,
        program: Program,
        charge: Charge<Name>,
        tallies: Vec<Arc<Tally>>,
    ) -> Result<Self, Refusal> {
        let scope = |text: &str| Scope::parse(text).map_err(|_| Refusal::Value);
        let space = Space::new(
            scope(&introduction.namespace)?,
            scope(&introduction.tenant)?,
        );
        Ok(Self {
            id: ClientId::from_random(introduction.client),
            serial,
            origin,
            about: About {
                host: shortened(introduction.host),
                pid: introduction.pid,
                program: shortened(introduction.program),
                label: shortened(introduction.label),
            },
            space,
            store,
            known_since: program.since,
            state: Mutex::new(State {
                charge,
                processes: Vec::new(),
                program,
                speaker: None,
                stale: BTreeSet::new(),
                tallies,
                noted: Condition::Well,
            }),
            scheduled: AtomicU64::new(0),
        })
    }

    pub(crate) fn lock(&self) -> Lock<'_> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let leases_before = state.charge.len();
        Lock {
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

    /// The id of one of its leases.
    pub(crate) fn lease(&self, number: u64) -> LeaseId {
        LeaseId {
            client: self.id,
            number,
        }
    }

    /// Whether somebody who says that he is this client may be.
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

    /// A connection speaks for it from now on. It is told when another does.
    pub(crate) fn connected(&self, program: Program) -> Arc<Notify> {
        let now = program.since;
        let mut state = self.lock();
        let state = &mut *state;
        let speaker = Arc::new(Notify::new());
        if let Some(before) = state.speaker.replace(Arc::clone(&speaker)) {
            before.notify_one();
        }
        state.program = program;
        state.charge.connected(now);
        state.note(self, now);
        state.stale = state.charge.leases().map(|(number, ..)| number).collect();
        speaker
    }

    /// A connection ended. It counts if no other speaks for the client.
    pub(crate) fn disconnected(&self, speaker: &Arc<Notify>) {
        let mut state = self.lock();
        if state.speaks(speaker) {
            state.speaker = None;
            state.charge.disconnected();
        }
    }

    /// Takes in a sign of life. What it did not speak of on this connection, it has no more.
    pub(crate) fn beat(&self, now: Instant) {
        let mut state = self.lock();
        state.charge.heard(now);
        state.note(self, now);
        for number in std::mem::take(&mut state.stale) {
            state.charge.unregister(number);
        }
    }

    /// Takes in news of its leases, and answers what was refused of them.
    pub(crate) fn change(
        &self,
        changes: &Changes,
        leases_max: usize,
        now: Instant,
    ) -> Vec<(u64, Refusal)> {
        let mut state = self.lock();
        state.charge.heard(now);
        state.note(self, now);
        for number in &changes.unregister {
            state.charge.unregister(*number);
            state.stale.remove(number);
        }
        let mut refused = Vec::new();
        let before = state.leases_before;
        for registration in &changes.register {
            if let Err(refusal) = state.register(registration, leases_max, before, now) {
                refused.push((registration.number, refusal));
            }
        }
        refused
    }

    /// Adds a process that must be gone before the client is dead. Answers whether it is to be watched:
    /// it was not one before.
    pub(crate) fn join(&self, process: Arc<Process>) -> Result<bool, Refusal> {
        let mut state = self.lock();
        let known = |member: &Member| member.process.identity() == process.identity();
        if state.processes.iter().any(known) {
            return Ok(false);
        }
        if state.processes.len() >= PROCESSES_MAX {
            // Those that are gone need no place, but for the first.
            let mut place = 0;
            state.processes.retain(|member| {
                place += 1;
                place == 1 || !member.gone
            });
            if state.processes.len() >= PROCESSES_MAX {
                return Err(Refusal::Process);
            }
        }
        state.processes.push(Member {
            process,
            gone: false,
            watch: None,
        });
        Ok(true)
    }

    /// Who watches one of its processes, and is to stop when the client ends.
    pub(crate) fn watched_by(&self, identity: Identity, watch: AbortHandle) {
        let mut state = self.lock();
        match state.member(identity) {
            Some(member) => member.watch = Some(watch),
            None => watch.abort(),
        }
    }

    /// A process has ended. If it was the last, the client is dead.
    pub(crate) fn process_gone(&self, identity: Identity, now: Instant) {
        let mut state = self.lock();
        if let Some(member) = state.member(identity) {
            member.gone = true;
            member.watch = None;
        }
        if !state.processes.is_empty() && state.processes.iter().all(|member| member.gone) {
            state.charge.died(now);
        }
    }

    /// Whether its process runs that other program in the place of its own, which is no more then: nothing
    /// of a program outlives that another is executed in its place. As long as a connection speaks for it,
    /// it is not so.
    pub(crate) fn is_replaced_by(&self, other: &Program) -> bool {
        let state = self.lock();
        state.speaker.is_none() && other.has_replaced(&state.program)
    }

    pub(crate) fn program(&self) -> Program {
        self.lock().program
    }

    /// Whether a deed is still wanted.
    pub(crate) fn is_wanted(&self, number: u64, deed: Deed, now: Instant) -> bool {
        self.lock().charge.is_wanted(number, deed, now)
    }

    /// What became of a deed.
    pub(crate) fn done(&self, number: u64, deed: Deed, end: End, sent: Instant, now: Instant) {
        self.lock().charge.done(number, deed, end, sent, now);
    }

    pub(crate) fn key(&self, name: &Name) -> Key {
        self.space.key(name.clone())
    }

    /// Ends it if there is nothing to do for it any more.
    pub(crate) fn end_if_over(&self, now: Instant) -> bool {
        let over = self.lock().charge.is_over(now);
        if over {
            self.end();
        }
        over
    }

    /// Nothing is done for it any more.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.processes.clear();
        let numbers: Vec<_> = state.charge.leases().map(|(number, ..)| number).collect();
        for number in numbers {
            state.charge.unregister(number);
        }
    }

    /// Whether the keeper has it in mind.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.scheduled.load(Ordering::Relaxed) != 0
    }
}

impl State {
    /// Whether this connection is the one that speaks for the client.
    pub(crate) fn speaks(&self, connection: &Arc<Notify>) -> bool {
        let speaker = self.speaker.as_ref();
        speaker.is_some_and(|speaker| Arc::ptr_eq(speaker, connection))
    }

    /// Tells if it is another way about the client than when somebody looked last.
    pub(crate) fn note(&mut self, client: &Client, now: Instant) {
        let before = std::mem::replace(&mut self.noted, self.charge.condition(now));
        if std::mem::discriminant(&before) == std::mem::discriminant(&self.noted) {
            return;
        }
        let About {
            host,
            pid,
            program,
            label,
        } = &client.about;
        let (id, leases) = (client.id, self.charge.len());
        match self.noted {
            Condition::Well => {
                tracing::info!(client = %id, host, pid, program, label, "a client renews its leases itself again");
            }
            Condition::HeldUp { .. } => {
                let why = self.why();
                tracing::warn!(client = %id, host, pid, program, label, leases, why, "a client is silent, renewing its leases");
            }
            Condition::GivenUp => {
                tracing::warn!(client = %id, host, pid, program, label, leases, "a client is silent for too long, leaving its leases to end");
            }
            Condition::Unseen => {
                tracing::info!(client = %id, host, pid, program, label, leases, "a client is not connected any more");
            }
            Condition::Dead => {
                tracing::info!(client = %id, host, pid, program, label, leases, "a client is dead, releasing its leases");
            }
        }
    }

    /// How many processes must be gone before it is dead.
    pub(crate) fn processes(&self) -> usize {
        self.processes.iter().filter(|member| !member.gone).count()
    }

    /// Why it may be silent, for people.
    pub(crate) fn why(&self) -> String {
        let first = self.processes.first();
        first.map_or_else(String::new, |member| member.process.why())
    }

    fn member(&mut self, identity: Identity) -> Option<&mut Member> {
        let mut members = self.processes.iter_mut();
        members.find(|member| member.process.identity() == identity)
    }

    fn register(
        &mut self,
        registration: &Registration,
        leases_max: usize,
        before: usize,
        now: Instant,
    ) -> Result<(), Refusal> {
        let name = Name::parse(&registration.name).map_err(|_| Refusal::Value)?;
        let terms = terms(registration, now).ok_or(Refusal::Value)?;
        match self.charge.lease(registration.number) {
            // A lease holds one lock.
            Some((known, _)) if *known != name => return Err(Refusal::Value),
            Some(_) => {}
            None => {
                let leases = self.charge.len();
                // What came with this batch is not in the books yet.
                let full = |tally: &Arc<Tally>| !tally.has_room(before, leases);
                if leases >= leases_max || self.tallies.iter().any(full) {
                    return Err(Refusal::Leases);
                }
            }
        }
        self.stale.remove(&registration.number);
        self.charge.register(registration.number, terms, name, now);
        Ok(())
    }
}

/// What is to be done for a lease, if that can be.
fn terms(registration: &Registration, now: Instant) -> Option<Terms> {
    let ttl = std::time::Duration::from_millis(registration.ttl_ms.into());
    let patience = std::time::Duration::from_millis(registration.patience_ms.into());
    let ttl = Ttl::checked(ttl)?;
    let can_be = Terms::PATIENCE_MIN <= patience && patience <= ttl.as_duration();
    let keep_until = match registration.keep_ms {
        Some(span) => now.after(std::time::Duration::from_millis(span)),
        None => Terms::NO_END,
    };
    can_be.then_some(Terms {
        ttl,
        patience,
        keep_until,
    })
}

/// The beginning of a text, without what would disturb a terminal.
fn shortened(text: String) -> String {
    let mut short = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if short.len() + c.len_utf8() > TEXT_MAX {
            break;
        }
        short.push(c);
    }
    short
}
