//! The report of campaigns: `report.json`, and `report.md` for people.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::checker::{CheckReport, Count, Margin};
use crate::history::Fault;
use crate::leaders;
use crate::random::Size;
use crate::scenario::Form;
use crate::watchdog::Row;

/// The files in the directory of the report.
const DATA: &str = "report.json";
const DOCUMENT: &str = "report.md";

/// The results of the last campaigns.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) random: Option<RandomReport>,
    pub(crate) leaders: Option<LeadersReport>,
    pub(crate) watchdog: Option<WatchdogReport>,
}

/// The results of random faults.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RandomReport {
    date: String,
    seed: u64,
    form: String,
    seconds: u64,
    faults: Vec<(String, u64)>,
    counts: Vec<(String, u64)>,
    margins: Vec<MarginRow>,
    pub(crate) violations: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct MarginRow {
    margin: String,
    unit: String,
    count: usize,
    min: f64,
    median: f64,
}

/// The results of the scenarios of the watchdog.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WatchdogReport {
    date: String,
    form: String,
    seconds: u64,
    processors: usize,
    scenarios: Vec<Row>,
}

/// The results of changes of leader.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LeadersReport {
    date: String,
    seed: u64,
    seconds: u64,
    processors: usize,
    scenarios: Vec<leaders::Row>,
}

impl Report {
    /// Replaces the results in a directory by those that this report has.
    pub(crate) fn write(mut self, directory: &Path) {
        let data = directory.join(DATA);
        let text = fs::read_to_string(&data).unwrap_or_else(|_| "{}".to_owned());
        let last: Self = serde_json::from_str(&text).unwrap();
        self.random = self.random.or(last.random);
        self.leaders = self.leaders.or(last.leaders);
        self.watchdog = self.watchdog.or(last.watchdog);
        let json = serde_json::to_string_pretty(&self).unwrap();
        fs::write(data, json + "\n").unwrap();
        fs::write(directory.join(DOCUMENT), self.document()).unwrap();
    }

    fn document(&self) -> String {
        let head = "# Report of the fault campaign\n\nWritten by `cargo xtask faults`, see [README.md](README.md).";
        format!("{head}\n\n{}", self.markdown())
    }

    /// A section for each kind of scenarios.
    pub(crate) fn markdown(&self) -> String {
        let random = self.random.as_ref().map(RandomReport::markdown);
        let leaders = self.leaders.as_ref().map(LeadersReport::markdown);
        let watchdog = self.watchdog.as_ref().map(WatchdogReport::markdown);
        let sections = [random, leaders, watchdog];
        let sections: Vec<_> = sections.into_iter().flatten().collect();
        sections.join("\n")
    }
}

impl RandomReport {
    pub(crate) fn new(size: Size, seed: u64, took: Duration, report: &CheckReport) -> Self {
        let faults = Fault::ALL.iter().filter(|fault| fault.is_random());
        let count = |fault| report.faults.get(fault).copied().unwrap_or_default();
        let counts = Count::ALL.iter();
        let counts = counts.filter(|count| !count.is_of_elections());
        let margins = Margin::ALL.iter().filter_map(|margin| {
            let values = report.margins.get(margin)?;
            Some(MarginRow::new(*margin, values.clone()))
        });
        Self {
            date: today(),
            seed,
            form: size.to_string(),
            seconds: took.as_secs(),
            faults: faults
                .map(|fault| (fault.label().to_owned(), count(fault)))
                .collect(),
            counts: counts
                .map(|count| (count.label().to_owned(), report.count(*count)))
                .collect(),
            margins: margins.collect(),
            violations: report.violations.clone(),
        }
    }

    fn markdown(&self) -> String {
        let (date, seed, form, seconds) = (&self.date, self.seed, &self.form, self.seconds);
        let violations = self.violations.len();
        let mut text = format!(
            "## Random faults\n\n{date}, seed {seed}, {form}, {seconds} s in all: **{violations} violations.**\n\n\
             | fault | injected |\n|---|---:|\n"
        );
        for (fault, count) in &self.faults {
            let count = match count {
                0 => "not injected".to_owned(),
                _ => grouped(*count),
            };
            let _ = writeln!(text, "| {fault} | {count} |");
        }
        text.push_str("\n| checked | count |\n|---|---:|\n");
        for (label, count) in &self.counts {
            let _ = writeln!(text, "| {label} | {} |", grouped(*count));
        }
        text.push_str("\n| margin | measured | min | median |\n|---|---:|---:|---:|\n");
        for row in &self.margins {
            let (margin, unit, count) = (&row.margin, &row.unit, grouped(row.count as u64));
            let (min, median) = (row.min, row.median);
            let _ = writeln!(
                text,
                "| {margin} | {count} | {min:.1} {unit} | {median:.1} {unit} |"
            );
        }
        text
    }
}

impl MarginRow {
    fn new(margin: Margin, mut values: Vec<i64>) -> Self {
        let (unit, scale) = match margin {
            Margin::OfTtl => ("%", 10.0),
            _ => ("ms", 1e6),
        };
        values.sort_unstable();
        let at = |index: usize| values[index] as f64 / scale;
        Self {
            margin: margin.label().to_owned(),
            unit: unit.to_owned(),
            count: values.len(),
            min: at(0),
            median: at(values.len() / 2),
        }
    }
}

impl LeadersReport {
    pub(crate) fn new(seed: u64, took: Duration, scenarios: Vec<leaders::Row>) -> Self {
        Self {
            date: today(),
            seed,
            seconds: took.as_secs(),
            processors: processors(),
            scenarios,
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.scenarios.iter().all(|row| row.violations.is_empty())
    }

    fn markdown(&self) -> String {
        let (date, seed, seconds, processors) =
            (&self.date, self.seed, self.seconds, self.processors);
        let sum = |of: fn(&leaders::Row) -> u64| self.scenarios.iter().map(of).sum::<u64>();
        let changes = grouped(sum(|row| row.changes));
        let violations = sum(|row| row.violations.len() as u64);
        let mut text = format!(
            "## Changes of leader\n\n{date}, seed {seed}, {seconds} s on a machine with {processors} processors and \
             other load, {changes} changes: **{violations} violations.**\n\n\
             | scenario | changes | leaders and candidates killed | stopped beyond the ttl | writes accepted | \
             rejected: stale | leaders told to observers | two leaders, the store had forgotten | kill to the \
             successor: median, p99 | grant to an observer: median, p99 |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        );
        for row in &self.scenarios {
            let times = |times: Option<(f64, f64)>| {
                times.map_or("-".to_owned(), |(median, p99)| {
                    format!("{median:.1} ms, {p99:.1} ms")
                })
            };
            let counts = [
                row.changes,
                row.kills,
                row.pauses,
                row.accepted,
                row.rejected,
                row.observed,
                row.forgotten,
            ];
            let counts = counts.map(grouped).join(" | ");
            let (after_kill, until_observed) = (times(row.after_kill), times(row.until_observed));
            let _ = writeln!(
                text,
                "| `{}` | {counts} | {after_kill} | {until_observed} |",
                row.scenario
            );
        }
        text.push('\n');
        for row in &self.scenarios {
            let _ = writeln!(text, "* `{}`: {}", row.scenario, row.description);
            for (fault, count) in &row.faults {
                let _ = writeln!(text, "  * {fault}: {count}");
            }
            for violation in &row.violations {
                let _ = writeln!(text, "  * **violation**: {violation}");
            }
        }
        text
    }
}

impl WatchdogReport {
    pub(crate) fn new(form: Form, took: Duration, scenarios: Vec<Row>) -> Self {
        Self {
            date: today(),
            form: match form {
                Form::Short => "the short form".into(),
                Form::Percent(100) => "all runs".into(),
                Form::Percent(percent) => format!("{percent} % of the runs"),
            },
            seconds: took.as_secs(),
            processors: processors(),
            scenarios,
        }
    }

    /// Whether nothing was missed. Latencies count if `with_latencies` is true.
    pub(crate) fn is_clean(&self, with_latencies: bool) -> bool {
        let clean = |row: &Row| row.misses == 0 && (row.in_time || !with_latencies);
        self.scenarios.iter().all(clean)
    }

    fn markdown(&self) -> String {
        let (date, form, seconds) = (&self.date, &self.form, self.seconds);
        let processors = self.processors;
        let misses: usize = self.scenarios.iter().map(|row| row.misses).sum();
        let late = self.scenarios.iter().filter(|row| !row.in_time).count();
        let mut text = format!(
            "## Scenarios of the watchdog\n\n{date}, {form}, {seconds} s on a machine with {processors} processors and \
             other load: **{misses} misses; {late} scenarios slower than their aim.**\n\n\
             | scenario | runs | misses | median | p99 | max | aim |\n|---|---:|---:|---:|---:|---:|---|\n"
        );
        for row in &self.scenarios {
            let latency = |ms: Option<f64>| ms.map_or("-".into(), |ms| format!("{ms:.1} ms"));
            let latencies = [row.median_ms, row.p99_ms, row.max_ms].map(latency);
            let (scenario, runs, misses, aim) = (&row.scenario, row.runs, row.misses, &row.aim);
            let missed = if row.in_time { "" } else { " **missed**" };
            let latencies = latencies.join(" | ");
            let _ = writeln!(
                text,
                "| `{scenario}` | {runs} | {misses} | {latencies} | {aim}{missed} |"
            );
        }
        text.push('\n');
        for row in &self.scenarios {
            let _ = writeln!(text, "* `{}`: {}", row.scenario, row.description);
            for note in &row.notes {
                let _ = writeln!(text, "  * {note}");
            }
            let mut misses = row.reported_misses.clone();
            misses.dedup();
            for miss in misses {
                let _ = writeln!(text, "  * **miss**: {miss}");
            }
        }
        text
    }
}

fn today() -> String {
    Timestamp::now().strftime("%Y-%m-%d").to_string()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(0, Into::into)
}

/// A number with a comma every three digits.
fn grouped(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1000), number % 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_shows_the_data() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/faults/");
        let read = |file| fs::read_to_string(format!("{directory}{file}")).unwrap();
        let report: Report = serde_json::from_str(&read(DATA)).unwrap();
        let Report {
            random,
            leaders,
            watchdog,
        } = &report;
        assert!(random.is_some() && leaders.is_some() && watchdog.is_some());
        assert_eq!(report.document(), read(DOCUMENT));
    }
}
