//! Faults and their times.

use crate::history::Fault;

/// How far a clock is set at most, in milliseconds.
pub(super) const CLOCK_STEP_MAX_MS: u64 = 1500;

/// Faults one after the other: of a server, or of the connections of one holder to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) server: usize,
    pub(super) holder: Option<usize>,
    pub(super) faults: Vec<Timed>,
}

/// A fault and when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    pub(super) at_ms: u64,
    pub(super) fault: Fault,
    /// How long it lasts, or how far a clock is set.
    pub(super) length_ms: u64,
    /// The number of the name whose keys it hits, if it hits one.
    pub(super) name: usize,
}
