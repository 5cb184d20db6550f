//! How a world ended.

use std::fmt;
use std::time::Duration;

use leasehold_core::Outcome;

use super::belief::Deception;
use crate::judge::Promise;

/// How many of the last events a failure shows.
const TRACE_LINES: usize = 80;

/// What happened in a world that went well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How often a client began to rely on the lock.
    pub begun: u64,
    /// How often the store granted, refused, renewed, and called a lease lost.
    pub granted: u64,
    /// See [`Report::granted`].
    pub refused: u64,
    /// See [`Report::granted`].
    pub renewed: u64,
    /// See [`Report::granted`].
    pub called_lost: u64,
    /// How many messages were lost, doubled, and swallowed because a machine was cut off.
    pub lost: u64,
    /// See [`Report::lost`].
    pub doubled: u64,
    /// See [`Report::lost`].
    pub cut_off: u64,
    /// How often a process was stopped, and killed.
    pub stops: u64,
    /// See [`Report::stops`].
    pub kills: u64,
}

impl Report {
    /// What happened in two worlds together.
    #[must_use]
    pub const fn plus(self, other: &Self) -> Self {
        Self {
            begun: self.begun + other.begun,
            granted: self.granted + other.granted,
            refused: self.refused + other.refused,
            renewed: self.renewed + other.renewed,
            called_lost: self.called_lost + other.called_lost,
            lost: self.lost + other.lost,
            doubled: self.doubled + other.doubled,
            cut_off: self.cut_off + other.cut_off,
            stops: self.stops + other.stops,
            kills: self.kills + other.kills,
        }
    }

    pub(super) fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Granted { .. } => self.granted += 1,
            Outcome::Refused { .. } => self.refused += 1,
            Outcome::Renewed => self.renewed += 1,
            Outcome::Lost(_) => self.called_lost += 1,
            _ => {}
        }
    }
}

/// What went wrong in a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The store broke a promise.
    Broken(Promise),
    /// A client relied on what was not so.
    Deceived(Deception),
    /// Nobody got the lock after the faults had stopped.
    Stuck,
    /// The lock stayed held after everybody had died and every ttl had passed.
    Litter,
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
