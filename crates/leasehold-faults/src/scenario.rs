//! What scenarios of every kind have in common: how much of them runs, a failure that is a panic, and latencies.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::clock::Nanos;

/// How much of the scenarios to run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// A few runs of each, all side by side; latencies are not judged.
    Short,
    /// So many runs of a hundred.
    Percent(u16),
}

impl Form {
    /// The number of runs, of `all` and those of the short form.
    pub(crate) fn runs(self, all: usize, short: usize) -> usize {
        match self {
            Self::Short => short,
            Self::Percent(percent) => (all * usize::from(percent)).div_ceil(100),
        }
    }
}

/// What a scenario returns, or the message of its panic.
pub(crate) fn caught<T>(scenario: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(scenario)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        text.unwrap_or("it panicked").to_owned()
    })
}

/// A percentile of sorted latencies, in milliseconds.
pub(crate) fn percentile_ms(sorted: &[Nanos], percent: usize) -> Option<f64> {
    let index = (sorted.len() * percent).div_ceil(100).checked_sub(1)?;
    Some(*sorted.get(index)? as f64 / 1e6)
}
