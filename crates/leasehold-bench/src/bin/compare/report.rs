//! The report: all figures as JSON, and the summary of `docs/bench/compare.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::figures::{CHANGE, PAIR, RATE, SERVER_TIME, Spread, WAIT};
use super::libraries::LEASEHOLD;
use super::table::{Unit, number_text, table, value_text};

/// All figures, and how they were measured.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ComparisonReport {
    pub(super) command: String,
    pub(super) machine: String,
    pub(super) versions: BTreeMap<String, String>,
    /// What was not measured, and why.
    pub(super) left_out: BTreeMap<String, String>,
    pub(super) works: Vec<WorkResult>,
}

/// The results of one kind of work.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WorkResult {
    pub(super) work: String,
    pub(super) what: String,
    /// The later command that measured it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<String>,
    /// In the order of the libraries, so that Leasehold without a variant is the first one.
    pub(super) results: Vec<Entry>,
}

/// The figures of one library with one of its variants.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) label: String,
    pub(super) figures: BTreeMap<String, Spread>,
}

impl ComparisonReport {
    /// This report with the kinds of work that `later` has measured again, or for the first time.
    pub(super) fn updated(mut self, later: Self) -> Result<Self, String> {
        let mut versions = later.versions.iter();
        let same = versions.all(|(name, version)| {
            let before = self.versions.get(name);
            before.is_none_or(|before| before == version)
        });
        if !same || self.machine != later.machine {
            return Err("another machine or other versions have measured the rest".into());
        }
        let command = Some(later.command);
        for result in later.works {
            let command = command.clone();
            let result = WorkResult { command, ..result };
            let mut works = self.works.iter_mut();
            match works.find(|before| before.work == result.work) {
                Some(before) => *before = result,
                None => self.works.push(result),
            }
        }
        self.versions.extend(later.versions);
        self.left_out.extend(later.left_out);
        Ok(self)
    }
}

/// The library whose figures stand beside those of Leasehold in the summary: the least that a lock can do.
const BASELINE: &str = "rslock";

/// Two rates within 5 % are equal.
const EQUAL: std::ops::Range<f64> = 0.95..1.05;

/// The report for readers.
pub(super) fn document(report: &ComparisonReport) -> String {
    let mut text = format!(
        "# Leasehold and other libraries\n\n{}. Written by `{}`.\n\n{READING}",
        report.machine, report.command
    );
    text += &summary(&report.works);
    text += "\n## Work\n\n";
    let mut again = BTreeMap::<&str, Vec<&str>>::new();
    for result in &report.works {
        let _ = writeln!(text, "* {}: {}", result.work, result.what);
        if let Some(command) = &result.command {
            again.entry(command).or_default().push(&result.work);
        }
    }
    for (command, works) in again {
        let works = works.join(", ");
        let _ = writeln!(text, "\nMeasured again by `{command}`: {works}.");
    }
    for (title, list) in [
        ("Versions", &report.versions),
        ("Not measured", &report.left_out),
    ] {
        if !list.is_empty() {
            let _ = write!(text, "\n## {title}\n\n");
        }
        for (name, value) in list {
            let _ = writeln!(text, "* {name}: {value}");
        }
    }
    text
}

const READING: &str = "\
A figure is the median of the rounds; [compare.json](compare.json) has all. `Leasehold` and `best other library` are
acquisitions/s, at ping-pong the time from release to acquisition. `server time` is the processor time of all servers for
one acquisition with its release. `/ rslock` divides Leasehold's figure by that of `rslock`, which does the least that a
lock can do.
";

/// Where Leasehold is ahead and where it is not.
fn summary(results: &[WorkResult]) -> String {
    let [mut ahead, mut equal, mut behind] = [const { Vec::new() }; 3];
    for result in results {
        let Some((best, ratio)) = result.best_other() else {
            continue;
        };
        let list = match ratio {
            ratio if ratio >= EQUAL.end => &mut ahead,
            ratio if ratio < EQUAL.start => &mut behind,
            _ => &mut equal,
        };
        let (work, label) = (&result.work, &best.label);
        list.push(format!("{work} ({} x {label})", times(ratio)));
    }
    let mut text = String::from("\n## Summary\n\n");
    for (title, list) in [("Ahead of", ahead), ("Equal to", equal), ("Behind", behind)] {
        if !list.is_empty() {
            let list = list.join(", ");
            let _ = writeln!(text, "* {title} the best other library: {list}.");
        }
    }
    let head = [
        "work",
        "Leasehold",
        "best other library",
        "ratio",
        "rate / rslock",
        "wait / rslock",
        "pair / rslock",
        "server time / rslock",
    ];
    let head = head.map(str::to_owned).to_vec();
    let rows = results.iter().map(WorkResult::summary_row);
    let rows: Vec<_> = [head].into_iter().chain(rows).collect();
    text + "\n" + &table(&rows)
}

impl WorkResult {
    fn summary_row(&self) -> Vec<String> {
        let (name, unit) = self.deciding_figure();
        let value = |entry: &Entry| {
            let median = entry.median(name);
            median.map_or_else(dash, |median| value_text(median, unit))
        };
        let best = self.best_other();
        let leasehold = self.leasehold();
        let mut entries = self.results.iter();
        let baseline = entries.find(|entry| entry.label == BASELINE);
        let ratio_to_baseline = |name: &str| {
            // Waits of those that do not queue are no pattern under contention.
            let comparable = name == RATE || leasehold.median(PAIR).is_some();
            let baseline = baseline.filter(|_| comparable)?.median(name)?;
            let ratio = leasehold.median(name)? / baseline;
            ratio.is_finite().then_some(ratio)
        };
        let mut row = vec![
            self.work.clone(),
            value(leasehold),
            best.map_or_else(dash, |(best, _)| format!("{}: {}", best.label, value(best))),
            best.map_or_else(dash, |(_, ratio)| times(ratio)),
        ];
        let ratios = [RATE, WAIT, PAIR, SERVER_TIME].map(ratio_to_baseline);
        row.extend(ratios.map(|ratio| ratio.map_or_else(dash, times)));
        row
    }

    /// The figure that decides, and its unit.
    fn deciding_figure(&self) -> (&'static str, Unit) {
        match self.leasehold().median(CHANGE) {
            Some(_) => (CHANGE, Unit::Micros),
            None => (RATE, Unit::Count),
        }
    }

    fn leasehold(&self) -> &Entry {
        &self.results[0]
    }

    /// How many times as fast Leasehold is.
    fn ratio(&self, other: &Entry) -> Option<f64> {
        let (name, _) = self.deciding_figure();
        let (leasehold, other) = (self.leasehold().median(name)?, other.median(name)?);
        let ratio = if name == RATE {
            leasehold / other
        } else {
            other / leasehold
        };
        ratio.is_finite().then_some(ratio)
    }

    /// The other library with the smallest ratio, and the ratio.
    fn best_other(&self) -> Option<(&Entry, f64)> {
        let entries = self.results.iter();
        let others = entries.filter(|entry| !entry.label.starts_with(LEASEHOLD));
        let ratios = others.filter_map(|entry| Some((entry, self.ratio(entry)?)));
        ratios.min_by(|one, other| one.1.total_cmp(&other.1))
    }
}

impl Entry {
    fn median(&self, name: &str) -> Option<f64> {
        self.figures.get(name).map(|spread| spread.median)
    }
}

fn dash() -> String {
    "-".into()
}

fn times(ratio: f64) -> String {
    number_text(ratio, if ratio < 10.0 { 2 } else { 0 })
}
