//! Sees to it that the lock did what a lock is for, while its cost is measured.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::clock::Moment;

/// How many turns a process remembers. Only the comparison with other processes needs them, and
/// that many are enough for it.
const TURNS_MAX: usize = 1 << 17;

/// Watches the holders of some locks in this process.
#[derive(Debug)]
pub(super) struct Witness {
    locks: Vec<Lock>,
    overlaps: AtomicU64,
    token_faults: AtomicU64,
    /// Of a single lock only.
    turns: Mutex<Vec<Turn>>,
}

#[derive(Debug, Default)]
struct Lock {
    inside: AtomicBool,
    last_token: AtomicU64,
}

/// What one process tells of its holders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Testimony {
    /// How often one entered while another was in.
    pub(super) overlaps: u64,
    /// How often a token was not larger than the one before.
    pub(super) token_faults: u64,
    /// Its turns at the lock, in their order; of a single lock only.
    pub(super) turns: Vec<Turn>,
}

/// Holds that followed each other without a gap in their tokens, so that nobody else can have had
/// the lock between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Turn {
    /// Its first token and its last.
    pub(super) tokens: (u64, u64),
    /// From when the first holder had the lock until the last was about to give it back.
    pub(super) span: (Moment, Moment),
}

impl Witness {
    pub(super) fn new(locks: u32) -> Self {
        Self {
            locks: (0..locks).map(|_| Lock::default()).collect(),
            overlaps: AtomicU64::new(0),
            token_faults: AtomicU64::new(0),
            turns: Mutex::default(),
        }
    }

    /// Somebody has this lock.
    pub(super) fn enter(&self, lock: usize, token: u64) {
        let lock = &self.locks[lock];
        if lock.inside.swap(true, Ordering::AcqRel) {
            self.overlaps.fetch_add(1, Ordering::Relaxed);
        }
        if lock.last_token.swap(token, Ordering::Relaxed) >= token {
            self.token_faults.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Who had it from `begin` to `end` is about to give it back.
    pub(super) fn leave(&self, lock: usize, token: u64, begin: Moment, end: Moment) {
        if self.locks.len() == 1 {
            self.add_to_turns(token, begin, end);
        }
        self.locks[lock].inside.store(false, Ordering::Release);
    }

    fn add_to_turns(&self, token: u64, begin: Moment, end: Moment) {
        // Only holders come here, so nobody ever waits.
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.last_mut()
            && turn.tokens.1 + 1 == token
        {
            turn.tokens.1 = token;
            turn.span.1 = end;
        } else if turns.len() < TURNS_MAX {
            turns.push(Turn {
                tokens: (token, token),
                span: (begin, end),
            });
        }
    }

    /// All that was seen. The turns are forgotten.
    pub(super) fn tell(&self) -> Testimony {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Testimony {
            overlaps: self.overlaps.load(Ordering::Relaxed),
            token_faults: self.token_faults.load(Ordering::Relaxed),
            turns: std::mem::take(&mut turns),
        }
    }
}

impl Testimony {
    /// What several processes saw at one lock, with what only shows when they are put side by side.
    pub(super) fn together<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut whole = Self::default();
        for one in all {
            whole.overlaps += one.overlaps;
            whole.token_faults += one.token_faults;
            whole.turns.extend_from_slice(&one.turns);
        }
        whole.turns.sort_by_key(|turn| turn.tokens);
        for pair in whole.turns.windows(2) {
            let [before, after] = pair else { continue };
            let again = before.tokens.1 >= after.tokens.0;
            let backwards = before.span.0 > after.span.1;
            whole.token_faults += u64::from(again || backwards);
            let at_once = before.span.1 > after.span.0 && after.span.1 > before.span.0;
            whole.overlaps += u64::from(at_once);
        }
        whole
    }

    pub(super) fn held(&self) -> bool {
        self.overlaps == 0 && self.token_faults == 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Each hold is a token, and when it began and ended.
    fn seen(holds: &[(u64, u64, u64)]) -> Testimony {
        let witness = Witness::new(1);
        let at = |micros| Moment::default().after(Duration::from_micros(micros));
        for &(token, begin, end) in holds {
            witness.enter(0, token);
            witness.leave(0, token, at(begin), at(end));
        }
        witness.tell()
    }

    #[test]
    fn holders_in_turn_are_no_fault() {
        let one = seen(&[(10, 0, 1), (11, 1, 2), (30, 6, 7)]);
        let other = seen(&[(20, 3, 4), (21, 4, 5), (40, 8, 9)]);
        assert_eq!((one.turns.len(), other.turns.len()), (2, 2));
        let both = Testimony::together([&one, &other]);
        assert!(both.held(), "{both:?}");
    }

    #[test]
    fn faults_of_one_process_are_seen() {
        assert_eq!(seen(&[(10, 0, 1), (10, 2, 3)]).token_faults, 1);
        assert_eq!(seen(&[(10, 0, 1), (9, 2, 3)]).token_faults, 1);
        let witness = Witness::new(2);
        witness.enter(0, 5);
        witness.enter(1, 5);
        assert!(witness.tell().held());
        witness.enter(0, 6);
        assert_eq!(witness.tell().overlaps, 1);
    }

    #[test]
    fn faults_between_processes_are_seen() {
        let one = seen(&[(10, 0, 5), (11, 5, 9)]);
        for (holds, overlaps, tokens) in [
            // A token given out twice, and at the same time.
            ((11, 5, 6), 1, 1),
            // Twice, later.
            ((11, 10, 11), 0, 1),
            // A larger token while the other still held.
            ((12, 8, 11), 1, 0),
            // A smaller token, later.
            ((9, 20, 21), 0, 1),
        ] {
            let other = seen(&[holds]);
            let both = Testimony::together([&one, &other]);
            assert_eq!(
                (both.overlaps, both.token_faults),
                (overlaps, tokens),
                "{holds:?}"
            );
        }
    }

    #[test]
    fn a_testimony_is_the_same_in_another_process() {
        let one = seen(&[(10, 0, 5), (20, 5, 9)]);
        let line = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<Testimony>(&line).unwrap(), one);
    }
}
