//! A state: masters, attempts, and the messages between them.

use crate::model::labels::{members, set};
use crate::model::masters::{self, ATTEMPTS, AttemptState, MasterState};

pub(super) type State<const N: usize> = masters::State<N, Master, Attempt, Rest>;

/// A master, and the messages to and from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Master {
    /// The attempt whose lease holds the lock, plus one.
    pub(super) hold: u8,
    /// The last token.
    pub(super) counter: u8,
    pub(super) admission: Admission,
    /// Whether the restarted master has read its counter.
    pub(super) read: bool,
    /// Whether its lease is from before a restart.
    pub(super) old: bool,
    pub(super) cells: [Cell; ATTEMPTS],
}

/// Whether a master may grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Admission {
    #[default]
    Admitted,
    /// It was restarted.
    KeptOut,
    /// It was kept out for long enough.
    Due,
}

/// The messages between an attempt and a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(super) acquire: Acquire,
    pub(super) write: Write,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Acquire {
    /// It was not sent, or has not run, or was refused.
    #[default]
    Open,
    /// It has run, and its reply is no longer of use.
    Spent,
    /// It was granted, with this token. The reply is under way.
    Granted(u8),
}

/// The request that sets the token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Write {
    #[default]
    None,
    /// It was sent, and the token is not stored.
    Sent,
    Stored,
}

/// One acquisition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Attempt {
    pub(super) phase: Phase,
    /// Its token. Before it has one: the largest counter that it read, if it reads counters by themselves.
    pub(super) token: u8,
    /// Its proposal. 0: none.
    pub(super) proposal: u8,
    /// Whether it began before a restart.
    pub(super) old: bool,
    /// Whether its deadline is over: the restarted master was kept out for a ttl since.
    pub(super) late: bool,
    /// Whether it has owned the lock.
    pub(super) owned: bool,
    /// The attempts that had succeeded before it began: one bit for each.
    pub(super) before: u8,
    /// The attempts that had owned the lock before it did, and may succeed or have.
    pub(super) owned_before: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Idle,
    /// In the first phase of the protocol.
    Acquiring,
    /// In the second.
    Writing,
    /// It uses its token, for any time.
    Won,
    Over,
}

/// The rest of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Rest {
    /// How many faults may still happen: restarted masters, or repeated messages.
    pub(super) faults: u8,
    /// The largest counter that a restarted master has read from the others.
    pub(super) read: u8,
    /// The properties that were violated so far: one bit for each.
    pub(super) violated: u16,
}

impl<const N: usize> State<N> {
    /// The attempts in these phases, one bit for each.
    pub(super) fn in_phases(&self, phases: &[Phase]) -> u8 {
        set(&self.attempts, |attempt| phases.contains(&attempt.phase))
    }

    /// The attempts that have owned the lock, and may succeed or have: one bit for each.
    pub(super) fn owners(&self) -> u8 {
        set(&self.attempts, |attempt| attempt.owned)
    }
}

impl MasterState for Master {
    type Cell = Cell;

    fn hold(&mut self) -> &mut u8 {
        &mut self.hold
    }

    fn cells(&mut self) -> &mut [Cell; ATTEMPTS] {
        &mut self.cells
    }
}

impl AttemptState for Attempt {
    fn renamed(self, places: &[u8; ATTEMPTS]) -> Self {
        let rename = |set: u8| members(set.into()).fold(0, |all, at| all | 1 << places[at]);
        Self {
            before: rename(self.before),
            owned_before: rename(self.owned_before),
            ..self
        }
    }
}
