//! The number from which a random test starts.

use std::env;

/// The variable that replays a test from the number it printed.
pub const VARIABLE: &str = "LEASEHOLD_SEED";

/// The number in `LEASEHOLD_SEED`, or a fresh one.
///
/// # Panics
///
/// If the variable is set to something that is no number: a test that quietly ran with another
/// seed would seem to have replayed a failure.
#[must_use]
pub fn from_environment() -> u64 {
    let Ok(text) = env::var(VARIABLE) else {
        return fastrand::u64(..);
    };
    let seed = text.parse();
    assert!(seed.is_ok(), "{VARIABLE} must be a number, not {text:?}");
    seed.unwrap_or_default()
}
