//! Checks mutual exclusion and the order of tokens while the cost of a lock is measured.

use std::mem;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::clock::Moment;
use crate::latencies::lock;

/// The number of runs that a process remembers: enough for the comparison with other processes.
const RUNS_MAX: usize = 1 << 17;

/// Checks the holders of some locks in this process.
#[derive(Debug)]
pub(crate) struct ExclusionCheck {
    locks: Vec<Lock>,
    overlaps: AtomicU64,
    token_faults: AtomicU64,
    /// Of a single lock only.
    runs: Mutex<Vec<Run>>,
}

#[derive(Debug, Default)]
struct Lock {
    held: AtomicBool,
    last_token: AtomicU64,
}

/// The observations of one process, or of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Observations {
    /// How often a lock was acquired while it was held.
    pub(crate) overlaps: u64,
    /// How often a token was not larger than the one before.
    pub(crate) token_faults: u64,
    /// The runs of holders, in their order; of a single lock only.
    runs: Vec<Run>,
}

/// Holders in one process that followed each other without a gap in their tokens, so that no other
/// process can have had the lock between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    /// Its first token and its last.
    tokens: (u64, u64),
    /// From the first acquisition until just before the last release.
    interval: (Moment, Moment),
}

impl ExclusionCheck {
    pub(crate) fn new(locks: u32) -> Self {
        Self {
            locks: (0..locks).map(|_| Lock::default()).collect(),
            overlaps: AtomicU64::new(0),
            token_faults: AtomicU64::new(0),
            runs: Mutex::default(),
        }
    }

    /// Notes that a lock was acquired.
    pub(crate) fn acquired(&self, number: usize, token: u64) {
        let lock = &self.locks[number];
        if lock.held.swap(true, Ordering::AcqRel) {
            self.overlaps.fetch_add(1, Ordering::Relaxed);
        }
        if lock.last_token.swap(token, Ordering::Relaxed) >= token {
            self.token_faults.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that a lock, held from `begin` to `end`, is about to be released.
    pub(crate) fn releasing(&self, number: usize, token: u64, begin: Moment, end: Moment) {
        if self.locks.len() == 1 {
            self.extend_runs(token, begin, end);
        }
        self.locks[number].held.store(false, Ordering::Release);
    }

    fn extend_runs(&self, token: u64, begin: Moment, end: Moment) {
        // Only the holder locks this mutex, so it is never contended.
        let mut runs = lock(&self.runs);
        if let Some(run) = runs.last_mut()
            && run.tokens.1 + 1 == token
        {
            run.tokens.1 = token;
            run.interval.1 = end;
        } else if runs.len() < RUNS_MAX {
            runs.push(Run {
                tokens: (token, token),
                interval: (begin, end),
            });
        }
    }

    /// All that was observed. The runs are forgotten.
    pub(crate) fn observations(&self) -> Observations {
        Observations {
            overlaps: self.overlaps.load(Ordering::Relaxed),
            token_faults: self.token_faults.load(Ordering::Relaxed),
            runs: mem::take(&mut lock(&self.runs)),
        }
    }
}

impl Observations {
    /// Merges the observations of several processes at one lock, and compares their runs.
    pub(crate) fn merge<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut merged = Self::default();
        for one in all {
            merged.overlaps += one.overlaps;
            merged.token_faults += one.token_faults;
            merged.runs.extend_from_slice(&one.runs);
        }
        merged.runs.sort_by_key(|run| run.tokens);
        for pair in merged.runs.windows(2) {
            let [before, after] = pair else { continue };
            let repeated = before.tokens.1 >= after.tokens.0;
            let backwards = before.interval.0 > after.interval.1;
            merged.token_faults += u64::from(repeated || backwards);
            let overlap =
                before.interval.1 > after.interval.0 && after.interval.1 > before.interval.0;
            merged.overlaps += u64::from(overlap);
        }
        merged
    }

    /// Whether no fault was observed.
    pub(crate) fn exclusive(&self) -> bool {
        self.overlaps == 0 && self.token_faults == 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The observations of holds: each a token, and when it began and ended.
    fn observed(holds: &[(u64, u64, u64)]) -> Observations {
        let check = ExclusionCheck::new(1);
        let at = |micros| Moment::default().after(Duration::from_micros(micros));
        for &(token, begin, end) in holds {
            check.acquired(0, token);
            check.releasing(0, token, at(begin), at(end));
        }
        check.observations()
    }

    #[test]
    fn holders_in_turn_are_not_a_fault() {
        let one = observed(&[(10, 0, 1), (11, 1, 2), (30, 6, 7)]);
        let other = observed(&[(20, 3, 4), (21, 4, 5), (40, 8, 9)]);
        assert_eq!((one.runs.len(), other.runs.len()), (2, 2));
        let both = Observations::merge([&one, &other]);
        assert!(both.exclusive(), "{both:?}");
    }

    #[test]
    fn faults_of_one_process_are_observed() {
        assert_eq!(observed(&[(10, 0, 1), (10, 2, 3)]).token_faults, 1);
        assert_eq!(observed(&[(10, 0, 1), (9, 2, 3)]).token_faults, 1);
        let check = ExclusionCheck::new(2);
        check.acquired(0, 5);
        check.acquired(1, 5);
        assert!(check.observations().exclusive());
        check.acquired(0, 6);
        assert_eq!(check.observations().overlaps, 1);
    }

    #[test]
    fn faults_between_processes_are_observed() {
        let one = observed(&[(10, 0, 5), (11, 5, 9)]);
        for (hold, overlaps, token_faults) in [
            // A token given out twice, and at the same time.
            ((11, 5, 6), 1, 1),
            // Twice, later.
            ((11, 10, 11), 0, 1),
            // A larger token while the other still held.
            ((12, 8, 11), 1, 0),
            // A smaller token, later.
            ((9, 20, 21), 0, 1),
        ] {
            let other = observed(&[hold]);
            let both = Observations::merge([&one, &other]);
            let faults = (both.overlaps, both.token_faults);
            assert_eq!(faults, (overlaps, token_faults), "{hold:?}");
        }
    }

    #[test]
    fn observations_are_the_same_in_another_process() {
        let one = observed(&[(10, 0, 5), (20, 5, 9)]);
        let line = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<Observations>(&line).unwrap(), one);
    }
}
