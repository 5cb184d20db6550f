//! When the machines start the job.

use super::calendar::{ClockChange, HOUR};

/// When the machines start the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timetable {
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
}

impl Timetable {
    /// All machines start at midnight.
    pub const MIDNIGHT: Self = Self {
        start: 0,
        spread: 0,
        lateness: (6 * HOUR, 1),
        anchor: None,
        change: None,
    };

    /// The machines start over two hours, and a third of them up to six hours late.
    const APART: Self = Self {
        start: 2 * HOUR,
        spread: 2 * HOUR,
        lateness: (6 * HOUR, 3),
        anchor: None,
        change: None,
    };

    /// The anchor is the time of the first machine, in winter.
    pub const NIGHTLY: Self = Self {
        start: 3 * HOUR,
        spread: HOUR,
        anchor: Some(3 * HOUR),
        ..Self::APART
    };

    /// All timetables.
    pub const ALL: [Self; 8] = [
        Self::MIDNIGHT,
        Self::APART,
        Self::APART.changed(ClockChange::Forward),
        Self::APART.changed(ClockChange::Back),
        Self::NIGHTLY,
        Self::NIGHTLY.changed(ClockChange::Forward),
        Self::NIGHTLY.changed(ClockChange::Back),
        // The user has taken the anchor for local time, in UTC+2 and UTC+3.
        Self {
            anchor: Some(5 * HOUR),
            ..Self::NIGHTLY.changed(ClockChange::Forward)
        },
    ];

    const fn changed(self, change: ClockChange) -> Self {
        Self {
            change: Some(change),
            ..self
        }
    }
}
