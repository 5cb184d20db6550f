//! The report of a campaign: `report.json`, and `report.md` for people.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::campaign::Size;
use crate::history::Fault;
use crate::judge::{Figures, Verdict};

/// What a campaign came to.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    date: String,
    seed: u64,
    form: String,
    seconds: u64,
    faults: Vec<(&'static str, u64)>,
    figures: Vec<(&'static str, u64)>,
    margins: Vec<Margin>,
    violations: Vec<String>,
}

/// Spans from the end of a promise to the next grant, in milliseconds unless the unit says otherwise.
#[derive(Debug, Serialize)]
struct Margin {
    what: &'static str,
    unit: &'static str,
    count: usize,
    min: f64,
    median: f64,
}

impl Report {
    pub(crate) fn new(size: Size, seed: u64, took: Duration, verdict: &Verdict) -> Self {
        let figures = &verdict.figures;
        let count = |fault| figures.faults.get(fault).copied().unwrap_or(0);
        Self {
            date: Timestamp::now().strftime("%Y-%m-%d").to_string(),
            seed,
            form: size.to_string(),
            seconds: took.as_secs(),
            faults: Fault::ALL
                .iter()
                .map(|fault| (fault.label(), count(fault)))
                .collect(),
            figures: counts(figures),
            margins: margins(figures),
            violations: verdict.violations.clone(),
        }
    }

    /// The report as a document.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from("# Report of the fault campaign\n\n");
        let Self {
            date,
            seed,
            form,
            seconds,
            ..
        } = self;
        let _ = writeln!(
            text,
            "Written by `cargo xtask faults`, see [README.md](README.md). {date}, seed {seed}, \
             {form}, {seconds} s in all.\n"
        );
        let _ = writeln!(text, "**{} violations.**\n", self.violations.len());
        text.push_str("| fault | ran |\n|---|---:|\n");
        for (fault, count) in &self.faults {
            let count = if *count == 0 {
                "not run".to_owned()
            } else {
                grouped(*count)
            };
            let _ = writeln!(text, "| {fault} | {count} |");
        }
        text.push_str("\n| what the judge looked at | count |\n|---|---:|\n");
        for (what, count) in &self.figures {
            let _ = writeln!(text, "| {what} | {} |", grouped(*count));
        }
        text.push_str("\n| margin | measured | min | median |\n|---|---:|---:|---:|\n");
        for Margin {
            what,
            unit,
            count,
            min,
            median,
        } in &self.margins
        {
            let count = grouped(*count as u64);
            let _ = writeln!(
                text,
                "| {what} | {count} | {min:.1} {unit} | {median:.1} {unit} |"
            );
        }
        text
    }

    /// Writes both files.
    ///
    /// # Errors
    ///
    /// What cannot be written.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), String> {
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        for (name, text) in [("report.json", json + "\n"), ("report.md", self.markdown())] {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

fn counts(figures: &Figures) -> Vec<(&'static str, u64)> {
    vec![
        ("holder processes", figures.processes),
        ("acquisitions asked for", figures.asked),
        ("acquisitions granted", figures.granted),
        ("critical steps", figures.steps),
        (
            "critical steps that ended after their time: stopped in the middle",
            figures.steps_late,
        ),
        ("fenced writes accepted", figures.writes_accepted),
        ("fenced writes refused: stale", figures.writes_refused),
        ("holds lost, and told so", figures.lost),
        (
            "holds of processes that were killed",
            figures.killed_holding,
        ),
        (
            "holds of processes that were stopped for longer than their ttl",
            figures.paused_holding,
        ),
        ("records compared with a belief", figures.samples_compared),
        ("hold counts compared", figures.counts_compared),
        (
            "releases after which the record was watched",
            figures.releases_watched,
        ),
        (
            "two believed, the store had forgotten",
            figures.overlaps_forgotten,
        ),
        (
            "tokens that went back: counter forgotten, clock set back",
            figures.tokens_forgotten,
        ),
        (
            "records of a released lease, brought back by a late question",
            figures.echoes,
        ),
        (
            "longest time for which a runtime ran no task, though there was a processor, ms",
            figures.longest_block / crate::clock::MILLI,
        ),
        (
            "longest wait for a grant, ms",
            figures.longest_wait / crate::clock::MILLI,
        ),
    ]
}

fn margins(figures: &Figures) -> Vec<Margin> {
    let sets = [
        (
            "renewed: end of the promise to the next grant",
            "ms",
            &figures.margins_renewed,
            1e6,
        ),
        (
            "the same in parts of the ttl",
            "%",
            &figures.margins_of_ttl,
            10.0,
        ),
        (
            "renewed: told of the loss to the next grant",
            "ms",
            &figures.margins_told,
            1e6,
        ),
        (
            "fixed: end of the promise to the next grant",
            "ms",
            &figures.margins_fixed,
            1e6,
        ),
    ];
    let mut margins = Vec::new();
    for (what, unit, spans, scale) in sets {
        let mut spans = spans.clone();
        spans.sort_unstable();
        let (Some(min), Some(median)) = (spans.first(), spans.get(spans.len() / 2)) else {
            continue;
        };
        margins.push(Margin {
            what,
            unit,
            count: spans.len(),
            #[expect(clippy::cast_precision_loss, reason = "spans of seconds")]
            min: *min as f64 / scale,
            #[expect(clippy::cast_precision_loss, reason = "spans of seconds")]
            median: *median as f64 / scale,
        });
    }
    margins
}

/// A number with a comma every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
