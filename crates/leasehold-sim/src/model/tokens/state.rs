//! A state: masters, attempts, and the messages between them.

use crate::model::masters::{self, ATTEMPTS, AttemptState, CellState, MasterState};

pub(super) type State<const N: usize> = masters::State<N, Master, Attempt, Rest>;

/// A master, and the messages to and from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Master {
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Admission {
    #[default]
    Admitted,
    /// It was restarted.
    KeptOut,
    /// It was kept out for long enough.
    Due,
}

/// The messages between an attempt and a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) acquire: Acquire,
    pub(super) write: Write,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Acquire {
    /// It was not sent, or has not run, or was refused.
    #[default]
    Open,
    /// It has run, and its reply is of no use any more.
    Spent,
    /// It was granted, with this token. The reply is under way.
    Granted(u8),
}

/// The request that sets the token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Write {
    #[default]
    None,
    /// It was sent, and the token is not stored.
    Sent,
    Stored,
}

/// One acquisition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) phase: Phase,
    /// Its token. Before it has one: the largest counter that it read, if it reads counters by themselves.
    pub(super) token: u8,
    /// The attempts that had succeeded before it began: one bit for each.
    pub(super) before: u8,
    /// The attempts that had owned a majority before it did, and may succeed or have.
    pub(super) owned_before: u8,
    /// Whether the fenced resource has accepted it.
    pub(super) wrote: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    /// How many faults may still happen: restarted masters, or repeated messages.
    pub(super) faults: u8,
    /// The largest counter that a restarted master has read from the others.
    pub(super) read: u8,
    /// The largest token that the fenced resource has accepted.
    pub(super) accepted: u8,
    /// The properties that were violated so far: one bit for each.
    pub(super) violated: u8,
}

impl<const N: usize> State<N> {
    pub(super) fn new(counters: [u8; N], faults: u8) -> Self {
        Self {
            masters: counters.map(|counter| Master {
                counter,
                ..Master::default()
            }),
            attempts: [Attempt::default(); ATTEMPTS],
            rest: Rest::from([faults, 0, 0, 0]),
        }
    }

    /// The attempts in these phases, one bit for each.
    pub(super) fn in_phases(&self, phases: &[Phase]) -> u8 {
        let attempts = self.attempts.iter().enumerate();
        let found = attempts.filter(|(_, attempt)| phases.contains(&attempt.phase));
        found.fold(0, |all, (at, _)| all | 1 << at)
    }
}

impl From<[u8; 4]> for Rest {
    fn from([faults, read, accepted, violated]: [u8; 4]) -> Self {
        Self {
            faults,
            read,
            accepted,
            violated,
        }
    }
}

impl From<Rest> for [u8; 4] {
    fn from(rest: Rest) -> Self {
        [rest.faults, rest.read, rest.accepted, rest.violated]
    }
}

impl MasterState for Master {
    type Cell = Cell;

    fn head(&self) -> [u8; 4] {
        let flags = u8::from(self.read) | u8::from(self.old) << 1;
        [self.hold, self.counter, self.admission as u8, flags]
    }

    fn cells(&self) -> &[Cell; ATTEMPTS] {
        &self.cells
    }

    fn new([hold, counter, admission, flags]: [u8; 4], cells: [Cell; ATTEMPTS]) -> Self {
        Self {
            hold,
            counter,
            admission: match admission {
                0 => Admission::Admitted,
                1 => Admission::KeptOut,
                _ => Admission::Due,
            },
            read: flags & 1 != 0,
            old: flags & 2 != 0,
            cells,
        }
    }
}

impl CellState for Cell {
    fn pack(self) -> u8 {
        let acquire = match self.acquire {
            Acquire::Open => 0,
            Acquire::Spent => 1,
            Acquire::Granted(first) => 2 + first,
        };
        acquire << 2 | self.write as u8
    }

    fn unpack(packed: u8) -> Self {
        Self {
            acquire: match packed >> 2 {
                0 => Acquire::Open,
                1 => Acquire::Spent,
                granted => Acquire::Granted(granted - 2),
            },
            write: match packed & 3 {
                0 => Write::None,
                1 => Write::Sent,
                _ => Write::Stored,
            },
        }
    }
}

impl AttemptState for Attempt {
    fn pack(self) -> [u8; 4] {
        let phase = self.phase as u8 | u8::from(self.wrote) << 7;
        [phase, self.token, self.before, self.owned_before]
    }

    fn unpack([phase, token, before, owned_before]: [u8; 4]) -> Self {
        Self {
            phase: match phase & 0x7f {
                0 => Phase::Idle,
                1 => Phase::Acquiring,
                2 => Phase::Writing,
                3 => Phase::Won,
                _ => Phase::Over,
            },
            token,
            before,
            owned_before,
            wrote: phase & 0x80 != 0,
        }
    }

    fn renamed(self, places: &[u8; ATTEMPTS]) -> Self {
        let rename = |set: u8| {
            let members = (0..ATTEMPTS).filter(|at| set & 1 << at != 0);
            members.fold(0, |all, at| all | 1 << places[at])
        };
        Self {
            before: rename(self.before),
            owned_before: rename(self.owned_before),
            ..self
        }
    }

    fn key(self) -> [u8; 4] {
        let [phase, token, before, owned_before] = self.pack();
        let [before, owned_before] = [before, owned_before].map(|set| set.count_ones() as u8);
        [phase, token, before, owned_before]
    }

    fn is_inactive(self) -> bool {
        self.phase == Phase::Idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unpacked_state_is_the_one_that_was_packed() {
        let cell = |acquire, write| Cell { acquire, write };
        let mut state = State::new([1, 0, 2], 1);
        state.masters[1] = Master {
            hold: 4,
            counter: 31,
            admission: Admission::Due,
            read: true,
            old: true,
            cells: [
                cell(Acquire::Granted(31), Write::Sent),
                cell(Acquire::Spent, Write::Stored),
                Cell::default(),
                cell(Acquire::Granted(0), Write::None),
            ],
        };
        let phases = [Phase::Acquiring, Phase::Writing, Phase::Won, Phase::Over];
        state.attempts = phases.map(|phase| Attempt {
            phase,
            token: 9,
            before: 0b101,
            owned_before: 0b1000,
            wrote: phase == Phase::Won,
        });
        state.rest = Rest::from([1, 3, 4, 5]);
        assert_eq!(state.pack().unpack(), state);
    }
}
