//! A state.
//!
//! Times are relative, so two states that differ only in time are the same state.

use leasehold_core::watchdog::NodeSession;

/// The most acquisitions, runs and nodes.
pub(super) const ACQUISITIONS: usize = 3;
pub(super) const RUNS: usize = 2;
pub(super) const NODES: usize = 2;
/// The most actions that nodes wait for.
pub(super) const IN_FLIGHT: usize = 4;
/// The most actions that nodes have given up.
pub(super) const LATE: usize = 2;

/// The node that observes the client's processes.
pub(super) const HOST: usize = 0;

/// The holder of a free lock, and the rival: all others are acquisitions of the program.
pub(super) const FREE: u8 = 0xfe;
pub(super) const RIVAL: u8 = 0xff;

/// Ticks without an end.
pub(super) const UNLIMITED: u8 = u8::MAX;

/// A state. Monitors and links are in pools, and have numbers here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The holder of the lock, and for how many ticks it holds it.
    pub(super) holder: u8,
    pub(super) remaining: u8,
    /// For how many ticks the rival relies on it.
    pub(super) rival: u8,
    /// The number of the program's run, and whether its first process lives.
    pub(super) run: u8,
    pub(super) main: bool,
    /// Whether the child of the first run lives.
    pub(super) child: bool,
    pub(super) phase: Phase,
    /// How many ticks ago the last request was sent that the store confirmed.
    pub(super) age: u8,
    /// How many acquisitions there were, and their runs.
    pub(super) acquired: u8,
    pub(super) runs: [u8; ACQUISITIONS],
    /// For how many ticks the last one may be renewed.
    pub(super) max_hold: u8,
    /// For how many ticks an unwanted lease has held the lock since the last message.
    pub(super) unwanted: u8,
    /// One link for each run and node.
    pub(super) links: [[u32; NODES]; RUNS],
    /// The monitors of each run, each by its number plus one. 0: none.
    pub(super) monitors: [[u32; NODES]; RUNS],
    /// The nodes that have always been timely, one bit for each.
    pub(super) timely: u8,
    /// The nodes that have the current lease registered and no reason to give it up, one bit for each; those whose
    /// last message is from a time when it was renewed; and how many ticks ago that message came.
    pub(super) watched: u8,
    pub(super) healthy: u8,
    pub(super) silent: [u8; NODES],
    pub(super) in_flight: [Option<InFlight>; IN_FLIGHT],
    /// The actions that nodes have given up.
    pub(super) late: [Option<(u8, Kind)>; LATE],
    /// How many faults may still happen.
    pub(super) lost_connections: u8,
    pub(super) slow_nodes: u8,
    pub(super) node_restarts: u8,
    pub(super) failed_actions: u8,
    pub(super) late_actions: u8,
    /// The properties that steps have violated so far.
    pub(super) violated: u16,
}

/// The phase of the last acquisition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// It is granted, and the reply is under way.
    Granted,
    Holding,
}

/// The kind of an action of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    Renew,
    Release,
}

/// An action that a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct InFlight {
    pub(super) node: u8,
    pub(super) acquisition: u8,
    pub(super) kind: Kind,
    /// How many ticks ago it was sent.
    pub(super) age: u8,
    /// Whether the store has renewed the lease, once it has applied the action. The reply is under way.
    pub(super) renewed: Option<bool>,
}

impl InFlight {
    pub(super) fn is_sent_by(&self, node: usize) -> bool {
        usize::from(self.node) == node
    }
}

/// The connection between a run of the program and a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) session: NodeSession<()>,
    /// Whether it is open on the client's side.
    pub(super) open: bool,
    /// Whether the node has closed it.
    pub(super) severed: bool,
    /// The messages on their way to the node.
    pub(super) messages: Vec<Message>,
    /// The messages of an earlier connection that the client has closed, which the node has not noticed.
    pub(super) closing: Option<Vec<Message>>,
}

/// A message of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Message {
    Hello,
    /// The number of a batch, the acquisitions that it registers, each with the ticks for which it may be renewed, and those
    /// that it unregisters.
    Changes(u64, Vec<(u64, u8)>, Vec<u64>),
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

    /// Whether the program holds this one, or its child does.
    pub(super) fn is_wanted(&self, acquisition: u8) -> bool {
        self.phase != Phase::Idle && acquisition == self.current()
    }

    pub(super) fn is_timely(&self, node: usize) -> bool {
        self.timely & 1 << node != 0
    }

    /// Gives up an action, if that may still happen. It may come late.
    pub(super) fn add_late(&mut self, acquisition: u8, kind: Kind) -> bool {
        let free = self.late.iter_mut().find(|late| late.is_none());
        let Some(free) = free.filter(|_| self.late_actions > 0) else {
            return false;
        };
        *free = Some((acquisition, kind));
        self.late_actions -= 1;
        true
    }
}
