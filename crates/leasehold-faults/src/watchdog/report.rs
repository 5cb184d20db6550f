//! The report of the campaign: `watchdog.json`, and a table in `docs/faults/README.md`.

use std::fmt::{Display, Write as _};
use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::outcome::Row;

/// The lines around the table in the document.
const BEGIN: &str = "<!-- watchdog: begin, written by cargo xtask faults watchdog -->\n";
const END: &str = "<!-- watchdog: end -->\n";

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

    /// The report as text: the table, and what each case did.
    pub(super) fn markdown(&self) -> String {
        let mut text = self.table();
        text.push('\n');
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

    /// Circumstances and result, and a row for each case.
    fn table(&self) -> String {
        let Self {
            date,
            form,
            seconds,
            processors,
            ..
        } = self;
        let misses: usize = self.cases.iter().map(|row| row.misses).sum();
        let late = self.cases.iter().filter(|row| !row.in_time).count();
        let mut text = format!(
            "{date}, {form}, {seconds} s on a machine with {processors} processors and other load: \
             **{misses} misses; {late} cases slower than their aim.**\n\n"
        );
        text.push_str("| case | runs | misses | median | p99 | max | aim |\n");
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
        text
    }

    /// Whether nothing was missed. Times count if that is said.
    pub(super) fn is_clean(&self, with_times: bool) -> bool {
        let clean = |row: &Row| row.misses == 0 && (row.in_time || !with_times);
        self.cases.iter().all(clean)
    }

    /// Writes the report as data, and its table into the document.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or written, or a document without a place for the table.
    pub(super) fn write(&self, directory: &Path) -> Result<(), String> {
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        let data = directory.join("watchdog.json");
        let document = directory.join("README.md");
        let text = fs::read_to_string(&document).map_err(|error| failed(&document, error))?;
        let text = replaced(&text, &self.table())
            .ok_or_else(|| failed(&document, "no place for the table"))?;
        fs::write(&data, json + "\n").map_err(|error| failed(&data, error))?;
        fs::write(&document, text).map_err(|error| failed(&document, error))
    }
}

fn failed(path: &Path, error: impl Display) -> String {
    format!("{}: {error}", path.display())
}

/// The document with another table.
fn replaced(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_a_place_for_the_table() {
        let document = include_str!("../../../../docs/faults/README.md");
        let text = replaced(document, "a table\n").unwrap();
        assert!(text.contains("\na table\n"));
        assert_eq!(replaced(&text, "a table\n"), Some(text));
    }
}
