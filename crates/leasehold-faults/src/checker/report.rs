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
        StepsLate: "critical steps stopped beyond their deadline",
        WritesAccepted: "fenced writes accepted",
        WritesRejected: "stale writes rejected",
        Lost: "losses notified",
        KilledHolding: "holds of killed processes",
        LostToSlowServers: "watched leases lost to a slow server",
        PausedHolding: "holds of processes stopped beyond their ttl",
        SamplesCompared: "records compared with holds",
        CountsCompared: "hold counts compared",
        ReleasesObserved: "releases observed",
        Shared: "pairs of holders that shared a lock",
        RunsCompleted: "job runs completed",
        RunsCompleteBefore: "job runs complete before",
        OverlapsForgotten: "two holders, excused",
        RunsForgotten: "second job runs, excused",
        TokensForgotten: "smaller tokens, excused",
        LateRequests: "records after their release, excused",
        LeaderChanges: "changes of leader",
        LeadersObserved: "leaders observed",
        FinalLeadersObserved: "final leaders observed",
        LongestBlock: "longest block of a runtime, ms",
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
