//! The findings of a run: figures by name for programs, tables and remarks for people.

use serde_json::{Map, Value};

use crate::format::number;
use crate::options::Scenario;

/// The length of the longest bar of a table, in characters.
const BAR: usize = 36;

/// The findings of a run. Names and units of figures stay as they are.
#[derive(Debug)]
pub(crate) struct Report {
    title: String,
    figures: Map<String, Value>,
    tables: Vec<String>,
    remarks: Vec<String>,
    failure: Option<String>,
}

/// A row of a table: its name, the figure that its bar shows, and its cells.
pub(crate) struct Row {
    name: String,
    figure: f64,
    cells: Vec<String>,
}

impl Row {
    pub(crate) fn new(name: impl Into<String>, figure: f64, cells: impl Into<Vec<String>>) -> Self {
        Self {
            name: name.into(),
            figure,
            cells: cells.into(),
        }
    }
}

impl Report {
    /// A report about a workload; `store` is the store's URL without a password.
    pub(crate) fn new(scenario: Scenario, workload: &str, seconds: f64, store: &str) -> Self {
        let mut report = Self {
            title: format!("{scenario}: {workload}, {} s at {store}", number(seconds)),
            figures: Map::new(),
            tables: Vec::new(),
            remarks: Vec::new(),
            failure: None,
        };
        report.figure("scenario", scenario.to_string());
        report.figure("store", store);
        report.figure("seconds", seconds);
        report
    }

    /// Adds a figure, or an object of them.
    pub(crate) fn figure(&mut self, name: &str, figure: impl Into<Value>) {
        self.figures.insert(name.into(), figure.into());
    }

    /// Adds the figures of an object, each by its own name.
    pub(crate) fn figures(&mut self, figures: Value) {
        if let Value::Object(figures) = figures {
            self.figures.extend(figures);
        }
    }

    /// Adds a table; the bar of the largest figure is the longest.
    pub(crate) fn table(&mut self, heading: &str, columns: &[&str], rows: &[Row]) {
        let mut lines = vec![
            format!("{heading:<50}{}", cells(columns))
                .trim_end()
                .to_owned(),
        ];
        let largest = rows.iter().map(|row| row.figure);
        let largest = largest.fold(f64::MIN_POSITIVE, f64::max);
        for row in rows {
            let bar = bar(row.figure / largest);
            lines.push(format!("  {:<11} {bar}{}", row.name, cells(&row.cells)));
        }
        self.tables.push(lines.join("\n"));
    }

    /// Adds a line with a name and a text.
    pub(crate) fn remark(&mut self, name: &str, text: impl AsRef<str>) {
        self.remarks.push(format!("  {name:<48} {}", text.as_ref()));
    }

    /// Marks the run as failed.
    pub(crate) fn fail(&mut self, failure: String) {
        self.failure = Some(failure);
    }

    /// Why the run failed, if it did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// All figures as one JSON object.
    pub(crate) fn json(&self) -> String {
        Value::Object(self.figures.clone()).to_string()
    }

    /// The tables, then the remarks.
    pub(crate) fn text(&self) -> String {
        let mut parts = vec![self.title.clone()];
        parts.extend_from_slice(&self.tables);
        parts.push(self.remarks.join("\n"));
        parts.join("\n\n")
    }
}

fn cells(cells: &[impl AsRef<str>]) -> String {
    let cells = cells.iter().map(|cell| format!(" {:>10}", cell.as_ref()));
    cells.collect()
}

/// A bar for a part of the longest, to an eighth of a character, and the space that it leaves.
fn bar(part: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    // From 0 to 288: a share of a constant.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let eighths = (part.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    let text = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
    format!("{text:<BAR$}")
}

#[cfg(test)]
impl Report {
    /// The figure at a path such as `held.renewals`.
    pub(crate) fn at(&self, path: &str) -> &Value {
        let (first, rest) = path.split_once('.').unwrap_or((path, ""));
        let rest = rest.split('.').filter(|name| !name.is_empty());
        rest.fold(&self.figures[first], |value, name| &value[name])
    }

    /// The same as a number.
    pub(crate) fn number(&self, path: &str) -> f64 {
        let value = self.at(path);
        let number = value.as_f64();
        number.unwrap_or_else(|| panic!("{path} is {value}"))
    }

    /// Checks that a number is right to three digits.
    #[track_caller]
    pub(crate) fn check(&self, path: &str, expected: f64) {
        let number = self.number(path);
        let near = (number - expected).abs() <= expected.abs() * 2e-3;
        assert!(near, "{path}: {number}, not {expected}");
    }

    /// Checks that there is a bar of each name, and that no line is too wide for a terminal.
    #[track_caller]
    pub(crate) fn check_bars(&self, names: &[&str]) {
        let text = self.text();
        for name in names {
            let mut lines = text.lines().map(str::trim_start);
            let barred = lines.any(|line| line.starts_with(name) && line.contains('█'));
            assert!(barred, "{name}:\n{text}");
        }
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(84), "{widest:?}:\n{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_part() {
        assert_eq!(bar(1.0), "█".repeat(BAR));
        assert_eq!(bar(0.5).trim_end(), "█".repeat(BAR / 2));
        assert_eq!(bar(1.0 / (8.0 * 36.0)).trim_end(), "▏");
        assert_eq!(bar(0.0), " ".repeat(BAR));
        assert_eq!(bar(f64::INFINITY), bar(1.0));
    }

    #[test]
    fn cells_stand_below_their_headings() {
        let mut report = Report::new(Scenario::Renew, "nothing", 5.0, "memory:");
        let cells = ["1.00µs".to_owned(), "2.00µs".to_owned()];
        report.table("waits", &["p50", "p99"], &[Row::new("all", 0.5, cells)]);
        report.remark("name", "text");
        let text = report.text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "renew: nothing, 5 s at memory:");
        assert_eq!(lines[2].chars().count(), lines[3].chars().count());
        assert_eq!(
            report.json(),
            r#"{"scenario":"renew","seconds":5.0,"store":"memory:"}"#
        );
    }
}
