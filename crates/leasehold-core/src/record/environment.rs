//! Time as an argument of the rule.

use std::time::Duration;

use super::rows::End;
use crate::time::{StoreTime, Ttl};

/// What the rule knows about the moment in which it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The time by the store's clock, by which everything except notes ends.
    pub now: StoreTime,
    /// The time of the calendar, by which runs are asked for and notes end. Not before `now`.
    pub calendar: StoreTime,
}

impl Environment {
    /// That of a store whose clock is a calendar.
    #[must_use]
    pub const fn at(now: StoreTime) -> Self {
        let calendar = now;
        Self { now, calendar }
    }

    /// The end of a lease that is kept for `ttl` from now, or until its `last` end, whichever is later.
    pub(super) fn end(&self, ttl: Ttl, last: Option<End>) -> End {
        let end = End::At(self.now.after(ttl));
        last.map_or(end, |last| last.max(end))
    }

    /// Whether the end of a lease has come.
    #[must_use]
    pub fn is_over(&self, end: End) -> bool {
        let End::At(end) = end;
        self.now >= end
    }

    /// The time from now to the end of a lease.
    #[must_use]
    pub fn time_left(&self, end: End) -> Duration {
        let End::At(end) = end;
        self.now.until(end)
    }
}
