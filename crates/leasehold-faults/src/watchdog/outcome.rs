//! The outcome of a scenario.

use serde::{Deserialize, Serialize};

use crate::clock::Nanos;
use crate::scenario::percentile_ms;

/// The limits of the latencies after a death.
const MEDIAN_MAX_MS: f64 = 20.0;
const P99_MAX_MS: f64 = 50.0;

/// How many misses the report contains.
const MISSES_REPORTED: usize = 20;

/// The outcome of a scenario, before it is compared with its aim.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(super) runs: usize,
    pub(super) misses: Vec<String>,
    pub(super) latencies: Vec<Nanos>,
    pub(super) notes: Vec<String>,
}

/// The same in the report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) scenario: String,
    pub(crate) description: String,
    pub(crate) runs: usize,
    pub(crate) misses: usize,
    pub(crate) median_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) max_ms: Option<f64>,
    pub(crate) aim: String,
    /// Whether the latencies are within their limits.
    pub(crate) in_time: bool,
    pub(crate) notes: Vec<String>,
    pub(crate) reported_misses: Vec<String>,
}

impl Outcome {
    /// The outcome of a scenario that failed.
    pub(super) fn failure(reason: String) -> Self {
        Self {
            misses: vec![reason],
            ..Self::default()
        }
    }

    pub(super) fn miss(&mut self, text: impl Into<String>) {
        self.misses.push(text.into());
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    pub(super) fn row(mut self, name: &str, description: &str, aim: &str, limited: bool) -> Row {
        self.latencies.sort_unstable();
        let percentile = |percent| percentile_ms(&self.latencies, percent);
        let (median, p99, max) = (percentile(50), percentile(99), percentile(100));
        let within = |latency: Option<f64>, limit| latency.is_none_or(|latency| latency <= limit);
        Row {
            scenario: name.to_owned(),
            description: description.to_owned(),
            runs: self.runs,
            misses: self.misses.len(),
            median_ms: median,
            p99_ms: p99,
            max_ms: max,
            aim: aim.to_owned(),
            in_time: !limited || within(median, MEDIAN_MAX_MS) && within(p99, P99_MAX_MS),
            notes: self.notes,
            reported_misses: self.misses.into_iter().take(MISSES_REPORTED).collect(),
        }
    }
}
