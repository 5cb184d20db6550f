//! A simulation of clients, a network and a store, which is the same again for the same seed.
//!
//! The store applies the rule that ships, and the clients host the state machines that ship:
//! [`Acquisition`](leasehold_core::Acquisition), [`PendingReleases`](leasehold_core::PendingReleases),
//! [`Lease`](leasehold_core::Lease), in an election [`ValueWriter`](leasehold_core::ValueWriter) and
//! [`Reading`](leasehold_core::Reading), and for a run that ends before its lease
//! [`NoteWriter`](leasehold_core::NoteWriter). A node of the watchdog hosts the
//! [`ClientMonitor`](leasehold_core::watchdog::ClientMonitor)s of its clients, and each client a
//! [`NodeSession`](leasehold_core::watchdog::NodeSession). Processes, nodes and the store are stopped, processes are
//! killed and disconnected, nodes are restarted without their data, messages are lost, doubled or late, and clocks
//! drift. Checkers observe the store, the nodes and the holders. In one scenario, processes run a daily job for a month.
//! In another one, contenders share a lock over many masters without a fault. Otherwise the faults end, and the lock must
//! be granted again, or the value of a leader reach all observers. At last every process is killed, and nothing may stay
//! behind.

mod acquiring;
mod calendar;
mod calls;
mod client;
mod clock;
mod contention;
mod daily;
mod frames;
mod holder;
mod machine;
mod network;
mod node;
mod observing;
mod quiesce;
mod report;
mod runs;
mod scenario;
mod setup;
mod store;
mod values;
mod watching;

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use leasehold_checker::{self as checker, Sequence};
use leasehold_core::{CompletionKey, LeaseId, Rows, Token, Ttl};

pub use self::calendar::{ClockChange, Timetable};
use self::client::{Message, SimulatedClient};
pub use self::contention::Contention;
use self::contention::{Contenders, ContentionEvent};
use self::daily::Daily;
use self::machine::Machine;
use self::network::{LossRates, Request};
use self::node::{Node, NodeEvent};
pub use self::report::{Occurrence, Report, Violation};
pub use self::setup::{Leases, Mutation, Network, Scenario, Setup, Watchdog};
use self::store::Stall;
use self::values::Values;
use crate::store_checker::StoreChecker;

/// Runs the simulation of a seed. With `trace`, it prints what happens.
///
/// # Errors
///
/// The first violation.
pub fn run(seed: u64, setup: &Setup, trace: bool) -> Result<Report, Violation> {
    let mut simulation = Simulation::new(seed, setup, trace);
    simulation.run()?;
    Ok(simulation.report)
}

/// What a holder relies on: a lease, and the token of one grant of it.
type LeaseToken = (LeaseId, Token);

struct Simulation {
    setup: Setup,
    rng: Rng,
    ttl: Ttl,
    loss: LossRates,
    /// Nanoseconds since the start, by no clock of the simulation.
    time: u64,
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    record: Rows,
    stall: Stall,
    /// The requests whose clients are notified of the next change, with their machines and connections.
    watchers: Vec<(usize, u64, u64)>,
    values: Values,
    store_checker: StoreChecker,
    holders: Sequence<LeaseToken>,
    /// The leases that have completed the run for each key.
    completed: BTreeMap<CompletionKey, LeaseId>,
    daily: Daily,
    /// The contenders of a lock over many masters.
    contenders: Option<Contenders>,
    machines: Vec<Machine>,
    nodes: Vec<Node>,
    /// Whether fault events happen at this moment.
    faults: bool,
    report: Report,
    trace: bool,
}

#[derive(Clone, Debug)]
enum Event {
    /// A request reaches the store.
    Request(Request),
    /// A message reaches a machine, on this connection.
    Message(usize, u64, Message),
    /// A timer of a client expires.
    Timer { machine: usize, number: u64 },
    /// A client wants the lock, if it is idle.
    Acquire { machine: usize },
    /// A process of the daily job is started.
    Start(daily::Start),
    /// Something happens to a node of the watchdog, or by it.
    Node(NodeEvent),
    /// A contender or one of many masters acts.
    Contention(ContentionEvent),
    /// A process is killed.
    Crash { machine: usize },
    /// A process is stopped.
    Pause { machine: usize },
    /// The store detects that a connection is broken.
    BreakDetected(usize, u64),
    /// A machine reaches the store again.
    Reconnect { machine: usize },
    /// A stopped process goes on.
    Resume { machine: usize },
    /// A killed process is started again.
    Restart { machine: usize },
    /// A random fault happens to a machine, or none.
    Fault { machine: usize },
    /// The store is stopped.
    StopStore,
    /// The store goes on.
    ResumeStore,
}

impl Simulation {
    fn new(seed: u64, setup: &Setup, trace: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let ttl = match setup.network {
            Network::Datagrams => rng.u64(300..=3_000),
            Network::Connections => rng.u64(6_000..=30_000),
        };
        let ttl = match setup.scenario {
            Scenario::Daily(_) => daily::TTL,
            Scenario::SlowNetwork => Duration::from_secs(300),
            _ => Duration::from_millis(ttl),
        };
        let ttl = Ttl::remainder(ttl);
        let machines = (0..setup.clients).map(|_| Machine::new(setup, &mut rng));
        let machines: Vec<_> = machines.collect();
        let clocks = machines.iter().map(|machine| machine.clock);
        Self {
            setup: *setup,
            nodes: Node::all(setup, clocks, ttl, &mut rng),
            machines,
            loss: LossRates::random(&mut rng),
            rng,
            ttl,
            time: 0,
            events: BTreeMap::new(),
            scheduled: 0,
            record: Rows::default(),
            stall: Stall::default(),
            watchers: Vec::new(),
            values: Values::default(),
            store_checker: StoreChecker::default(),
            holders: Sequence::default(),
            completed: BTreeMap::new(),
            daily: Daily::default(),
            contenders: None,
            faults: matches!(setup.scenario, Scenario::Random(_)),
            report: Report::default(),
            trace,
        }
    }

    fn run(&mut self) -> Result<(), Violation> {
        for machine in 0..self.machines.len() {
            self.start(machine);
        }
        match self.setup.scenario {
            Scenario::Random(events) => {
                self.schedule_faults();
                for _ in 0..events {
                    self.step()?;
                }
                self.quiesce()?;
            }
            Scenario::Daily(timetable) => self.play_daily(&timetable)?,
            Scenario::LostNote => self.lose_note()?,
            Scenario::LateNotice => self.delay_notice()?,
            // Their leases last longer than the simulation.
            Scenario::Contention(contention) => return self.play_contention(contention),
            scenario => self.play(scenario)?,
        }
        self.check_leftovers()
    }

    /// Processes the next event and checks the result. Returns whether there was one.
    fn step(&mut self) -> Result<bool, Violation> {
        let Some(((time, _), event)) = self.events.pop_first() else {
            return Ok(false);
        };
        self.time = time;
        self.note(|| format!("{event:?}"));
        self.process(event)?;
        self.observe_holders().map_err(Violation::Holders)?;
        self.check_runs()?;
        self.values.check()?;
        Ok(true)
    }

    /// Checks who relies on the lock.
    fn observe_holders(&mut self) -> Result<(), checker::Violation> {
        let time = self.time;
        let machines = self.machines.iter();
        let holds = machines.filter_map(|machine| machine.hold(time));
        let contenders = self.contenders.iter().flat_map(Contenders::holds);
        let mut holds = holds.chain(contenders).peekable();
        if holds.peek().is_none()
            && let Some(current) = self.holders.current()
        {
            // It may go on once the store has confirmed its lease, unless another client has held the lock meanwhile.
            let mut paused = self.machines.iter().filter_map(|it| it.unconfirmed(time));
            if paused.any(|hold| hold == current) {
                return Ok(());
            }
        }
        let holders = holds.map(|hold| (hold, hold.1.get()));
        self.holders.observe(holders)?;
        self.report.acquisitions = self.holders.acquisitions();
        Ok(())
    }

    fn process(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Request(request) => self.handle_request(request)?,
            Event::Message(machine, connection, message) => {
                self.receive(machine, connection, message);
            }
            Event::Timer { machine, number } => {
                let it = &self.machines[machine];
                if it.timer == number && !it.stopped {
                    self.with(machine, SimulatedClient::handle_timer);
                }
            }
            Event::Acquire { machine } => self.acquire(machine),
            Event::Start(start) => self.start_process(start),
            Event::Node(event) => self.handle_node_event(event)?,
            Event::Contention(event) => self.contend(event),
            Event::Crash { machine } => self.kill(machine, None),
            Event::Pause { machine } => self.machines[machine].stopped = true,
            Event::BreakDetected(machine, connection) => self.detect_break(machine, connection),
            Event::Reconnect { machine } => self.reconnect(machine),
            Event::Resume { machine } => self.resume(machine),
            Event::Restart { machine } => self.start(machine),
            Event::Fault { machine } => self.fault(machine),
            Event::StopStore => self.stop_store(),
            Event::ResumeStore => self.resume_store()?,
        }
        Ok(())
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.schedule_at(self.time + nanos(after), event);
    }

    fn schedule_at(&mut self, time: u64, event: Event) {
        self.scheduled += 1;
        let at = (time.max(self.time), self.scheduled);
        self.events.insert(at, event);
    }

    /// A random part of a duration.
    fn part(&mut self, duration: Duration) -> Duration {
        duration.mul_f64(self.rng.f64())
    }

    fn note(&self, line: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:>14?} {}", Duration::from_nanos(self.time), line());
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
