//! The terms under which a client registers a lease.

use std::time::Duration;

use crate::time::{Instant, Ttl};

/// How a node keeps a lease alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The ttl of a renewal, and the longest time that the lease lasts without one.
    pub ttl: Ttl,
    /// The silence timeout: the node renews the lease if the client is silent for this long.
    pub silence_timeout: Duration,
    /// Until when it may be renewed, by the local clock. A fixed lease is never renewed.
    pub keep_until: Instant,
}

impl Terms {
    /// The shortest silence timeout: below it, a client would do little else than send heartbeats.
    pub const SILENCE_TIMEOUT_MIN: Duration = Duration::from_millis(10);

    /// The end of a lease that may be renewed for ever.
    pub const NO_END: Instant = Instant::from_nanos(u64::MAX);

    /// Terms for a lease that its client renews itself every `interval`, and after `retry` if that fails.
    ///
    /// When the client falls silent, its last renewal may be an interval and a retry old. The node waits for
    /// half of the rest of the ttl: the other half is for its own renewal, and the retry of that.
    #[must_use]
    pub fn new(ttl: Ttl, interval: Duration, retry: Duration, keep_until: Instant) -> Self {
        let span = ttl.as_duration();
        let left = span.saturating_sub(interval + retry);
        Self {
            ttl,
            silence_timeout: (left / 2).min(span / 3).max(Self::SILENCE_TIMEOUT_MIN),
            keep_until,
        }
    }

    /// The interval between two heartbeats of a client: two fit into the silence timeout.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        self.silence_timeout / 2
    }

    /// The interval between a failed action and its retry.
    pub(super) fn retry(&self) -> Duration {
        (self.ttl.as_duration() / 30).max(Duration::from_millis(5))
    }

    /// The same terms, seen from a clock that is `span` behind.
    pub(super) fn back(&mut self, span: Duration) {
        back(&mut self.keep_until, span);
    }
}

/// The same instant on a clock that is `span` behind. [`Terms::NO_END`] stays as it is.
pub(super) fn back(at: &mut Instant, span: Duration) {
    if *at != Terms::NO_END {
        *at = at.before(span);
    }
}
