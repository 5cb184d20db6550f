//! The report of the campaign: `watchdog.json`, and `watchdog.md` for people.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::outcome::Row;

/// What a campaign came to.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    date: String,
    form: String,
    seconds: u64,
    processors: usize,
    cases: Vec<Row>,
}

impl Report {
    pub(super) fn new(form: String, took: Duration, cases: Vec<Row>) -> Self {
        Self {
            date: Timestamp::now().strftime("%Y-%m-%d").to_string(),
            form,
            seconds: took.as_secs(),
            processors: std::thread::available_parallelism().map_or(0, Into::into),
            cases,
        }
    }

    /// The report as a document.
    pub(super) fn markdown(&self) -> String {
        let mut text = String::from("# Report of the fault campaign of the watchdog\n\n");
        let Self {
            date,
            form,
            seconds,
            processors,
            ..
        } = self;
        let _ = writeln!(
            text,
            "Written by `cargo xtask faults watchdog`, see [README.md](README.md#the-watchdog). {date}, \
             {form}, {seconds} s on a machine with {processors} processors that had other work, too.\n"
        );
        let misses: usize = self.cases.iter().map(|row| row.misses).sum();
        let late = self.cases.iter().filter(|row| !row.in_time).count();
        let _ = writeln!(
            text,
            "**{misses} misses; {late} cases whose times fall short of the aim.**\n"
        );
        text.push_str("| case | times | misses | median | p99 | max | aim |\n");
        text.push_str("|---|---:|---:|---:|---:|---:|---|\n");
        for row in &self.cases {
            let span = |span: Option<f64>| span.map_or("-".into(), |ms| format!("{ms:.1} ms"));
            let (case, times, misses) = (row.case, row.times, row.misses);
            let spans = [row.median_ms, row.p99_ms, row.max_ms]
                .map(span)
                .join(" | ");
            let late = if row.in_time { "" } else { " **missed**" };
            let _ = writeln!(
                text,
                "| `{case}` | {times} | {misses} | {spans} | {}{late} |",
                row.aim
            );
        }
        text.push_str("\n## What was done and measured\n\n");
        for row in &self.cases {
            let _ = writeln!(text, "* `{}`: {}", row.case, row.what);
            for note in &row.notes {
                let _ = writeln!(text, "  * {note}");
            }
            for miss in &row.told {
                let _ = writeln!(text, "  * **miss**: {miss}");
            }
        }
        text
    }

    /// Whether nothing was missed. Times count if that is said.
    pub(super) fn is_clean(&self, with_times: bool) -> bool {
        let clean = |row: &Row| row.misses == 0 && (row.in_time || !with_times);
        self.cases.iter().all(clean)
    }

    /// Writes both files.
    ///
    /// # Errors
    ///
    /// What cannot be written.
    pub(super) fn write(&self, folder: &Path) -> Result<(), String> {
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        let files = [
            ("watchdog.json", json + "\n"),
            ("watchdog.md", self.markdown()),
        ];
        for (name, text) in files {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}
