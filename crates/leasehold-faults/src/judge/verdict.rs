//! What a judge says.

use std::collections::BTreeMap;

use crate::history::Fault;

/// What was wrong, and how much there was to be right.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<String>,
    pub(crate) figures: Figures,
}

/// Counts of one world, or of all.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) faults: BTreeMap<Fault, u64>,
    pub(crate) processes: u64,
    pub(crate) asked: u64,
    pub(crate) granted: u64,
    pub(crate) steps: u64,
    /// Steps that ended after the time for which they were promised: the process was stopped in them.
    pub(crate) steps_late: u64,
    pub(crate) writes_accepted: u64,
    pub(crate) writes_refused: u64,
    pub(crate) lost: u64,
    pub(crate) killed_holding: u64,
    /// Holds that a process had when it was stopped for longer than its ttl.
    pub(crate) paused_holding: u64,
    pub(crate) counts_compared: u64,
    pub(crate) samples_compared: u64,
    pub(crate) releases_watched: u64,
    /// Two believed at the same instant, after the store had forgotten.
    pub(crate) overlaps_forgotten: u64,
    /// Leases that came back after their release because a question ran late.
    pub(crate) echoes: u64,
    /// Tokens that went back after a clock was set back and the counter forgotten.
    pub(crate) tokens_forgotten: u64,
    /// From the end of a promise to the next grant, in nanoseconds: for renewed and for fixed leases.
    pub(crate) margins_renewed: Vec<i64>,
    pub(crate) margins_fixed: Vec<i64>,
    /// The same for renewed leases, in thousandths of the ttl.
    pub(crate) margins_of_ttl: Vec<i64>,
    /// From the instant at which a holder was told of a loss to the next grant.
    pub(crate) margins_told: Vec<i64>,
    pub(crate) longest_wait: u64,
    /// The longest time for which a runtime ran no task, though it could have.
    pub(crate) longest_block: u64,
}

impl Verdict {
    pub(crate) fn violation(&mut self, text: String) {
        self.violations.push(text);
    }

    /// Adds the verdict about another world.
    pub(crate) fn add(&mut self, other: Self) {
        self.violations.extend(other.violations);
        self.figures.add(other.figures);
    }

    /// One line.
    pub(crate) fn summary(&self) -> String {
        let figures = &self.figures;
        format!(
            "{} faults, {} grants, {} critical steps, {} writes refused, {} violations",
            figures.faults.values().sum::<u64>(),
            figures.granted,
            figures.steps,
            figures.writes_refused,
            self.violations.len()
        )
    }
}

impl Figures {
    fn add(&mut self, other: Self) {
        for (fault, count) in other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        self.processes += other.processes;
        self.asked += other.asked;
        self.granted += other.granted;
        self.steps += other.steps;
        self.steps_late += other.steps_late;
        self.writes_accepted += other.writes_accepted;
        self.writes_refused += other.writes_refused;
        self.lost += other.lost;
        self.killed_holding += other.killed_holding;
        self.paused_holding += other.paused_holding;
        self.counts_compared += other.counts_compared;
        self.samples_compared += other.samples_compared;
        self.releases_watched += other.releases_watched;
        self.overlaps_forgotten += other.overlaps_forgotten;
        self.echoes += other.echoes;
        self.tokens_forgotten += other.tokens_forgotten;
        self.margins_renewed.extend(other.margins_renewed);
        self.margins_fixed.extend(other.margins_fixed);
        self.margins_of_ttl.extend(other.margins_of_ttl);
        self.margins_told.extend(other.margins_told);
        self.longest_block = self.longest_block.max(other.longest_block);
        self.longest_wait = self.longest_wait.max(other.longest_wait);
    }
}
