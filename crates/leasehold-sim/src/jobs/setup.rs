//! The machines of a simulation, and which rule it breaks.

use super::calendar::{ClockChange, HOUR};

/// A simulation to run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The local time of day of the first start, in seconds.
    pub start: u64,
    /// How much later the last machine starts, in seconds.
    pub spread: u64,
    /// How late a start may be, in seconds, and how many of ten starts are.
    pub lateness: (u64, u64),
    /// The anchor that the user has chosen, in seconds after midnight. Then persons try the job, too.
    pub anchor: Option<u64>,
    /// A change of summer time in the middle of the month.
    pub change: Option<ClockChange>,
    /// The rule is broken.
    pub mutation: Option<Mutation>,
}

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The slot of a run is the number of whole periods since the epoch.
    SlotByFloor,
    /// A completion is stored without a check that its lease holds the lock.
    CompleteWithoutLock,
    /// A start belongs to the nearest slot, although the user has chosen the anchor.
    TrialByNearestSlot,
    /// A client that finds the lock held skips its run.
    SkipInsteadOfWait,
}

/// The setups whose days must have one completed run each.
pub const SETUPS: [Setup; 8] = [
    MIDNIGHT,
    APART,
    Setup {
        change: Some(ClockChange::Forward),
        ..APART
    },
    Setup {
        change: Some(ClockChange::Back),
        ..APART
    },
    NIGHTLY,
    Setup {
        change: Some(ClockChange::Forward),
        ..NIGHTLY
    },
    Setup {
        change: Some(ClockChange::Back),
        ..NIGHTLY
    },
    // The user has taken the anchor for local time, in UTC+2 and UTC+3.
    Setup {
        anchor: Some(5 * HOUR),
        change: Some(ClockChange::Forward),
        ..NIGHTLY
    },
];

/// All machines start at midnight.
pub const MIDNIGHT: Setup = Setup {
    start: 0,
    spread: 0,
    lateness: (6 * HOUR, 1),
    anchor: None,
    change: None,
    mutation: None,
};

/// The machines start over two hours, and a third of them up to six hours late.
const APART: Setup = Setup {
    start: 2 * HOUR,
    spread: 2 * HOUR,
    lateness: (6 * HOUR, 3),
    anchor: None,
    change: None,
    mutation: None,
};

/// The anchor is the time of the first machine, in winter.
pub const NIGHTLY: Setup = Setup {
    start: 3 * HOUR,
    spread: HOUR,
    anchor: Some(3 * HOUR),
    ..APART
};
