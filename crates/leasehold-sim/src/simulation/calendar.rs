//! The days of a month, in which summer time may begin or end, and when machines start a job on them.

use leasehold_core::StoreTime;

/// The time of every store at the start, in microseconds.
pub(super) const STORE_START: u64 = 1_700_000_000_000_000;

pub(super) const MINUTE: u64 = 60;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;

/// The time of the store at the first midnight, in seconds: a midnight in UTC.
const EPOCH: u64 = 20_500 * DAY;

/// The day on which the clocks are changed, and when, by the time of winter.
const CHANGE_DAY: u64 = 15;
const CHANGE: u64 = 2 * HOUR;

/// A change of summer time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockChange {
    /// The clock goes from 2:00 to 3:00.
    Forward,
    /// The clock goes from 3:00 back to 2:00.
    Back,
}

/// The store's time so many seconds after the first midnight.
pub(super) fn time(seconds: u64) -> StoreTime {
    StoreTime::from_micros((EPOCH + seconds) * 1_000_000)
}

/// The same as a time of the simulation.
pub(super) fn at(seconds: u64) -> u64 {
    (time(seconds).as_micros() - STORE_START) * 1_000
}

/// When a timer for a local time of day fires on a day: once, or for each time at which the clock shows it. A time
/// that the clock jumps over is at the jump. In seconds by the time of winter; the first day begins a day after 0, so
/// that a clock may be ahead of the store.
pub(super) fn starts(day: u64, local: u64, change: Option<ClockChange>) -> Vec<u64> {
    let change_at = CHANGE_DAY * DAY + CHANGE;
    let winter = day * DAY + local;
    let summer = winter.checked_sub(HOUR);
    let starts = match change {
        None => vec![winter],
        // Winter before the change, summer after it.
        Some(ClockChange::Forward) => {
            let before = Some(winter).filter(|at| *at < change_at);
            let after = summer.filter(|at| *at >= change_at);
            let skipped = before.is_none() && after.is_none();
            let skipped = skipped.then_some(change_at);
            [before, after, skipped].into_iter().flatten().collect()
        }
        Some(ClockChange::Back) => {
            let before = summer.filter(|at| *at < change_at);
            let after = Some(winter).filter(|at| *at >= change_at);
            [before, after].into_iter().flatten().collect()
        }
    };
    starts.into_iter().map(|at: u64| at + DAY).collect()
}

/// When the machines start the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timetable {
    /// The local time of day of the first start, in seconds.
    pub start: u64,
    /// How much later the last machine starts, in seconds.
    pub spread: u64,
    /// How late a start may be, in seconds, and how many of ten starts are.
    pub lateness: (u64, u64),
    /// The anchor that the user has chosen, in seconds after midnight. Then persons also try the job.
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
