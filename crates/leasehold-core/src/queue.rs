//! The times of a queue.

use std::time::Duration;

use crate::time::Ttl;

/// How long the store keeps a lease that it granted to a waiter until the waiter renews it: the time that a
/// waiter which cannot accept its grant costs the others at most.
pub const ACCEPTANCE_MS: u64 = 3_000;

/// A waiter retries at least once in its ttl. Its queue outlives that by this much.
const SPARE: Duration = Duration::from_secs(1);

/// The ttl of a grant to a waiter whose request was for `ttl`: that, and at most [`ACCEPTANCE_MS`].
#[must_use]
pub fn acceptance(ttl: Ttl) -> Ttl {
    Ttl::from_millis(ttl.as_millis().min(ACCEPTANCE_MS)).unwrap_or(ttl)
}

/// How long a queue is kept after a request for `ttl`: two of them and a second.
#[must_use]
pub fn retention(ttl: Ttl) -> Duration {
    ttl.as_duration() * 2 + SPARE
}
