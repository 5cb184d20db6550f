//! Jobs that are not run again: once in each period, or once for a key.
//!
//! The holder of a lock stores a [`Completion`] beside its record when a run has succeeded, as an
//! [annotation](crate::annotation), in the step that ends its lease. A lock is granted for a run only
//! [unless](crate::record::Unless) that is complete: under the lock, nobody else can store a completion.
//!
//! A periodic job has [`Slots`], one for each period. Which slot a run belongs to is not a question of where a period
//! begins, because the clocks of two machines that start it at midnight are on both sides of midnight. So a start belongs
//! to a slot from a while before its time on, until the same while before that of the next slot.

use std::time::Duration;

use crate::time::StoreTime;

mod text;

pub use self::text::{
    CompletionError, HOST_BYTES_MAX, LABEL_BYTES_MAX, PATH_BYTES_MAX, PROGRAM_BYTES_MAX,
};

/// How many periods after the last completed run its anchor is forgotten.
pub const ANCHOR_PERIODS: u32 = 2;

/// How long the completion of a periodic job is kept unless its user chooses a longer time. That of a key is kept for
/// [`KEEP_MAX`]: its run would be repeated after a shorter time.
pub const KEEP_DEFAULT: Duration = Duration::from_secs(30 * SECONDS_PER_DAY);

/// The shortest time for which a user may keep a completion.
pub const KEEP_MIN: Duration = Duration::from_secs(1);

/// The longest time for which a completion is kept: about ten years.
pub const KEEP_MAX: Duration = Duration::from_secs(3_650 * SECONDS_PER_DAY);

/// How long before the time of a slot a start belongs to it at most, if the user has chosen the anchor: then the anchor is
/// the time of a timer, and an earlier start is the trial of a person. Starts are early by clocks, by summer time, and by
/// a zone up to UTC+3 if its user takes the anchor, which is in UTC, for local time. No zone has an offset near this
/// time, so no such timer is at the boundary of two slots.
pub const LEAD_MAX: Duration = Duration::from_secs(3 * 60 * 60 + 15 * 60);

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// The period of a job: whole microseconds, from a second to a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Period(u64);

impl Period {
    /// The shortest period. Below it, network and scheduler decide to which slot a run belongs.
    pub const MIN: Duration = Duration::from_secs(1);

    /// The longest period: a year of 365 days.
    pub const MAX: Duration = Duration::from_secs(365 * SECONDS_PER_DAY);

    /// The period of a user, without parts of a microsecond. `None`: it is shorter or longer than allowed.
    #[must_use]
    pub fn checked(period: Duration) -> Option<Self> {
        let is_allowed = (Self::MIN..=Self::MAX).contains(&period);
        let micros = u64::try_from(period.as_micros()).ok();
        micros.filter(|_| is_allowed).map(Self)
    }

    /// The period as a duration.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_micros(self.0)
    }

    /// For how long a completion is kept if its user wants `keep`: at least until its anchor is forgotten, and a day.
    #[must_use]
    pub fn keep(self, keep: Duration) -> Duration {
        let least = self.as_duration() * ANCHOR_PERIODS + Duration::from_secs(SECONDS_PER_DAY);
        least.max(keep)
    }
}

/// The slots of a job. The time of slot 0 is the anchor, and the slots before it have negative numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slots {
    /// The time of slot 0.
    pub anchor: StoreTime,
    /// Whether the user has chosen the anchor. Otherwise it is the start of the first run, which may have been late.
    pub chosen: bool,
    /// The time between two slots.
    pub period: Period,
}

impl Slots {
    /// The slot of a start: the last one that begins at this time or before.
    #[must_use]
    pub fn slot(&self, start: StoreTime) -> i64 {
        saturated((self.offset(start) + self.lead()).div_euclid(self.period()))
    }

    /// The time from which starts belong to a slot. `None`: it is before the epoch of the clock, or too late for it.
    #[must_use]
    pub fn start_of(&self, slot: i64) -> Option<StoreTime> {
        self.after_anchor(slot, -self.lead())
    }

    /// The last slot whose time has come.
    #[must_use]
    pub fn last_begun(&self, time: StoreTime) -> i64 {
        saturated(self.offset(time).div_euclid(self.period()))
    }

    /// The time of a slot. `None`: it is before the epoch of the clock, or too late for it.
    #[must_use]
    pub fn time(&self, slot: i64) -> Option<StoreTime> {
        self.after_anchor(slot, 0)
    }

    /// The slot of a run: that of its request, or a later one whose time had come when the run began. So one run is
    /// enough for all requests that have waited for it.
    #[must_use]
    pub fn slot_of(&self, run: &Completion) -> i64 {
        let requested = self.slot(run.requested_at);
        requested.max(self.last_begun(run.started_at))
    }

    fn offset(&self, time: StoreTime) -> i128 {
        i128::from(time.as_micros()) - i128::from(self.anchor.as_micros())
    }

    fn after_anchor(&self, slot: i64, micros: i128) -> Option<StoreTime> {
        let anchor = i128::from(self.anchor.as_micros());
        let time = anchor + i128::from(slot) * self.period() + micros;
        u64::try_from(time).ok().map(StoreTime::from_micros)
    }

    fn period(&self) -> i128 {
        i128::from(self.period.0)
    }

    /// How long before the time of a slot a start belongs to it. With half a period it belongs to the nearest slot.
    fn lead(&self) -> i128 {
        let half = self.period() / 2;
        match self.chosen {
            true => half.min(LEAD_MAX.as_micros() as i128),
            false => half,
        }
    }
}

/// The number of a slot. All slots of times in microseconds are within the bounds, as a period is at least a second.
fn saturated(slot: i128) -> i64 {
    i64::try_from(slot).unwrap_or(if slot < 0 { i64::MIN } else { i64::MAX })
}

/// A run that said it was complete. Its times are those of the store's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The slots of a periodic job, as its run was asked for. `None`: the run was for a key.
    pub slots: Option<Slots>,
    /// When the run was asked for, before it waited for the lock.
    pub requested_at: StoreTime,
    /// When it began.
    pub started_at: StoreTime,
    /// When it had ended.
    pub finished_at: StoreTime,
    /// For how long its completion is kept, if it ran for a key. `None`: it is not known.
    pub keep: Option<Duration>,
    /// The exit code of its command. 0 for work that has none.
    pub exit_code: u8,
    /// The host of its client.
    pub host: String,
    /// The program of its client.
    pub program: String,
    /// The path of that program or script, which tells two of one name apart. `None`: it is not known.
    pub path: Option<String>,
    /// The label of its client.
    pub label: String,
}

impl Completion {
    /// How long the run took.
    #[must_use]
    pub const fn took(&self) -> Duration {
        self.started_at.until(self.finished_at)
    }
}

/// When a job is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JobSchedule {
    /// The time between two runs.
    pub period: Period,
    /// The time of a slot, if its user has chosen one.
    pub anchor: Option<StoreTime>,
}

/// Whether a job is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Due {
    /// It is. The slots are for its completion.
    Run(Slots),
    /// A run of this slot, or of a later one, is complete.
    Completed,
}

/// Whether a job is to be run that was asked for at `requested_at`, if `stored` is the last completion at the store's
/// time `now`.
///
/// The stored run is judged by its own times in the slots of this request. So another period or anchor than that of the
/// last run is not a special case. An anchor of the user's choice comes first. Otherwise the slots are those of the stored
/// completion, with its kind of anchor, which begin with the request of the first run. They are forgotten
/// [`ANCHOR_PERIODS`] after the end of the last run. A completion that is as far in the future is also forgotten: it was
/// stored while the clock was wrong.
#[must_use]
pub fn due(
    stored: Option<&Completion>,
    schedule: JobSchedule,
    requested_at: StoreTime,
    now: StoreTime,
) -> Due {
    let span = schedule.period.as_duration() * ANCHOR_PERIODS;
    let is_known = |run: &&Completion| {
        requested_at <= run.finished_at.after_span(span) && run.started_at <= now.after_span(span)
    };
    let known = stored.filter(is_known);
    let stored_slots = known.and_then(|run| run.slots);
    let (anchor, chosen) = match (schedule.anchor, stored_slots) {
        (Some(anchor), _) => (anchor, true),
        (None, Some(slots)) => (slots.anchor, slots.chosen),
        (None, None) => (requested_at, false),
    };
    let slots = Slots {
        anchor,
        chosen,
        period: schedule.period,
    };
    let slot = slots.slot(requested_at);
    match known.is_some_and(|run| slots.slot_of(run) >= slot) {
        true => Due::Completed,
        false => Due::Run(slots),
    }
}

#[cfg(test)]
mod tests;
