//! The promises of a store.

use std::fmt;

/// A promise that the checker observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Promise {
    /// The hold intervals of two leases never overlap.
    Exclusion,
    /// Tokens grow in the order of grants, and a repeated request of one grant has the same token.
    TokenOrder,
    /// The hold count is the one of the last request.
    HoldCount,
    /// A lock is refused only while another lease holds it, and for as long as the reply states.
    Refusal,
    /// A reply states that a lease is lost only when it is.
    Loss,
    /// A reply is one that the request can have.
    Reply,
    /// Living waiters are served in the order of the queue, and each refusal states the place in it.
    Order,
    /// A living waiter is granted the lock as soon as it is free, and is notified. No other client is.
    Wake,
    /// A notified grant lasts for the acceptance ttl.
    Acceptance,
    /// A run is complete only by a note of a holder, and a living waiter for it is told so.
    Run,
    /// A name is used as one kind at a time.
    Kind,
    /// No more arrivals are counted than there were different ids.
    Arrivals,
}

/// A violated promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub promise: Promise,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} violated: {}", self.promise, self.what)
    }
}

impl Promise {
    pub(super) fn violated(self, what: String) -> Violation {
        let promise = self;
        Violation { promise, what }
    }

    /// Fails if the promise is not kept.
    pub(super) fn check(self, is_kept: bool) -> Result<(), Self> {
        is_kept.then_some(()).ok_or(self)
    }
}
