//! How a world of waiters ended.

use std::fmt;
use std::time::Duration;

use super::counts::Counts;
use crate::judge::Promise;
use crate::world::Deception;

/// How many of the last events a failure shows.
const TRACE_LINES: usize = 160;

/// What went wrong in a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The store broke a promise.
    Broken(Promise),
    /// A client relied on what was not so.
    Deceived(Deception),
    /// A waiter that nothing had disturbed had the lock after one that came later.
    Overtaken,
    /// Nobody relied on the lock for longer than a message takes, although somebody waited.
    Asleep,
    /// A waiter was not served in the time that the protocol promises.
    NotServed,
    /// Something stayed behind after everybody had died and every ttl had passed.
    Litter,
}

/// What happened in a world that went well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How often a client began to rely on the lock.
    pub begun: u64,
    /// How many heads the store passed over.
    pub passed_over: u64,
    /// How many requests ran after their connection had broken.
    pub late: u64,
    /// How many requests the store ran when it went on after it was stopped.
    pub piled_up: u64,
    /// What the clients did.
    pub counts: Counts,
}

impl Report {
    /// What happened in two worlds together.
    #[must_use]
    pub const fn plus(self, other: &Self) -> Self {
        Self {
            begun: self.begun + other.begun,
            passed_over: self.passed_over + other.passed_over,
            late: self.late + other.late,
            piled_up: self.piled_up + other.piled_up,
            counts: self.counts.plus(&other.counts),
        }
    }
}

/// A world that went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its number.
    pub seed: u64,
    /// How long it had lasted.
    pub at: Duration,
    /// What went wrong.
    pub wrong: Wrong,
    /// What had happened, one event a line.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skip = self.trace.len().saturating_sub(TRACE_LINES);
        for line in &self.trace[skip..] {
            writeln!(f, "{line}")?;
        }
        let (seed, at, wrong) = (self.seed, self.at, &self.wrong);
        write!(
            f,
            "the world of seed {seed} went wrong after {at:?}: {wrong:?}"
        )
    }
}

impl std::error::Error for Failure {}
