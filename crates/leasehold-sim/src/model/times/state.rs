//! All that there is at one moment: masters with their clocks, attempts, and messages.
//!
//! Times are counted from now, so a state that is the same but later is the same state.

use std::array;

/// The most attempts that a model can have.
pub(super) const ATTEMPTS: usize = 4;

/// A state as it is kept: packed, and in one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Packed<const N: usize> {
    masters: [u64; N],
    attempts: [u32; ATTEMPTS],
    faults: u8,
    won: u8,
}

/// A state as it is worked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State<const N: usize> {
    pub(super) masters: [Master; N],
    pub(super) attempts: [Attempt; ATTEMPTS],
    /// How many faults may still happen.
    pub(super) faults: u8,
    /// How many have held the lock, up to two.
    pub(super) won: u8,
}

/// A master, and the messages to and from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Master {
    /// The attempt whose lease holds the lock, plus one.
    pub(super) hold: u8,
    /// How many ticks that lasts.
    pub(super) left: u8,
    /// How many ticks its clock has gained.
    pub(super) gained: u8,
    /// It is not admitted: for how many ticks already, plus one.
    pub(super) out: u8,
    /// It has given out a token, or knows of one.
    pub(super) used: bool,
    /// Somebody has decided to admit it.
    pub(super) decided: bool,
    pub(super) cells: [Cell; ATTEMPTS],
}

/// What is under way between an attempt and a master.
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
    /// It was granted. The answer is under way.
    Granted,
    /// Its answer is of no use any more.
    Spent,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Renew {
    /// It was not sent, or has not run.
    #[default]
    Open,
    /// The master has renewed the lease. The answer is under way.
    Done,
    /// The master had nothing to renew. The answer is under way.
    Gone,
}

/// One acquisition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) stand: Stand,
    /// How many ticks ago it sent its first request, until it holds the lock.
    pub(super) age: u8,
    /// In how many ticks from now it relies on the lock, this one counted.
    pub(super) left: u8,
    /// How many ticks ago it sent the renewal that is under way, plus one.
    pub(super) renewing: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stand {
    #[default]
    Idle,
    Asking,
    /// A majority has taken its token. It has not heard of that.
    Taken,
    Holding,
    Over,
}

impl<const N: usize> State<N> {
    pub(super) fn new(faults: u8, unused: bool) -> Self {
        let master = Master {
            out: u8::from(unused),
            ..Master::default()
        };
        Self {
            masters: [master; N],
            attempts: [Attempt::default(); ATTEMPTS],
            faults,
            won: 0,
        }
    }

    pub(super) fn pack(&self) -> Packed<N> {
        Packed {
            masters: self.masters.map(Master::pack),
            attempts: self.attempts.map(Attempt::pack),
            faults: self.faults,
            won: self.won,
        }
    }
}

impl<const N: usize> Packed<N> {
    pub(super) fn unpack(&self) -> State<N> {
        State {
            masters: self.masters.map(Master::unpack),
            attempts: self.attempts.map(Attempt::unpack),
            faults: self.faults,
            won: self.won,
        }
    }

    /// Nobody can tell masters apart.
    pub(super) fn sort(&mut self) {
        self.masters.sort_unstable();
    }
}

impl Master {
    fn pack(self) -> u64 {
        let cells = self.cells.map(Cell::pack);
        let flags = u8::from(self.used) << 6 | u8::from(self.decided) << 7;
        let head = [self.hold, self.left, self.gained, self.out | flags];
        let bytes: [u8; 8] = array::from_fn(|at| match at.checked_sub(ATTEMPTS) {
            Some(cell) => cells[cell],
            None => head[at],
        });
        u64::from_le_bytes(bytes)
    }

    fn unpack(packed: u64) -> Self {
        let bytes = packed.to_le_bytes();
        let [hold, left, gained, out, ..] = bytes;
        Self {
            hold,
            left,
            gained,
            out: out & 0x3f,
            used: out & 0x40 != 0,
            decided: out & 0x80 != 0,
            cells: array::from_fn(|at| Cell::unpack(bytes[ATTEMPTS + at])),
        }
    }
}

impl Cell {
    pub(super) fn pack(self) -> u8 {
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
                1 => Renew::Done,
                _ => Renew::Gone,
            },
        }
    }
}

impl Attempt {
    pub(super) fn pack(self) -> u32 {
        u32::from_le_bytes([self.stand as u8, self.age, self.left, self.renewing])
    }

    fn unpack(packed: u32) -> Self {
        let [stand, age, left, renewing] = packed.to_le_bytes();
        Self {
            stand: match stand {
                0 => Stand::Idle,
                1 => Stand::Asking,
                2 => Stand::Taken,
                3 => Stand::Holding,
                _ => Stand::Over,
            },
            age,
            left,
            renewing,
        }
    }
}
