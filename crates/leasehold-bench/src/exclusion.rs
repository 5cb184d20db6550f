//! Checks mutual exclusion and the order of tokens while the cost of a lock is measured.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Mutex;

use leasehold_checker::{Grant, HoldInterval, Sequence, Violation, overlaps, token_disorder};
use serde::{Deserialize, Serialize};

use crate::clock::Moment;
use crate::latencies::lock;

/// The number of runs that a process remembers: enough for the comparison with other processes.
const RUNS_MAX: usize = 1 << 17;

/// Checks the holders of some locks in this process.
#[derive(Debug)]
pub(crate) struct ExclusionCheck {
    // Only the holder of a lock locks its mutex, so none is contended.
    locks: Vec<Mutex<Lock>>,
}

#[derive(Debug)]
struct Lock {
    sequence: Sequence<u64>,
    observations: Observations,
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
    /// From the first acquisition until just before the last release, in nanoseconds.
    interval: (u64, u64),
}

impl ExclusionCheck {
    pub(crate) fn new(locks: u32) -> Self {
        let lock = |_| {
            Mutex::new(Lock {
                sequence: Sequence::of_tokens(),
                observations: Observations::default(),
            })
        };
        Self {
            locks: (0..locks).map(lock).collect(),
        }
    }

    /// Notes that a lock was acquired.
    pub(crate) fn acquired(&self, number: usize, token: u64) {
        let mut lock = lock(&self.locks[number]);
        match lock.sequence.acquired(token, token) {
            Ok(()) => {}
            Err(Violation::TwoHolders) => lock.observations.overlaps += 1,
            Err(_) => lock.observations.token_faults += 1,
        }
    }

    /// Notes that a lock, held from `begin` to `end`, is about to be released.
    pub(crate) fn releasing(&self, number: usize, token: u64, begin: Moment, end: Moment) {
        let mut lock = lock(&self.locks[number]);
        if self.locks.len() == 1 {
            lock.observations.extend_runs(token, begin, end);
        }
        lock.sequence.ended(token);
    }

    /// All that was observed. The runs are forgotten.
    pub(crate) fn observations(&self) -> Observations {
        let mut all = Observations::default();
        for one in &self.locks {
            let one = &mut lock(one).observations;
            all.overlaps += one.overlaps;
            all.token_faults += one.token_faults;
            all.runs.extend(mem::take(&mut one.runs));
        }
        all
    }
}

impl Observations {
    fn extend_runs(&mut self, token: u64, begin: Moment, end: Moment) {
        let [begin, end] = [begin, end].map(|moment| moment.nanos_since(Moment::default()));
        if let Some(run) = self.runs.last_mut()
            && run.tokens.1 + 1 == token
        {
            run.tokens.1 = token;
            run.interval.1 = end;
        } else if self.runs.len() < RUNS_MAX {
            self.runs.push(Run {
                tokens: (token, token),
                interval: (begin, end),
            });
        }
    }

    /// Merges the observations of several processes at one lock, and compares their runs.
    pub(crate) fn merge<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut merged = Self::default();
        let mut processes = Vec::new();
        for (process, one) in all.into_iter().enumerate() {
            merged.overlaps += one.overlaps;
            merged.token_faults += one.token_faults;
            merged.runs.extend_from_slice(&one.runs);
            processes.resize(merged.runs.len(), process);
        }
        let runs = merged.runs.iter().zip(&processes);
        let intervals: Vec<_> = runs
            .clone()
            .map(|(run, process)| run.hold_interval(process))
            .collect();
        merged.overlaps += overlaps(&intervals).len() as u64;
        let grants: Vec<_> = runs
            .flat_map(|(run, process)| run.grants(process))
            .collect();
        // Each run has two grants, and is counted once.
        let disorder = token_disorder(&grants).into_iter();
        let out_of_order: BTreeSet<_> = disorder.map(|(_, later)| later / 2).collect();
        merged.token_faults += out_of_order.len() as u64;
        merged
    }

    /// Whether no fault was observed.
    pub(crate) fn exclusive(&self) -> bool {
        self.overlaps == 0 && self.token_faults == 0
    }
}

impl Run {
    fn hold_interval<H>(self, holder: H) -> HoldInterval<H> {
        let (from, until) = self.interval;
        HoldInterval {
            from,
            until,
            holder,
        }
    }

    /// The first grant and the last, as far as their times are known.
    fn grants<H: Copy>(self, holder: H) -> [Grant<H>; 2] {
        let (requested, granted) = self.interval;
        [self.tokens.0, self.tokens.1].map(|token| Grant {
            requested,
            granted,
            token,
            holder,
        })
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
            // A token twice, at the same time.
            ((11, 5, 6), 1, 0),
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
}
