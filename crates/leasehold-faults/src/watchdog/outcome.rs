//! What came of a case.

use std::time::Duration;

use serde::Serialize;

use crate::clock::Nanos;

/// How many misses are told one by one.
const MISSES_SHOWN: usize = 20;

/// What came of a case, before it is compared with its aim.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) times: usize,
    pub(super) misses: Vec<String>,
    /// What was measured, each time.
    pub(super) spans: Vec<Nanos>,
    /// What else is to be known.
    pub(super) notes: Vec<String>,
}

/// What it comes to.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) case: &'static str,
    pub(super) what: &'static str,
    pub(super) times: usize,
    pub(super) misses: usize,
    pub(super) median_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
    pub(super) aim: &'static str,
    /// Whether the times are as they are to be.
    pub(super) in_time: bool,
    pub(super) notes: Vec<String>,
    pub(super) told: Vec<String>,
}

/// The longest times that are as they are to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) median: Duration,
    pub(super) p99: Duration,
}

impl Outcome {
    pub(super) fn miss(&mut self, what: impl Into<String>) {
        self.misses.push(what.into());
    }

    pub(super) fn note(&mut self, what: impl Into<String>) {
        self.notes.push(what.into());
    }

    pub(super) fn row(
        mut self,
        case: &'static str,
        what: &'static str,
        aim: &'static str,
        limits: Option<Limits>,
    ) -> Row {
        self.spans.sort_unstable();
        let (median, p99) = (self.at(50), self.at(99));
        let within = |span: Option<f64>, limit: Duration| {
            span.is_none_or(|span| span <= limit.as_secs_f64() * 1e3)
        };
        Row {
            case,
            what,
            times: self.times,
            misses: self.misses.len(),
            median_ms: median,
            p99_ms: p99,
            max_ms: self.at(100),
            aim,
            in_time: limits
                .is_none_or(|limits| within(median, limits.median) && within(p99, limits.p99)),
            notes: self.notes,
            told: self.misses.into_iter().take(MISSES_SHOWN).collect(),
        }
    }

    /// The time below which so many in a hundred are, in milliseconds. They are sorted.
    fn at(&self, percent: usize) -> Option<f64> {
        let place = (self.spans.len() * percent).div_ceil(100).max(1) - 1;
        #[expect(clippy::cast_precision_loss, reason = "spans of seconds")]
        self.spans.get(place).map(|span| *span as f64 / 1e6)
    }
}
