//! The watchdog: a client's program that may pause, die and run again, a rival, and nodes that keep its lease
//! alive or release it.
//!
//! Time passes in ticks of a second. The client may act at any time: one that does not was paused. A timely node
//! acts within a tick. A slow one acts at any time, or is restarted without its data. Messages on one
//! connection are in order. Actions reach the store in any order, and late ones at any time.
//!
//! `ClientMonitor` and `NodeSession` are the ones that ship. A state has only their numbers in a pool. Their
//! clocks are stopped, and their instants move back by a tick when time passes.

mod client;
mod node;
mod rule;
mod setup;
mod state;
mod steps;

use std::cell::RefCell;

use foldhash::fast::FixedState;
use indexmap::IndexSet;
use leasehold_core::watchdog::ClientMonitor;

use self::setup::MAX_PAUSE;
pub(crate) use self::setup::{DeathProof, Nodes, ReleaseCondition, Renewal, Restart, Setup};
pub(crate) use self::state::State;
use self::state::{FREE, HOST, Link, NODES, RUNS, UNLIMITED};
use super::explore::{Model, Property, Take};

/// The monitor of one client at one node.
type Monitor = ClientMonitor<()>;

/// Values that states refer to by index, because they are too large to copy.
type Pool<T> = RefCell<IndexSet<T, FixedState>>;

/// A client's program, a rival, a store, and nodes.
#[derive(Debug)]
pub(crate) struct Watchdog {
    setup: Setup,
    monitors: Pool<Monitor>,
    links: Pool<Link>,
}

impl Watchdog {
    /// A model of this setup.
    #[must_use]
    pub(crate) fn new(setup: Setup) -> Self {
        Self {
            setup,
            monitors: Pool::default(),
            links: Pool::default(),
        }
    }

    fn nodes(&self) -> impl Iterator<Item = usize> + use<> {
        match self.setup.nodes {
            Nodes::Host => 0..1,
            Nodes::Remote => 1..2,
            Nodes::Both => 0..2,
        }
    }

    fn monitor(&self, state: &State, run: usize, node: usize) -> Option<Monitor> {
        let index = state.monitors[run][node].checked_sub(1)?;
        Some(self.monitors.borrow()[index as usize].clone())
    }

    fn put_monitor(&self, state: &mut State, run: usize, node: usize, monitor: Option<Monitor>) {
        let index = monitor.map(|monitor| self.monitors.borrow_mut().insert_full(monitor).0);
        state.monitors[run][node] = index.map_or(0, |index| 1 + index as u32);
    }

    fn link(&self, state: &State, run: usize, node: usize) -> Link {
        self.links.borrow()[state.links[run][node] as usize].clone()
    }

    fn put_link(&self, state: &mut State, run: usize, node: usize, link: Link) {
        state.links[run][node] = self.links.borrow_mut().insert_full(link).0 as u32;
    }
}

impl Model for Watchdog {
    type State = State;

    fn initial(&self) -> Vec<State> {
        let link = self.links.borrow_mut().insert_full(Link::default()).0 as u32;
        vec![State {
            holder: FREE,
            main: true,
            child: self.setup.child,
            max_hold: UNLIMITED,
            links: [[link; NODES]; RUNS],
            timely: u8::MAX,
            silent: [MAX_PAUSE; NODES],
            lost_connections: self.setup.lost_connections,
            slow_nodes: self.setup.slow_nodes,
            node_restarts: self.setup.node_restarts,
            failed_actions: self.setup.failed_actions,
            late_actions: self.setup.late_actions,
            ..State::default()
        }]
    }

    fn steps(&self, state: &State, take: Take<'_, State>) {
        self.all_steps(&self.canonical(*state), take);
    }

    fn canonical(&self, state: State) -> State {
        let mut state = state;
        self.reduce(&mut state);
        state
    }

    fn violations(&self, state: &State) -> Vec<Property> {
        use Property::{Bounded, Exclusion, Final, Free, Kept, Living, Own, Reported};
        let is_violated = |property: &Property| match property {
            Exclusion => self.is_shared(state),
            Kept => self.is_dropped(state),
            Reported => self.is_misreported(state),
            _ => state.violated & property.bit() != 0 || *property == Free && self.is_stuck(state),
        };
        let all = [Exclusion, Living, Own, Final, Kept, Bounded, Reported, Free];
        all.into_iter().filter(is_violated).collect()
    }

    fn successes(&self, state: &State) -> usize {
        usize::from(state.acquired) + usize::from(state.rival > 0)
    }
}

fn label(node: usize) -> &'static str {
    match node {
        HOST => "the node on the host",
        _ => "the remote node",
    }
}
