//! A state: masters with their clocks, attempts, and messages.
//!
//! Times are relative, so two states that differ only in time are the same state.

use crate::model::masters::{self, ATTEMPTS, AttemptState, MasterState};

pub(super) type State<const N: usize> = masters::State<N, Master, Attempt, Rest>;

/// A master, and the messages to and from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Master {
    /// The attempt whose lease holds the lock, plus one.
    pub(super) hold: u8,
    /// For how many ticks it does.
    pub(super) remaining: u8,
    /// How many ticks its clock has gained.
    pub(super) gained: u8,
    /// Since how many ticks it is kept out, plus one. 0: it is admitted.
    pub(super) kept_out: u8,
    /// Whether it has given out a token, or knows of one.
    pub(super) used: bool,
    /// Whether a client has decided to admit it.
    pub(super) decided: bool,
    pub(super) cells: [Cell; ATTEMPTS],
}

/// The messages between an attempt and a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(super) acquire: Acquire,
    pub(super) renew: Renew,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Acquire {
    /// It was not sent, or has not run, or was refused.
    #[default]
    Open,
    /// It was granted. The reply is under way.
    Granted,
    /// Its reply is no longer of use.
    Spent,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Renew {
    /// It was not sent, or has not run.
    #[default]
    Open,
    /// The master has renewed the lease. The reply is under way.
    Renewed,
    /// The master had nothing to renew. The reply is under way.
    Lost,
}

/// One acquisition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Attempt {
    pub(super) phase: Phase,
    /// How many ticks ago it sent its first request, until it holds the lock.
    pub(super) age: u8,
    /// For how many ticks it relies on the lock, this one included.
    pub(super) remaining: u8,
    /// How many ticks ago it sent the renewal that is under way, plus one.
    pub(super) renewing: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Acquiring,
    /// A majority has stored its token. The replies are under way.
    Written,
    Holding,
    Over,
}

/// The rest of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Rest {
    /// How many faults may still happen.
    pub(super) faults: u8,
    /// How many have held the lock, up to two.
    pub(super) won: u8,
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

impl AttemptState for Attempt {}
