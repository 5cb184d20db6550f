//! All that there is at one moment: masters, attempts, and the messages between them.

use std::array;

/// The most attempts that a model can have.
pub(super) const ATTEMPTS: usize = 4;

/// A state as it is kept: packed, and in one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Packed<const N: usize> {
    masters: [u64; N],
    attempts: [u32; ATTEMPTS],
    rest: u32,
}

/// A state as it is worked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State<const N: usize> {
    pub(super) masters: [Master; N],
    pub(super) attempts: [Attempt; ATTEMPTS],
    /// How many faults may still happen: masters that are started again, or messages that run twice.
    pub(super) faults: u8,
    /// The largest counter that a master that was started again has read from the others.
    pub(super) read: u8,
    /// The largest token that the fenced resource has seen.
    pub(super) seen: u8,
    /// What was broken on the way here: one bit for each property.
    pub(super) broken: u8,
}

/// A master, and the messages to and from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Master {
    /// The attempt whose lease holds the lock, plus one.
    pub(super) hold: u8,
    /// The last token.
    pub(super) counter: u8,
    pub(super) stage: Stage,
    /// Its counter was read by the one that was started again.
    pub(super) read: bool,
    /// It was held already when a master was started again.
    pub(super) old: bool,
    pub(super) cells: [Cell; ATTEMPTS],
}

/// What a master may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Admitted,
    /// It was started again.
    Out,
    /// And was kept out for long enough.
    Open,
}

/// What is under way between an attempt and a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) acquire: Acquire,
    pub(super) fence: Fence,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Acquire {
    /// It was not sent, or has not run, or was refused.
    #[default]
    Open,
    /// It has run, and its answer is of no use any more.
    Spent,
    /// It was granted, with this token. The answer is under way.
    Granted(u8),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fence {
    #[default]
    None,
    /// The token was sent, and has not been taken.
    Sent,
    Taken,
}

/// One acquisition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) stand: Stand,
    /// Its token. While it asks: the largest counter that it read before, if it reads by itself.
    pub(super) token: u8,
    /// Who had succeeded before it began: one bit for each attempt.
    pub(super) before: u8,
    /// Who had owned a majority before it did, and may succeed or has.
    pub(super) owned_before: u8,
    /// The fenced resource has accepted it.
    pub(super) wrote: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stand {
    #[default]
    Idle,
    /// In the first phase.
    Asking,
    /// In the second.
    Writing,
    /// It uses its token, and may do so for ever.
    Won,
    Over,
}

impl<const N: usize> State<N> {
    pub(super) fn new(counters: [u8; N], faults: u8) -> Self {
        Self {
            masters: counters.map(|counter| Master {
                counter,
                ..Master::default()
            }),
            attempts: [Attempt::default(); ATTEMPTS],
            faults,
            read: 0,
            seen: 0,
            broken: 0,
        }
    }

    /// The attempts that stand so, one bit for each.
    pub(super) fn standing(&self, stands: &[Stand]) -> u8 {
        let attempts = self.attempts.iter().enumerate();
        let standing = attempts.filter(|(_, attempt)| stands.contains(&attempt.stand));
        standing.fold(0, |all, (at, _)| all | 1 << at)
    }

    pub(super) fn pack(&self) -> Packed<N> {
        let rest = [self.faults, self.read, self.seen, self.broken];
        Packed {
            masters: self.masters.map(|master| master.pack()),
            attempts: self.attempts.map(|attempt| attempt.pack()),
            rest: u32::from_le_bytes(rest),
        }
    }
}

impl<const N: usize> Packed<N> {
    pub(super) fn unpack(&self) -> State<N> {
        let [faults, read, seen, broken] = self.rest.to_le_bytes();
        State {
            masters: self.masters.map(Master::unpack),
            attempts: self.attempts.map(Attempt::unpack),
            faults,
            read,
            seen,
            broken,
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
        let flags = self.stage as u8 | u8::from(self.read) << 2 | u8::from(self.old) << 3;
        let head = [self.hold, self.counter, flags, 0];
        let bytes: [u8; 8] = array::from_fn(|at| match at.checked_sub(ATTEMPTS) {
            Some(cell) => cells[cell],
            None => head[at],
        });
        u64::from_le_bytes(bytes)
    }

    fn unpack(packed: u64) -> Self {
        let bytes = packed.to_le_bytes();
        let [hold, counter, flags, ..] = bytes;
        Self {
            hold,
            counter,
            stage: match flags & 3 {
                0 => Stage::Admitted,
                1 => Stage::Out,
                _ => Stage::Open,
            },
            read: flags & 4 != 0,
            old: flags & 8 != 0,
            cells: array::from_fn(|at| Cell::unpack(bytes[ATTEMPTS + at])),
        }
    }
}

impl Cell {
    pub(super) fn pack(self) -> u8 {
        let acquire = match self.acquire {
            Acquire::Open => 0,
            Acquire::Spent => 1,
            Acquire::Granted(first) => 2 + first,
        };
        acquire << 2 | self.fence as u8
    }

    fn unpack(packed: u8) -> Self {
        Self {
            acquire: match packed >> 2 {
                0 => Acquire::Open,
                1 => Acquire::Spent,
                granted => Acquire::Granted(granted - 2),
            },
            fence: match packed & 3 {
                0 => Fence::None,
                1 => Fence::Sent,
                _ => Fence::Taken,
            },
        }
    }
}

impl Attempt {
    fn pack(self) -> u32 {
        let stand = self.stand as u8 | u8::from(self.wrote) << 7;
        u32::from_le_bytes([stand, self.token, self.before, self.owned_before])
    }

    fn unpack(packed: u32) -> Self {
        let [stand, token, before, owned_before] = packed.to_le_bytes();
        Self {
            stand: match stand & 0x7f {
                0 => Stand::Idle,
                1 => Stand::Asking,
                2 => Stand::Writing,
                3 => Stand::Won,
                _ => Stand::Over,
            },
            token,
            before,
            owned_before,
            wrote: stand & 0x80 != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_as_it_was() {
        let mut state = State::new([1, 0, 2], 1);
        state.masters[1] = Master {
            hold: 4,
            counter: 31,
            stage: Stage::Open,
            read: true,
            old: true,
            cells: [
                Cell {
                    acquire: Acquire::Granted(31),
                    fence: Fence::Sent,
                },
                Cell {
                    acquire: Acquire::Spent,
                    fence: Fence::Taken,
                },
                Cell::default(),
                Cell {
                    acquire: Acquire::Granted(0),
                    fence: Fence::None,
                },
            ],
        };
        let stands = [Stand::Asking, Stand::Writing, Stand::Won, Stand::Over];
        state.attempts = stands.map(|stand| Attempt {
            stand,
            token: 9,
            before: 0b101,
            owned_before: 0b1000,
            wrote: stand == Stand::Won,
        });
        (state.read, state.seen, state.broken) = (3, 4, 5);
        assert_eq!(state.pack().unpack(), state);
    }
}
