//! The variants that are explored, and their expected results.

mod failover;
mod times;
mod tokens;
mod watchdog;

use super::explore::{Model, Property, Report, Until, explore};
use super::watchdog::Milestone;

/// A variant of a model, and its expected result.
pub struct Row {
    /// Its description.
    pub what: &'static str,
    /// The properties that break, and no others.
    pub breaks: Vec<Property>,
    /// The milestones that must be reached.
    pub reaches: Vec<Milestone>,
    /// The row of an independent model of the same, and its number of states.
    pub independent: Option<&'static str>,
    explore: Box<dyn Fn(Until<'_>) -> Report + Send + Sync>,
}

/// The size of the models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Two attempts over a majority: for every test run.
    Short,
    /// Three or four attempts, and five masters: minutes, and up to two gigabytes of memory.
    Full,
}

impl Row {
    fn new<M: Model + Send + Sync + 'static>(what: &'static str, it: M) -> Self {
        Self {
            what,
            breaks: Vec::new(),
            reaches: Vec::new(),
            independent: None,
            explore: Box::new(move |until| explore(&it, until)),
        }
    }

    fn breaks(mut self, breaks: &[Property]) -> Self {
        self.breaks = breaks.to_vec();
        self
    }

    fn reaches(mut self, reaches: &[Milestone]) -> Self {
        self.reaches = reaches.to_vec();
        self
    }

    fn independent(mut self, independent: &'static str) -> Self {
        self.independent = Some(independent);
        self
    }

    /// Visits its states.
    #[must_use]
    pub fn explore(&self, until: Until<'_>) -> Report {
        (self.explore)(until)
    }

    /// How a report differs from the expected result.
    #[must_use]
    pub fn faults(&self, report: &Report) -> Vec<String> {
        let mut faults = Vec::new();
        if report.successes < 2 {
            let wins = report.successes;
            faults.push(format!(
                "{}: {wins} acquisitions succeed at most",
                self.what
            ));
        }
        for milestone in &self.reaches {
            if report.reached & *milestone as u32 == 0 {
                faults.push(format!("{}: it is not reached that {milestone}", self.what));
            }
        }
        for property in &report.checked {
            let trace = report.trace(*property);
            match (self.breaks.contains(property), trace) {
                (false, Some(trace)) => {
                    faults.push(format!("{}: {property} breaks:\n{trace}", self.what));
                }
                (true, None) => faults.push(format!(
                    "{}: {property} does not break, so the model cannot notice it",
                    self.what
                )),
                _ => {}
            }
        }
        faults
    }
}

/// All variants.
#[must_use]
pub fn rows(extent: Extent) -> Vec<Row> {
    let mut rows = tokens::rows(extent);
    rows.extend(times::rows(extent));
    rows.extend(failover::rows());
    rows.extend(watchdog::rows(extent));
    rows
}

#[cfg(test)]
mod tests;
