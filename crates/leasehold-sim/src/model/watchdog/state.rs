//! All that there is at one moment.
//!
//! Times are counted from now, so a state that is the same but later is the same state.

use leasehold_core::watchdog::Registrations;

/// The most acquisitions, lives and nodes.
pub(super) const ACQUISITIONS: usize = 3;
pub(super) const LIVES: usize = 2;
pub(super) const NODES: usize = 2;
/// The most deeds that are on their way and waited for.
pub(super) const FLIGHTS: usize = 4;
/// The most deeds that are on their way and not waited for.
pub(super) const LATE: usize = 2;

/// The node that can see the client's processes.
pub(super) const HOST: usize = 0;

/// Who holds the lock in the store: an acquisition of the program's, or one of these.
pub(super) const NOBODY: u8 = 0xfe;
pub(super) const RIVAL: u8 = 0xff;

/// Ticks that never end.
pub(super) const EVER: u8 = u8::MAX;

/// A state. What nodes and registries know is in pools; here are its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Who holds the lock, and for how many ticks.
    pub(super) holder: u8,
    pub(super) left: u8,
    /// For how many ticks the rival relies on it.
    pub(super) rival: u8,
    /// Which life the program lives, from 0 on, and whether it still does.
    pub(super) life: u8,
    pub(super) main: bool,
    /// The child of the first life lives.
    pub(super) child: bool,
    pub(super) stand: Stand,
    /// How many ticks ago the last request was sent that the store confirmed.
    pub(super) age: u8,
    /// How many acquisitions there were, and in which lives.
    pub(super) acquired: u8,
    pub(super) lives: [u8; ACQUISITIONS],
    /// For how many ticks the last one may be renewed.
    pub(super) keep: u8,
    /// For how many ticks a lease holds the lock that nobody wants, since a word was heard.
    pub(super) unwanted: u8,
    /// One link for each life and node.
    pub(super) links: [[u32; NODES]; LIVES],
    /// What nodes know of each life, by number and one more. 0: nothing.
    pub(super) charges: [[u32; NODES]; LIVES],
    /// Nodes that have always been in time, one bit for each.
    pub(super) timely: u8,
    /// Nodes that have been told to look after the current lease and have no reason not to, one bit for
    /// each; those whose last word of the client said that it was well; and how many ticks ago that was.
    pub(super) watched: u8,
    pub(super) sound: u8,
    pub(super) silent: [u8; NODES],
    pub(super) flights: [Flight; FLIGHTS],
    pub(super) late: [Late; LATE],
    /// How much may still happen.
    pub(super) ends: u8,
    pub(super) slow: u8,
    pub(super) stops: u8,
    pub(super) slack: u8,
    pub(super) lates: u8,
    /// What was broken on the way, one bit for each property.
    pub(super) broken: u8,
}

/// How the program stands with its last acquisition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Stand {
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

/// A deed that a node waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Flight {
    #[default]
    None,
    Some {
        node: u8,
        acquisition: u8,
        kind: Kind,
        /// How many ticks ago it was sent.
        age: u8,
        course: Course,
    },
}

/// How far a deed is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Course {
    Sent,
    /// The store has renewed. The answer is under way.
    Renewed,
    /// The lease does not hold the lock. The answer is under way.
    Over,
}

/// A deed that nobody waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Late {
    #[default]
    None,
    Some {
        acquisition: u8,
        kind: Kind,
    },
}

/// What is between a life of the program and a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) registry: Registrations<()>,
    /// The client takes it for connected.
    pub(super) open: bool,
    /// But the node has ended it.
    pub(super) severed: bool,
    /// What is on its way to the node.
    pub(super) words: Vec<Word>,
    /// The client has ended an earlier connection, and the node has not heard of that. What is on its way
    /// there.
    pub(super) before: Option<Vec<Word>>,
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Word {
    Hello,
    Changes {
        batch: u64,
        /// Acquisitions, and for how many ticks they may be renewed.
        register: Vec<(u64, u8)>,
        unregister: Vec<u64>,
    },
    Beat,
}

impl State {
    /// The last acquisition.
    pub(super) fn current(&self) -> u8 {
        self.acquired.saturating_sub(1)
    }

    /// Whether any process of a life lives.
    pub(super) fn lives(&self, life: usize) -> bool {
        self.main_lives(life) || (life == 0 && self.child)
    }

    pub(super) fn main_lives(&self, life: usize) -> bool {
        self.main && usize::from(self.life) == life
    }

    pub(super) fn life_of(&self, acquisition: u8) -> usize {
        self.lives[usize::from(acquisition)].into()
    }

    /// Whether the program holds this one, or did when it died and left a child.
    pub(super) fn is_wanted(&self, acquisition: u8) -> bool {
        self.stand != Stand::Idle && acquisition == self.current()
    }

    pub(super) fn is_timely(&self, node: usize) -> bool {
        self.timely & 1 << node != 0
    }

    /// Adds a deed, if there is room.
    pub(super) fn fly(&mut self, flight: Flight) -> bool {
        let free = self.flights.iter_mut().find(|it| **it == Flight::None);
        free.map(|free| *free = flight).is_some()
    }

    /// Nobody waits for a deed any more, if that may still happen.
    pub(super) fn fly_late(&mut self, acquisition: u8, kind: Kind) -> bool {
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
