//! Time as an argument of the rule.

use std::time::Duration;

use super::rows::End;
use crate::time::{StoreTime, Ttl};

/// What the rule knows about the moment in which it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The time by the store's clock.
    pub now: StoreTime,
}

impl Environment {
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
