//! What is promised, and that it was broken.

use std::fmt;

/// A promise that a judge watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Promise {
    /// The times of two holders never overlap.
    Exclusion,
    /// Tokens grow in the order of grant, and one grant asked for twice has one token.
    TokenOrder,
    /// The hold count is the one that was asked for last.
    HoldCount,
    /// A lock is refused only while another holds it, and for as long as the answer says.
    Refusal,
    /// A lease is called lost only when it is.
    Loss,
    /// An answer is one that the question can have.
    Answer,
    /// Those who wait and can be told are served in the order of coming, and learn their place in it.
    Order,
    /// Whoever waits and can be told is granted the lock as soon as it is free, and is told so; and
    /// nobody is told what concerns another.
    Wake,
    /// A grant that is told is for the time in which a waiter can take it, no more and no less.
    Acceptance,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub promise: Promise,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} broken: {}", self.promise, self.what)
    }
}

impl std::error::Error for Violation {}

pub(super) fn broken<T>(promise: Promise, what: String) -> Result<T, Violation> {
    Err(Violation { promise, what })
}
