//! The seed of a random test.

use std::env;

/// The variable that replays a test from the seed it printed.
pub const VARIABLE: &str = "LEASEHOLD_SEED";

/// The number in `LEASEHOLD_SEED`, or a fresh one.
///
/// # Panics
///
/// If the value of the variable is not a number: a test that ran with another seed would seem to have
/// replayed a failure.
#[must_use]
pub fn from_environment() -> u64 {
    let Ok(text) = env::var(VARIABLE) else {
        return fastrand::u64(..);
    };
    let seed = text.parse();
    assert!(seed.is_ok(), "{VARIABLE} must be a number, not {text:?}");
    seed.unwrap_or_default()
}
