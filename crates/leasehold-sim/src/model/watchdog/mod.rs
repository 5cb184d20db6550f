//! The watchdog: a client's program that may pause, die and run again, a rival, and nodes that keep its lease
//! alive or release it.
//!
//! Time passes in ticks of a second. The client may act at any time: one that does not was paused. A timely node
//! acts within a tick. A slow one acts at any time, or is restarted without its data. Messages on one
//! connection are in order. Actions reach the store in any order, and late ones at any time.
//!
//! `ClientMonitor` and `Registrations` are the ones that ship. A state has only their numbers in a pool. Their
//! clocks are stopped, and their instants move back by a tick when time passes.

mod checks;
mod client;
mod node;
mod pool;
mod rule;
mod setup;
mod state;
mod steps;

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold_core::watchdog::ClientMonitor;

use self::checks::Violated;
use self::pool::Pool;
use self::setup::MAX_PAUSE;
pub use self::setup::{DeathProof, Guard, Nodes, Renewal, Restart, Rules, Setup};
pub use self::state::State;
use self::state::{
    ACQUISITIONS, FREE, HOST, IN_FLIGHT, InFlight, LATE, Late, Link, NODES, Phase, RUNS, UNLIMITED,
};
pub use self::steps::Milestone;
use super::explore::{Model, Property};

/// A client's program, a rival, a store, and nodes.
#[derive(Debug)]
pub struct Watchdog {
    setup: Setup,
    monitors: Pool<ClientMonitor<()>>,
    links: Pool<Link>,
    /// The milestones that were reached, one bit for each.
    milestones: AtomicU32,
}

impl Watchdog {
    /// A model of this setup.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            monitors: Pool::new(),
            links: Pool::new(),
            milestones: AtomicU32::new(0),
        }
    }

    fn nodes(&self) -> impl Iterator<Item = usize> + use<> {
        match self.setup.nodes {
            Nodes::Host => 0..1,
            Nodes::Remote => 1..2,
            Nodes::Both => 0..2,
        }
    }

    fn label(&self, node: usize) -> &'static str {
        match node {
            HOST => "the node on the host",
            _ => "the remote node",
        }
    }

    fn monitor(&self, state: &State, run: usize, node: usize) -> Option<ClientMonitor<()>> {
        let number = state.monitors[run][node].checked_sub(1)?;
        Some(self.monitors.get(number))
    }

    fn put_monitor(
        &self,
        state: &mut State,
        run: usize,
        node: usize,
        monitor: Option<ClientMonitor<()>>,
    ) {
        let number = monitor.map(|monitor| 1 + self.monitors.number(monitor));
        state.monitors[run][node] = number.unwrap_or(0);
    }

    fn link(&self, state: &State, run: usize, node: usize) -> Link {
        self.links.get(state.links[run][node])
    }

    fn put_link(&self, state: &mut State, run: usize, node: usize, link: Link) {
        state.links[run][node] = self.links.number(link);
    }
}

impl Model for Watchdog {
    type State = State;

    fn initial(&self) -> Vec<State> {
        let link = self.links.number(Link::default());
        vec![State {
            holder: FREE,
            remaining: 0,
            rival: 0,
            run: 0,
            main: true,
            child: self.setup.child,
            phase: Phase::Idle,
            age: 0,
            acquired: 0,
            runs: [0; ACQUISITIONS],
            max_hold: UNLIMITED,
            unwanted: 0,
            links: [[link; NODES]; RUNS],
            monitors: [[0; NODES]; RUNS],
            timely: u8::MAX,
            watched: 0,
            healthy: 0,
            silent: [MAX_PAUSE; NODES],
            in_flight: [InFlight::None; IN_FLIGHT],
            late: [Late::None; LATE],
            ends: self.setup.ends,
            slow: self.setup.slow,
            stops: self.setup.stops,
            slack: self.setup.slack,
            lates: self.setup.late,
            violated: 0,
        }]
    }

    fn steps(&self, state: &State, take: &mut dyn FnMut(&dyn fmt::Display, State)) {
        self.all_steps(&self.canonical(*state), take);
    }

    fn canonical(&self, state: State) -> State {
        let mut state = state;
        self.reduce(&mut state);
        state
    }

    fn properties(&self) -> Vec<Property> {
        vec![
            Property::Exclusion,
            Property::Living,
            Property::Own,
            Property::Final,
            Property::Kept,
            Property::Bounded,
            Property::Reported,
            Property::Free,
        ]
    }

    fn violates(&self, state: &State, property: Property) -> bool {
        let found = |what: Violated| state.violated & what as u8 != 0;
        match property {
            Property::Exclusion => self.is_shared(state),
            Property::Living => found(Violated::Living),
            Property::Own => found(Violated::Foreign),
            Property::Final => found(Violated::Revived),
            Property::Kept => self.is_dropped(state),
            Property::Bounded => found(Violated::Longer),
            Property::Reported => self.is_misreported(state),
            _ => found(Violated::Stuck) || self.is_stuck(state),
        }
    }

    fn successes(&self, state: &State) -> usize {
        usize::from(state.acquired) + usize::from(state.rival > 0)
    }

    fn reached(&self) -> u32 {
        self.milestones.load(Ordering::Relaxed)
    }
}
