//! All that there is at one moment.
//!
//! Times are counted from now, so a state that is the same but later is the same state.

use leasehold_core::watchdog::Registrations;

/// The most acquisitions, lives and nodes.
pub(super) const ACQUISITIONS: usize = 3;
pub(super) const RUNS: usize = 2;
pub(super) const NODES: usize = 2;
/// The most actions that are on their way and waited for.
pub(super) const IN_FLIGHT: usize = 4;
/// The most actions that are on their way and not waited for.
pub(super) const LATE: usize = 2;

/// The node that can see the client's processes.
pub(super) const HOST: usize = 0;

/// Who holds the lock in the store: an acquisition of the program's, or one of these.
pub(super) const NOBODY: u8 = 0xfe;
pub(super) const RIVAL: u8 = 0xff;

/// Ticks that never end.
pub(super) const UNLIMITED: u8 = u8::MAX;

/// A state. What nodes and registries know is in pools; here are its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Who holds the lock, and for how many ticks.
    pub(super) holder: u8,
    pub(super) remaining: u8,
    /// For how many ticks the rival relies on it.
    pub(super) rival: u8,
    /// Which run the program lives, from 0 on, and whether it still does.
    pub(super) run: u8,
    pub(super) main: bool,
    /// The child of the first run lives.
    pub(super) child: bool,
    pub(super) phase: Phase,
    /// How many ticks ago the last request was sent that the store confirmed.
    pub(super) age: u8,
    /// How many acquisitions there were, and in which lives.
    pub(super) acquired: u8,
    pub(super) runs: [u8; ACQUISITIONS],
    /// For how many ticks the last one may be renewed.
    pub(super) max_hold: u8,
    /// For how many ticks a lease holds the lock that nobody wants, since a message was heard.
    pub(super) unwanted: u8,
    /// One link for each run and node.
    pub(super) links: [[u32; NODES]; RUNS],
    /// What nodes know of each run, by number and one more. 0: nothing.
    pub(super) monitors: [[u32; NODES]; RUNS],
    /// Nodes that have always been in time, one bit for each.
    pub(super) timely: u8,
    /// Nodes that have been told to look after the current lease and have no reason not to, one bit for
    /// each; those whose last message of the client said that it was well; and how many ticks ago that was.
    pub(super) watched: u8,
    pub(super) healthy: u8,
    pub(super) silent: [u8; NODES],
    pub(super) in_flight: [InFlight; IN_FLIGHT],
    pub(super) late: [Late; LATE],
    /// How much may still happen.
    pub(super) ends: u8,
    pub(super) slow: u8,
    pub(super) stops: u8,
    pub(super) slack: u8,
    pub(super) lates: u8,
    /// What was broken on the way, one bit for each property.
    pub(super) violated: u8,
}

/// How the program stands with its last acquisition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// It is granted, and the answer is under way.
    Granted,
    Holding,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    Renew,
    Release,
}

/// An action that a node waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum InFlight {
    #[default]
    None,
    Some {
        node: u8,
        acquisition: u8,
        kind: Kind,
        /// How many ticks ago it was sent.
        age: u8,
        progress: Progress,
    },
}

/// How far an action is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Progress {
    Sent,
    /// The store has renewed. The answer is under way.
    Renewed,
    /// The lease does not hold the lock. The answer is under way.
    NotHeld,
}

/// An action that nobody waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Late {
    #[default]
    None,
    Some {
        acquisition: u8,
        kind: Kind,
    },
}

/// What is between a run of the program and a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) registrations: Registrations<()>,
    /// The client takes it for connected.
    pub(super) open: bool,
    /// But the node has ended it.
    pub(super) severed: bool,
    /// What is on its way to the node.
    pub(super) messages: Vec<Message>,
    /// The client has ended an earlier connection, and the node has not heard of that. What is on its way
    /// there.
    pub(super) closing: Option<Vec<Message>>,
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Message {
    Hello,
    Changes {
        batch: u64,
        /// Acquisitions, and for how many ticks they may be renewed.
        register: Vec<(u64, u8)>,
        unregister: Vec<u64>,
    },
    Heartbeat,
}

impl State {
    /// The last acquisition.
    pub(super) fn current(&self) -> u8 {
        self.acquired.saturating_sub(1)
    }

    /// Whether any process of a run lives.
    pub(super) fn is_living(&self, run: usize) -> bool {
        self.is_main_living(run) || (run == 0 && self.child)
    }

    pub(super) fn is_main_living(&self, run: usize) -> bool {
        self.main && usize::from(self.run) == run
    }

    pub(super) fn run_of(&self, acquisition: u8) -> usize {
        self.runs[usize::from(acquisition)].into()
    }

    /// Whether the program holds this one, or did when it died and remaining a child.
    pub(super) fn is_wanted(&self, acquisition: u8) -> bool {
        self.phase != Phase::Idle && acquisition == self.current()
    }

    pub(super) fn is_timely(&self, node: usize) -> bool {
        self.timely & 1 << node != 0
    }

    /// Adds an action, if there is room.
    pub(super) fn add_in_flight(&mut self, flight: InFlight) -> bool {
        let free = self.in_flight.iter_mut().find(|it| **it == InFlight::None);
        free.map(|free| *free = flight).is_some()
    }

    /// Nobody waits for an action any more, if that may still happen.
    pub(super) fn add_late(&mut self, acquisition: u8, kind: Kind) -> bool {
        let free = self.late.iter_mut().find(|it| **it == Late::None);
        let may = self.lates > 0 && free.is_some();
        if may {
            self.lates -= 1;
            let late = Late::Some { acquisition, kind };
            free.into_iter().for_each(|free| *free = late);
        }
        may
    }
}
