//! The answer, for programs. Field names and units stay as they are.

use serde::Serialize;

use super::Alone;
use crate::bench::Scenario;
use crate::bench::figures::{Figures, Tally, ratio};

/// What a run found.
#[derive(Debug, Serialize)]
pub(in crate::bench) struct Report {
    pub(super) scenario: Scenario,
    /// Its URL without a password.
    pub(super) store: String,
    pub(super) tasks: usize,
    pub(super) threads: u16,
    pub(super) seconds: u64,
    #[serde(flatten)]
    pub(super) ours: Figures,
    /// The same with bare calls, or, of `watched`, without a watchdog.
    pub(super) raw: Figures,
    pub(super) ratio: Ratio,
}

/// Ours divided by the other side.
#[derive(Debug, Serialize)]
pub(super) struct Ratio {
    pub(super) throughput: f64,
    pub(super) p50: f64,
}

impl Report {
    pub(super) fn new(alone: &Alone, store: String, tallies: &[Tally; 2]) -> Self {
        let [ours, raw] = [tallies[0].figures(), tallies[1].figures()];
        Self {
            scenario: alone.scenario,
            store,
            tasks: alone.tasks.into(),
            threads: alone.threads,
            seconds: alone.span.as_secs(),
            ours,
            raw,
            ratio: Ratio {
                throughput: ratio(ours.acquisitions_per_second, raw.acquisitions_per_second),
                p50: ratio(ours.p50_us, raw.p50_us),
            },
        }
    }
}
