//! The watchdog: a client's program that may pause, die and run again, a rival, and nodes that keep a
//! lease alive for it or release it.
//!
//! Time goes in ticks of a second. Nothing forces the client to do anything: whoever does nothing for a
//! while was paused. A node that is in time does within a tick what it has to do; one that is slow does
//! it whenever it likes, or is killed and knows nothing any more. What is said on one connection keeps
//! its order; deeds at the store come in any, and late ones at any time.
//!
//! `ClientMonitor` and `Registrations` are the ones that ship, and they are never taken apart: a state has their
//! numbers. Their clocks stand still, and what they remember goes back by a tick where time passes.

mod client;
mod judge;
mod node;
mod pool;
mod rule;
mod setup;
mod state;
mod steps;

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold_core::watchdog::ClientMonitor;

use self::judge::Broken;
use self::pool::Pool;
use self::setup::MAX_PAUSE;
pub use self::setup::{Guard, Nodes, Renewal, Restart, Rules, Setup, Verdict};
pub use self::state::State;
use self::state::{
    ACQUISITIONS, EVER, FLIGHTS, Flight, HOST, LATE, LIVES, Late, Link, NOBODY, NODES, Stand,
};
pub use self::steps::Mark;
use super::explore::{Model, Property};

/// A client's program, a rival, a store, and nodes.
#[derive(Debug)]
pub struct Watchdog {
    setup: Setup,
    charges: Pool<ClientMonitor<()>>,
    links: Pool<Link>,
    /// What was reached.
    marks: AtomicU32,
}

impl Watchdog {
    /// A model of this setup.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            charges: Pool::new(),
            links: Pool::new(),
            marks: AtomicU32::new(0),
        }
    }

    fn nodes(&self) -> impl Iterator<Item = usize> + use<> {
        match self.setup.nodes {
            Nodes::Host => 0..1,
            Nodes::Remote => 1..2,
            Nodes::Both => 0..2,
        }
    }

    fn place(&self, node: usize) -> &'static str {
        match node {
            HOST => "the node on the host",
            _ => "the remote node",
        }
    }

    fn charge(&self, state: &State, life: usize, node: usize) -> Option<ClientMonitor<()>> {
        let number = state.charges[life][node].checked_sub(1)?;
        Some(self.charges.get(number))
    }

    fn put_charge(
        &self,
        state: &mut State,
        life: usize,
        node: usize,
        charge: Option<ClientMonitor<()>>,
    ) {
        let number = charge.map(|charge| 1 + self.charges.number(charge));
        state.charges[life][node] = number.unwrap_or(0);
    }

    fn link(&self, state: &State, life: usize, node: usize) -> Link {
        self.links.get(state.links[life][node])
    }

    fn put_link(&self, state: &mut State, life: usize, node: usize, link: Link) {
        state.links[life][node] = self.links.number(link);
    }
}

impl Model for Watchdog {
    type State = State;

    fn initial(&self) -> Vec<State> {
        let link = self.links.number(Link::default());
        vec![State {
            holder: NOBODY,
            left: 0,
            rival: 0,
            life: 0,
            main: true,
            child: self.setup.child,
            stand: Stand::Idle,
            age: 0,
            acquired: 0,
            lives: [0; ACQUISITIONS],
            keep: EVER,
            unwanted: 0,
            links: [[link; NODES]; LIVES],
            charges: [[0; NODES]; LIVES],
            timely: u8::MAX,
            watched: 0,
            sound: 0,
            silent: [MAX_PAUSE; NODES],
            flights: [Flight::None; FLIGHTS],
            late: [Late::None; LATE],
            ends: self.setup.ends,
            slow: self.setup.slow,
            stops: self.setup.stops,
            slack: self.setup.slack,
            lates: self.setup.late,
            broken: 0,
        }]
    }

    fn steps(&self, state: &State, take: &mut dyn FnMut(&dyn fmt::Display, State)) {
        self.all_steps(&self.normal(*state), take);
    }

    fn normal(&self, state: State) -> State {
        let mut state = state;
        self.forget_past(&mut state);
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
            Property::Told,
            Property::Free,
        ]
    }

    fn breaks(&self, state: &State, property: Property) -> bool {
        let broken = |what: Broken| state.broken & what as u8 != 0;
        match property {
            Property::Exclusion => self.is_shared(state),
            Property::Living => broken(Broken::Living),
            Property::Own => broken(Broken::Foreign),
            Property::Final => broken(Broken::Revived),
            Property::Kept => self.is_dropped(state),
            Property::Bounded => broken(Broken::Longer),
            Property::Told => self.is_promised_falsely(state),
            _ => broken(Broken::Stuck) || self.is_stuck(state),
        }
    }

    fn successes(&self, state: &State) -> usize {
        usize::from(state.acquired) + usize::from(state.rival > 0)
    }

    fn reached(&self) -> u32 {
        self.marks.load(Ordering::Relaxed)
    }
}
