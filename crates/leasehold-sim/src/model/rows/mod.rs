//! The variants that are explored. The table in `docs/model.md` states their expected results.

/// Rows, each with its setup, and what differs from that.
macro_rules! table {
    ($($what:literal: $setup:expr $(, $field:ident = $value:expr)*;)+) => {
        vec![$({
            #[allow(unused_mut, reason = "not every row changes its setup")]
            let mut setup = $setup;
            $(setup.$field = $value;)*
            setup.row($what)
        }),+]
    };
}

mod documents;
mod record;
mod shares;
mod times;
mod tokens;
mod watchdog;

use super::explore::{ExplorationReport, Model, explore};
use super::failover::Failover;

/// The document with the table of the results.
const DOCUMENT: &str = include_str!("../../../../../docs/model.md");

/// A variant of a model, and its expected result.
pub struct Row {
    /// Its description.
    pub what: &'static str,
    /// The properties that break, and no others. `None`: it is not in the table.
    breaks: Option<Vec<&'static str>>,
    /// The row of an independent model of the same, and its number of states.
    pub independent: &'static str,
    explore: Box<dyn Fn(Option<usize>) -> ExplorationReport>,
}

/// The size of the models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Two attempts over a majority: for every test run.
    Short,
    /// Three or four attempts, and five masters: minutes, and up to two gigabytes of memory.
    Full,
}

/// Variants of a setup, and rows of models.
trait Variant: Sized {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn row(self, what: &'static str) -> Row
    where
        Self: Model + 'static,
    {
        Row {
            what,
            breaks: None,
            independent: "",
            explore: Box::new(move |stop_after| explore(&self, stop_after)),
        }
    }
}

impl<T> Variant for T {}

impl Row {
    /// Visits its states, or stops when `stop_after` properties are violated and two acquisitions have succeeded.
    /// `None`: visits all states.
    #[must_use]
    pub fn explore(&self, stop_after: Option<usize>) -> ExplorationReport {
        (self.explore)(stop_after)
    }

    /// How a report differs from the expected result.
    #[must_use]
    pub fn faults(&self, report: &ExplorationReport) -> Vec<String> {
        let mut faults = Vec::new();
        if report.successes < 2 {
            faults.push(format!("at most {} successes", report.successes));
        }
        let violated: Vec<_> = report.violated.keys().map(ToString::to_string).collect();
        match &self.breaks {
            None => faults.push("it has no expected result in docs/model.md".into()),
            Some(breaks) if *breaks != violated => faults.push(format!(
                "expected to break: {breaks:?}, found: {:#?}",
                report.violated
            )),
            Some(_) => {}
        }
        faults
    }
}

/// All variants.
#[must_use]
pub fn rows(extent: Extent) -> Vec<Row> {
    let mut rows = tokens::rows(extent);
    rows.extend(times::rows(extent));
    rows.extend(failover());
    rows.extend(record::rows(extent));
    rows.extend(shares::rows(extent));
    rows.extend(documents::rows(extent));
    rows.extend(watchdog::rows(extent));
    expected(rows)
}

/// The variants on failover.
fn failover() -> Vec<Row> {
    let rule = Failover::RULE;
    table! {
        "a replica without the last grants is promoted; tokens by counter and clock": rule;
        "with tokens by the counter alone": rule, clock = false;
        "tokens by counter and clock, but the promotion takes no time": rule, gap = 0;
        "the replica's clock is behind by a tick more than the promotion takes": rule, behind = 3;
        "the replica is promoted, and the old store goes on": rule, split_brain = true;
    }
}

/// Adds the expected results. Searches each row behind the previous one, because descriptions repeat.
fn expected(mut rows: Vec<Row>) -> Vec<Row> {
    let mut lines = DOCUMENT.lines();
    for row in &mut rows {
        let mut rest = lines.clone();
        let cells = rest.find_map(|line| line.strip_prefix(&format!("| {} | ", row.what)));
        let cells: Vec<_> = cells.unwrap_or("").split('|').map(str::trim).collect();
        if let [_, result, independent, _] = cells[..] {
            let properties = result.strip_prefix("**breaks**: ").unwrap_or("");
            let properties = properties.split(", ");
            let properties = properties.filter_map(|property| property.rsplit_once(' '));
            row.breaks = Some(properties.map(|(property, _)| property).collect());
            row.independent = independent;
            lines = rest;
        }
    }
    rows
}

#[cfg(test)]
mod tests;
