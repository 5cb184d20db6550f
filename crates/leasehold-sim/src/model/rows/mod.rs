//! What is explored, and what must come out.

mod forgetting;
mod times;
mod tokens;
mod watchdog;

use super::explore::{Model, Property, Report, Until, explore};
use super::watchdog::Mark;

/// A model and what must come out of it.
pub struct Row {
    /// What it is called.
    pub key: &'static str,
    /// What it is.
    pub what: &'static str,
    /// The properties that break, and no others.
    pub breaks: Vec<Property>,
    /// What must be reached.
    pub reaches: Vec<Mark>,
    /// How many states an independent model of the same has, where there is one.
    pub independent: Option<&'static str>,
    explore: Box<dyn Fn(Until<'_>) -> Report + Send + Sync>,
}

/// How much is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Two attempts at a majority. A few seconds without optimisation.
    Short,
    /// Three or four of them, and five masters. Minutes, and up to two gigabytes of memory.
    Full,
}

impl Row {
    fn new<M: Model + Send + Sync + 'static>(key: &'static str, what: &'static str, it: M) -> Self {
        Self {
            key,
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

    fn reaches(mut self, reaches: &[Mark]) -> Self {
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

    /// What is wrong with a report of all its states. Empty: it is as it must be.
    #[must_use]
    pub fn faults(&self, report: &Report) -> Vec<String> {
        let mut faults = Vec::new();
        if report.successes < 2 {
            let wins = report.successes;
            faults.push(format!("{}: {wins} acquisitions succeed at most", self.key));
        }
        for mark in &self.reaches {
            if report.reached & *mark as u32 == 0 {
                faults.push(format!("{}: it is not reached that {mark}", self.key));
            }
        }
        for property in &report.checked {
            let trace = report.trace(*property);
            match (self.breaks.contains(property), trace) {
                (false, Some(trace)) => {
                    faults.push(format!("{}: {property} is broken:\n{trace}", self.key));
                }
                (true, None) => faults.push(format!(
                    "{}: {property} is not broken; so the model cannot see it",
                    self.key
                )),
                _ => {}
            }
        }
        faults
    }
}

/// All rows.
#[must_use]
pub fn rows(extent: Extent) -> Vec<Row> {
    let mut rows = tokens::rows(extent);
    rows.extend(times::rows(extent));
    rows.extend(forgetting::rows());
    rows.extend(watchdog::rows(extent));
    rows
}

#[cfg(test)]
mod tests;
