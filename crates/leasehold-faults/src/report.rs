//! The report of campaigns: `report.json`, and `report.md` for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::checker::{CheckReport, Count, Margin};
use crate::history::Fault;
use crate::scenario::{Form, Outcome, RANDOM, Scenario};

/// The files in the directory of the report.
pub(crate) const DATA: &str = "report.json";
pub(crate) const DOCUMENT: &str = "report.md";

/// What comes before the rows of the table.
const TABLE: &str = "\
## Scenarios

Repeat one by `cargo xtask faults --minutes 30 --only SCENARIO --seed SEED`. A run is a minute of a world, a change of
leader, or a fault of a watched holder or a node. Latencies are the median, the 99th percentile and the longest.

| scenario | date | seed | runs | violations | latencies, ms |
|---|---|---:|---:|---:|---:|
";

/// How many violations of a scenario the report contains.
const VIOLATIONS_REPORTED: usize = 20;

/// The last results of each scenario, by its name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct CampaignReport(BTreeMap<String, Row>);

/// The results of a scenario.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Row {
    date: String,
    seed: Option<u64>,
    /// The part of all runs, if not all.
    form: String,
    runs: usize,
    violations: usize,
    reported: Vec<String>,
    /// The median, the 99th percentile and the longest latency, in milliseconds.
    latencies_ms: [Option<f64>; 3],
    /// Whether they are within their limits.
    in_time: bool,
    faults: Counts,
    counts: Counts,
    margins: Vec<MarginRow>,
    notes: Vec<String>,
}

/// Numbers by their labels.
type Counts = BTreeMap<String, u64>;

#[derive(Debug, Serialize, Deserialize)]
struct MarginRow {
    margin: String,
    unit: String,
    count: usize,
    min: f64,
    median: f64,
    p99: Option<f64>,
}

impl CampaignReport {
    pub(crate) fn new(seed: u64, form: Form, outcomes: Vec<(&'static Scenario, Outcome)>) -> Self {
        let rows = outcomes.into_iter().map(|(scenario, outcome)| {
            let row = Row {
                date: Timestamp::now().strftime("%Y-%m-%d").to_string(),
                seed: Some(seed),
                form: match form.percent {
                    Some(percent) if scenario.kind != RANDOM => format!(" ({percent} %)"),
                    _ => String::new(),
                },
                ..Row::of(scenario, outcome)
            };
            (scenario.name.to_owned(), row)
        });
        Self(rows.collect())
    }

    /// Whether nothing was found. Latencies count if `with_latencies` is true.
    pub(crate) fn is_clean(&self, with_latencies: bool) -> bool {
        let clean = |row: &Row| row.violations == 0 && (row.in_time || !with_latencies);
        self.0.values().all(clean)
    }

    /// Replaces the results in a directory by those that this report has.
    pub(crate) fn write(
        self,
        directory: &Path,
        scenarios: impl Iterator<Item = &'static Scenario>,
    ) {
        let data = directory.join(DATA);
        let text = fs::read_to_string(&data).unwrap_or_else(|_| "{}".to_owned());
        let mut all: Self = serde_json::from_str(&text).unwrap();
        all.0.extend(self.0);
        let json = serde_json::to_string_pretty(&all).unwrap();
        fs::write(data, json + "\n").unwrap();
        fs::write(directory.join(DOCUMENT), all.document(scenarios)).unwrap();
    }

    pub(crate) fn document(&self, scenarios: impl Iterator<Item = &'static Scenario>) -> String {
        let head = "# Report of the fault campaign\n\nWritten by `cargo xtask faults`, see [README.md](README.md).";
        format!("{head}\n\n{}", self.markdown(scenarios))
    }

    /// The results in the order of the scenarios, and what was injected and checked in all of them.
    pub(crate) fn markdown(&self, scenarios: impl Iterator<Item = &'static Scenario>) -> String {
        let rows = scenarios.filter_map(|scenario| Some((scenario, self.0.get(scenario.name)?)));
        let rows: Vec<_> = rows.collect();
        let mut text = TABLE.to_owned();
        for (scenario, row) in &rows {
            let _ = writeln!(text, "{}", row.line(scenario.name));
        }
        text.push('\n');
        for (scenario, row) in &rows {
            let violations = row.reported.iter();
            let violations = violations.map(|text| format!("**violation**: {text}"));
            for note in row.notes.iter().cloned().chain(violations) {
                let _ = writeln!(text, "* `{}`: {note}", scenario.name);
            }
        }
        let faults = Fault::ALL.iter().map(|fault| fault.label());
        add_counts(&mut text, "Faults", &rows, faults, |row| &row.faults);
        let counts = Count::ALL.iter().map(|count| count.label());
        add_counts(&mut text, "Checked", &rows, counts, |row| &row.counts);
        text
    }
}

impl Row {
    fn of(scenario: &Scenario, outcome: Outcome) -> Self {
        let latencies_ms = outcome.percentiles_ms([50, 99, 100]);
        let limits = scenario.limits;
        let in_time = limits.is_none_or(|limits| outcome.is_within(limits));
        let Outcome {
            runs,
            report,
            notes,
            ..
        } = outcome;
        let count = |count: &Count| (count.label().to_owned(), report.count(*count));
        let counts = Count::ALL.iter().map(count);
        let faults = report.faults.iter();
        Self {
            runs,
            latencies_ms,
            in_time,
            faults: faults
                .map(|(fault, count)| (fault.label().to_owned(), *count))
                .collect(),
            counts: counts.filter(|(_, count)| *count > 0).collect(),
            margins: margins(&report),
            notes,
            violations: report.violations.len(),
            reported: reported(report.violations),
            ..Self::default()
        }
    }

    /// Its line of the table.
    fn line(&self, name: &str) -> String {
        let (date, form, runs) = (&self.date, &self.form, grouped(self.runs as u64));
        let seed = self.seed.map_or("-".into(), |seed| seed.to_string());
        let violations = match self.violations {
            0 => "0".to_owned(),
            violations => format!("**{violations}**"),
        };
        let latencies = match self.latencies_ms {
            [None, ..] => "-".to_owned(),
            latencies => {
                let latencies = latencies.map(|ms| ms.map_or("-".into(), |ms| format!("{ms:.1}")));
                latencies.join(", ")
            }
        };
        let missed = if self.in_time { "" } else { " **missed**" };
        format!(
            "| `{name}` | {date} | {seed} | {runs}{form} | {violations} | {latencies}{missed} |"
        )
    }
}

/// The first violations, without repetitions.
fn reported(mut violations: Vec<String>) -> Vec<String> {
    violations.dedup();
    violations.truncate(VIOLATIONS_REPORTED);
    violations
}

fn margins(report: &CheckReport) -> Vec<MarginRow> {
    let margins = Margin::ALL.iter().filter_map(|margin| {
        let mut values = report.margins.get(margin)?.clone();
        values.sort_unstable();
        let (unit, scale) = match margin {
            Margin::OfTtl => ("%", 10.0),
            _ => ("ms", 1e6),
        };
        let at = |index: usize| values[index] as f64 / scale;
        Some(MarginRow {
            margin: margin.label().to_owned(),
            unit: unit.to_owned(),
            count: values.len(),
            min: at(0),
            median: at(values.len() / 2),
            p99: Some(at((values.len() * 99).div_ceil(100) - 1)),
        })
    });
    margins.collect()
}

/// Adds a list of the numbers with these labels: the sum over the scenarios, or the largest of a maximum.
fn add_counts<'a>(
    text: &mut String,
    title: &str,
    rows: &[(&Scenario, &Row)],
    labels: impl Iterator<Item = &'a str>,
    of: impl Fn(&Row) -> &Counts,
) {
    let _ = write!(text, "\n## {title}\n\n");
    for label in labels {
        let counts = rows
            .iter()
            .filter_map(|(_, row)| of(row).get(label).copied());
        let total = match label.ends_with(", ms") {
            true => counts.max(),
            false => counts.reduce(|one, other| one + other),
        };
        if let Some(total) = total {
            let _ = writeln!(text, "* {label}: {}", grouped(total));
        }
    }
}

/// A number with a comma every three digits.
fn grouped(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1000), number % 1000),
    }
}
