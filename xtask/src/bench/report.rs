//! The report: as JSON, and as the tables of `docs/bench/compare.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::figures::Spread;
use super::peers::OURS;
use super::table::{Unit, cell, number_text, table};

/// All figures, and how they were measured.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) command: String,
    pub(super) machine: String,
    pub(super) versions: BTreeMap<String, String>,
    /// What was not measured, and why.
    pub(super) left_out: BTreeMap<String, String>,
    pub(super) works: Vec<Section>,
}

/// The results of one kind of work.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Section {
    pub(super) work: String,
    pub(super) what: String,
    /// In the order of the libraries.
    pub(super) results: Vec<Entry>,
}

/// The figures of one library with one setting.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) library: String,
    pub(super) figures: BTreeMap<String, Spread>,
}

const RATE: &str = "acquisitions_per_second";
const CHANGE: &str = "release_to_acquisition_p50_us";
const PAIR: &str = "pair_p50_us";
const WAIT: &str = "wait_p50_us";
const SERVER: &str = "server_us_per_acquisition";

/// The columns of the tables. One without figures is left out.
const COLUMNS: [(&str, &str, Unit); 10] = [
    (RATE, "acquisitions/s", Unit::Count),
    (WAIT, "wait, p50", Unit::Micros),
    ("wait_p50_round_trips", "in round trips", Unit::Decimal),
    ("wait_p99_us", "wait, p99", Unit::Micros),
    ("wait_max_us", "longest", Unit::Micros),
    (PAIR, "pair, p50", Unit::Micros),
    (SERVER, "server time each", Unit::Micros),
    (
        "script_calls_per_acquisition",
        "scripts each",
        Unit::Decimal,
    ),
    ("share_deviation", "off an equal share", Unit::Part),
    (CHANGE, "release to acquisition, p50", Unit::Micros),
];

/// The library whose figures stand beside ours in the summary: the least that a lock can do.
const BASELINE: &str = "rslock";

/// Two rates within 5 % are equal.
const EQUAL: std::ops::Range<f64> = 0.95..1.05;

/// The report for readers.
pub(super) fn document(report: &Report) -> String {
    let mut text = format!(
        "# Leasehold and other libraries\n\n{}. Written by `{}`.\n\n{READING}",
        report.machine, report.command
    );
    text += &summary(&report.works);
    for section in &report.works {
        let (work, what) = (&section.work, &section.what);
        let _ = write!(text, "\n## {work}\n\n{what}.\n\n{}", section.table());
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
A figure is the median of the rounds, with the smallest and the largest in brackets. `ratio` says how many times as
many acquisitions/s Leasehold has, at ping-pong how many times as fast it passes the lock on. `server time each` is the
processor time of all servers for one acquisition with its release. `/ rslock` divides Leasehold's figure by that of
`rslock`, which does the least that a lock can do.
";

/// Where Leasehold is ahead and where it is not, or nothing if it was not measured.
fn summary(sections: &[Section]) -> String {
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
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let [mut ahead, mut equal, mut behind] = [const { Vec::new() }; 3];
    for section in sections {
        let Some(ours) = section.ours() else { continue };
        let best = section.best_other();
        let ratio = best.and_then(|best| section.ratio(best));
        if let Some((ratio, best)) = ratio.zip(best) {
            let list = match ratio {
                ratio if ratio >= EQUAL.end => &mut ahead,
                ratio if ratio < EQUAL.start => &mut behind,
                _ => &mut equal,
            };
            let (work, library) = (&section.work, &best.library);
            list.push(format!("{work} ({} x {library})", times(ratio)));
        }
        let baseline = section
            .results
            .iter()
            .find(|entry| entry.library == BASELINE);
        let by = |name: &str| {
            let by = ours.median(name)? / baseline?.median(name)?;
            // Waits of those that do not queue are no pattern under contention.
            (name == RATE || ours.median(PAIR).is_some()).then_some(by)
        };
        let unit = section.unit();
        let main = |entry: &Entry| {
            entry
                .figures
                .get(section.main())
                .map(|main| cell(main.without_range(), unit))
        };
        rows.push(vec![
            section.work.clone(),
            main(ours).unwrap_or_default(),
            best.map_or_else(dash, |best| {
                format!("{}: {}", best.library, main(best).unwrap_or_default())
            }),
            ratio.map_or_else(dash, times),
            by(RATE).map_or_else(dash, times),
            by(WAIT).map_or_else(dash, times),
            by(PAIR).map_or_else(dash, times),
            by(SERVER).map_or_else(dash, times),
        ]);
    }
    if rows.len() == 1 {
        return String::new();
    }
    let mut text = String::from("\n## Summary\n\n");
    for (title, list) in [("Ahead of", ahead), ("Equal to", equal), ("Behind", behind)] {
        if !list.is_empty() {
            let _ = writeln!(
                text,
                "* {title} the best other library: {}.",
                list.join(", ")
            );
        }
    }
    let _ = write!(text, "\n{}", table(&rows));
    text
}

impl Section {
    /// The name of the figure that decides.
    fn main(&self) -> &'static str {
        let passes = self
            .ours()
            .is_some_and(|ours| ours.median(CHANGE).is_some());
        if passes { CHANGE } else { RATE }
    }

    fn unit(&self) -> Unit {
        if self.main() == RATE {
            Unit::Count
        } else {
            Unit::Micros
        }
    }

    fn ours(&self) -> Option<&Entry> {
        self.results.iter().find(|entry| entry.library == OURS)
    }

    /// How many times as fast Leasehold is.
    fn ratio(&self, other: &Entry) -> Option<f64> {
        let (ours, other) = (
            self.ours()?.median(self.main())?,
            other.median(self.main())?,
        );
        let ratio = if self.main() == RATE {
            ours / other
        } else {
            other / ours
        };
        ratio.is_finite().then_some(ratio)
    }

    fn best_other(&self) -> Option<&Entry> {
        let others = self
            .results
            .iter()
            .filter(|entry| !entry.library.starts_with(OURS));
        let ratios = others.filter_map(|entry| Some((self.ratio(entry)?, entry)));
        let best = ratios.min_by(|one, other| one.0.total_cmp(&other.0));
        best.map(|(_, entry)| entry)
    }

    fn table(&self) -> String {
        let known = |name: &str| {
            self.results
                .iter()
                .any(|entry| entry.figures.contains_key(name))
        };
        let columns: Vec<_> = COLUMNS.iter().filter(|(name, ..)| known(name)).collect();
        let mut head = vec!["library".to_owned()];
        head.extend(columns.iter().map(|(_, title, _)| (*title).to_owned()));
        head.insert(2.min(head.len()), "ratio".to_owned());
        let rows = self.results.iter().map(|entry| {
            let cells = columns.iter().map(|(name, _, unit)| {
                let figure = entry.figures.get(*name);
                figure.map_or_else(dash, |figure| cell(*figure, *unit))
            });
            let mut row = vec![entry.library.clone()];
            row.extend(cells);
            row.insert(2.min(row.len()), self.ratio(entry).map_or_else(dash, times));
            row
        });
        table(&[head].into_iter().chain(rows).collect::<Vec<_>>())
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
