//! A state: masters with their clocks, attempts, and messages.
//!
//! Times are relative, so two states that differ only in time are the same state.

use crate::model::masters::{self, ATTEMPTS, AttemptState, CellState, MasterState};

pub(super) type State<const N: usize> = masters::State<N, Master, Attempt, Rest>;

/// A master, and the messages to and from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Master {
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) acquire: Acquire,
    pub(super) renew: Renew,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Acquire {
    /// It was not sent, or has not run, or was refused.
    #[default]
    Open,
    /// It was granted. The reply is under way.
    Granted,
    /// Its reply is of no use any more.
    Spent,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Renew {
    /// It was not sent, or has not run.
    #[default]
    Open,
    /// The master has renewed the lease. The reply is under way.
    Renewed,
    /// The master had nothing to renew. The reply is under way.
    Lost,
}

/// One acquisition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) phase: Phase,
    /// How many ticks ago it sent its first request, until it holds the lock.
    pub(super) age: u8,
    /// For how many ticks it relies on the lock, this one included.
    pub(super) remaining: u8,
    /// How many ticks ago it sent the renewal that is under way, plus one.
    pub(super) renewing: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Idle,
    Acquiring,
    /// A majority has stored its token. The replies are under way.
    Written,
    Holding,
    Over,
}

/// The rest of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    /// How many faults may still happen.
    pub(super) faults: u8,
    /// How many have held the lock, up to two.
    pub(super) won: u8,
}

impl<const N: usize> State<N> {
    pub(super) fn new(faults: u8, unused: bool) -> Self {
        let master = Master {
            kept_out: u8::from(unused),
            ..Master::default()
        };
        Self {
            masters: [master; N],
            attempts: [Attempt::default(); ATTEMPTS],
            rest: Rest { faults, won: 0 },
        }
    }
}

impl From<[u8; 4]> for Rest {
    fn from([faults, won, ..]: [u8; 4]) -> Self {
        Self { faults, won }
    }
}

impl From<Rest> for [u8; 4] {
    fn from(rest: Rest) -> Self {
        [rest.faults, rest.won, 0, 0]
    }
}

impl MasterState for Master {
    type Cell = Cell;

    fn head(&self) -> [u8; 4] {
        let flags = u8::from(self.used) << 6 | u8::from(self.decided) << 7;
        let kept_out = self.kept_out | flags;
        [self.hold, self.remaining, self.gained, kept_out]
    }

    fn cells(&self) -> &[Cell; ATTEMPTS] {
        &self.cells
    }

    fn new([hold, remaining, gained, kept_out]: [u8; 4], cells: [Cell; ATTEMPTS]) -> Self {
        Self {
            hold,
            remaining,
            gained,
            kept_out: kept_out & 0x3f,
            used: kept_out & 0x40 != 0,
            decided: kept_out & 0x80 != 0,
            cells,
        }
    }
}

impl CellState for Cell {
    fn pack(self) -> u8 {
        (self.acquire as u8) << 2 | self.renew as u8
    }

    fn unpack(packed: u8) -> Self {
        Self {
            acquire: match packed >> 2 {
                0 => Acquire::Open,
                1 => Acquire::Granted,
                _ => Acquire::Spent,
            },
            renew: match packed & 3 {
                0 => Renew::Open,
                1 => Renew::Renewed,
                _ => Renew::Lost,
            },
        }
    }
}

impl AttemptState for Attempt {
    fn pack(self) -> [u8; 4] {
        [self.phase as u8, self.age, self.remaining, self.renewing]
    }

    fn unpack([phase, age, remaining, renewing]: [u8; 4]) -> Self {
        Self {
            phase: match phase {
                0 => Phase::Idle,
                1 => Phase::Acquiring,
                2 => Phase::Written,
                3 => Phase::Holding,
                _ => Phase::Over,
            },
            age,
            remaining,
            renewing,
        }
    }

    fn renamed(self, _places: &[u8; ATTEMPTS]) -> Self {
        self
    }

    fn key(self) -> [u8; 4] {
        self.pack()
    }

    fn is_inactive(self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Over)
    }
}
