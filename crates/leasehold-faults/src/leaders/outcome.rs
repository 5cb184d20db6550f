//! The outcome of a scenario.

use serde::{Deserialize, Serialize};

use crate::checker::{CheckReport, Count, Margin};
use crate::clock::Nanos;
use crate::history::Fault;
use crate::scenario::percentile_ms;

/// The outcome of a scenario.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) report: CheckReport,
    /// The time from the kill of each leader to its successor.
    pub(super) after_kill: Vec<Nanos>,
}

/// The same in the report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) scenario: String,
    pub(crate) description: String,
    pub(crate) changes: u64,
    pub(crate) kills: u64,
    pub(crate) pauses: u64,
    /// Faults of servers, with their counts.
    pub(crate) faults: Vec<(String, u64)>,
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
    /// How often an observer was told a leader.
    pub(crate) observed: u64,
    /// How often two leaders relied on their leadership at a time, because a failover had forgotten the first.
    pub(crate) forgotten: u64,
    /// The median and the 99th percentile, in milliseconds.
    pub(crate) after_kill: Option<(f64, f64)>,
    pub(crate) until_observed: Option<(f64, f64)>,
    pub(crate) violations: Vec<String>,
}

impl Outcome {
    pub(super) fn row(self, scenario: &str, description: &str) -> Row {
        let Self { report, after_kill } = self;
        let fault = |fault| report.faults.get(&fault).copied().unwrap_or_default();
        let of_servers = Fault::ALL
            .iter()
            .filter(|fault| !fault.ends_holder() && !fault.pauses_holder());
        let faults = of_servers
            .map(|kind| (kind.label().to_owned(), fault(*kind)))
            .filter(|(_, count)| *count > 0);
        let until_observed = report.margins.get(&Margin::Observed).into_iter().flatten();
        let until_observed = until_observed.map(|delay| delay.cast_unsigned());
        Row {
            scenario: scenario.to_owned(),
            description: description.to_owned(),
            changes: report.count(Count::LeaderChanges),
            kills: fault(Fault::KillHolder),
            pauses: fault(Fault::PauseHolderLong),
            faults: faults.collect(),
            accepted: report.count(Count::WritesAccepted),
            rejected: report.count(Count::WritesRejected),
            observed: report.count(Count::LeadersObserved),
            forgotten: report.count(Count::OverlapsForgotten),
            after_kill: percentiles(after_kill),
            until_observed: percentiles(until_observed.collect()),
            violations: report.violations,
        }
    }
}

impl Row {
    /// One line.
    pub(super) fn summary(&self) -> String {
        format!(
            "{} changes of leader, {} leaders told, {} writes accepted, {} rejected, {} violations",
            self.changes,
            self.observed,
            self.accepted,
            self.rejected,
            self.violations.len()
        )
    }
}

/// The median and the 99th percentile. `None`: there is no value.
fn percentiles(mut values: Vec<Nanos>) -> Option<(f64, f64)> {
    values.sort_unstable();
    percentile_ms(&values, 50).zip(percentile_ms(&values, 99))
}
