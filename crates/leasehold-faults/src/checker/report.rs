//! The result of the checks.

use std::collections::BTreeMap;

use crate::history::{Fault, labelled};

labelled! {
    /// Something that the checks count. Those in milliseconds are maxima, the others sums.
    Count {
        Processes: "holder processes",
        Requested: "acquisitions requested",
        Granted: "acquisitions granted",
        Steps: "critical steps",
        StepsLate: "critical steps that ended after their deadline: stopped in the middle",
        WritesAccepted: "fenced writes accepted",
        WritesRejected: "fenced writes rejected: stale",
        Lost: "holds lost, and notified of it",
        KilledHolding: "holds of processes that were killed",
        LostToSlowServers: "leases of watched processes lost while their server did not reply to anybody",
        PausedHolding: "holds of processes that were stopped for longer than their ttl",
        SamplesCompared: "records compared with an interval in which a holder relied on the lock",
        CountsCompared: "hold counts compared",
        ReleasesObserved: "releases after which the record was observed",
        Shared: "pairs of holders that shared a lock at some instant",
        RunsCompleted: "runs of jobs that were completed",
        RunsCompleteBefore: "runs of jobs that were complete before",
        OverlapsForgotten: "two relied on the lock, the store had forgotten",
        RunsForgotten: "runs of jobs that were repeated, the store had forgotten",
        TokensForgotten: "tokens that went back: counter forgotten, clock set back",
        LateRequests: "records of a released lease, brought back by a late request",
        LeaderChanges: "changes of leader",
        LeadersObserved: "leaders that observers were told",
        FinalLeadersObserved: "observers that were told the final leader",
        LongestBlock: "longest time for which a runtime ran no task, though a processor was free, ms",
        LongestWait: "longest wait for a grant, ms",
    }
}

labelled! {
    /// A measured time.
    Margin {
        Renewed: "renewed: deadline to the next grant",
        OfTtl: "the same in parts of the ttl",
        Notified: "renewed: notification of the loss to the next grant",
        Fixed: "fixed: deadline to the next grant",
        Observed: "grant of a leadership until an observer is told",
    }
}

/// Violations, and how much was checked.
#[derive(Debug, Default)]
pub(crate) struct CheckReport {
    pub(crate) violations: Vec<String>,
    pub(crate) faults: BTreeMap<Fault, u64>,
    counts: BTreeMap<Count, u64>,
    /// In nanoseconds, those of the ttl in thousandths.
    pub(crate) margins: BTreeMap<Margin, Vec<i64>>,
}

impl Count {
    fn is_maximum(self) -> bool {
        matches!(self, Self::LongestBlock | Self::LongestWait)
    }
}

impl CheckReport {
    pub(crate) fn violation(&mut self, text: String) {
        self.violations.push(text);
    }

    pub(crate) fn add(&mut self, count: Count, value: u64) {
        let sum = self.counts.entry(count).or_default();
        *sum = match count.is_maximum() {
            true => value.max(*sum),
            false => *sum + value,
        };
    }

    pub(crate) fn count(&self, count: Count) -> u64 {
        self.counts.get(&count).copied().unwrap_or_default()
    }

    pub(crate) fn margin(&mut self, margin: Margin, value: i64) {
        self.margins.entry(margin).or_default().push(value);
    }

    /// Adds the report of another world.
    pub(crate) fn merge(&mut self, other: Self) {
        self.violations.extend(other.violations);
        for (fault, count) in other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        for (count, value) in other.counts {
            self.add(count, value);
        }
        for (margin, values) in other.margins {
            self.margins.entry(margin).or_default().extend(values);
        }
    }

    /// One line.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{} faults, {} grants, {} critical steps, {} writes rejected, {} violations",
            self.faults.values().sum::<u64>(),
            self.count(Count::Granted),
            self.count(Count::Steps),
            self.count(Count::WritesRejected),
            self.violations.len()
        )
    }
}
