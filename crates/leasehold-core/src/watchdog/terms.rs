//! What a client registers of a lease.

use std::time::Duration;

use crate::time::{Instant, Ttl};

/// What a node is to do for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The ttl that a renewal asks for; nor does the lease last longer without one.
    pub ttl: Ttl,
    /// After which silence of the client the lease is renewed for it.
    pub patience: Duration,
    /// Until when it may be renewed, by the clock of whoever has these terms. A fixed lease never is.
    pub keep_until: Instant,
}

impl Terms {
    /// The shortest patience: below it, a client would do little else than say that it lives.
    pub const PATIENCE_MIN: Duration = Duration::from_millis(10);

    /// The end of a lease that may be renewed for ever.
    pub const NO_END: Instant = Instant::from_nanos(u64::MAX);

    /// Terms for a lease that its client renews itself every `interval`, and tries again after `retry`.
    ///
    /// When the client falls silent, its last renewal may be an interval and a retry old. Of what is left
    /// then, half is waited: the other half is for the node's own renewal, and its second try.
    #[must_use]
    pub fn new(ttl: Ttl, interval: Duration, retry: Duration, keep_until: Instant) -> Self {
        let span = ttl.as_duration();
        let left = span.saturating_sub(interval + retry);
        Self {
            ttl,
            patience: (left / 2).min(span / 3).max(Self::PATIENCE_MIN),
            keep_until,
        }
    }

    /// The longest pause between two signs of life of a client: two fit into the patience.
    #[must_use]
    pub fn beat(&self) -> Duration {
        self.patience / 2
    }

    /// The pause after something failed.
    pub(super) fn retry(&self) -> Duration {
        (self.ttl.as_duration() / 30).max(Duration::from_millis(5))
    }

    /// The same terms, seen from a clock that is `span` behind.
    pub(super) fn back(&mut self, span: Duration) {
        back(&mut self.keep_until, span);
    }
}

/// The same instant on a clock that is `span` behind. What is never stays never.
pub(super) fn back(at: &mut Instant, span: Duration) {
    if *at != Terms::NO_END {
        *at = at.before(span);
    }
}
