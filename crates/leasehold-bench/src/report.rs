//! The findings of a run: figures by name for programs, and the same in tables and lines for people.

use serde_json::{Map, Value};

use crate::format::{number, time};
use crate::options::Scenario;

/// The length of the longest bar of a table, in characters.
const BAR: usize = 36;

/// The columns of a spread of latencies.
pub(crate) const SPREAD: [Column<'_>; 3] = [
    ("p50", "p50_us", time),
    ("p99", "p99_us", time),
    ("longest", "max_us", time),
];

/// A column of a table: its heading, the path of its figure below that of the row, and its format.
pub(crate) type Column<'a> = (&'a str, &'a str, fn(f64) -> String);

/// The findings of a run. Names and units of figures stay as they are.
///
/// A path such as `held.lag.p50_us` leads to a figure.
#[derive(Debug)]
pub(crate) struct Report {
    title: String,
    figures: Value,
    tables: Vec<String>,
    lines: Vec<String>,
    failure: Option<String>,
}

impl Report {
    /// A report about a workload; `store` is the store's URL without a password.
    pub(crate) fn new(scenario: Scenario, workload: &str, seconds: f64, store: &str) -> Self {
        let mut report = Self {
            title: format!("{scenario}: {workload}, {} s at {store}", number(seconds)),
            figures: Map::new().into(),
            tables: Vec::new(),
            lines: Vec::new(),
            failure: None,
        };
        report.add("scenario", scenario.to_string());
        report.add("store", store);
        report.add("seconds", seconds);
        report
    }

    /// Adds a figure, or an object of them.
    pub(crate) fn add(&mut self, name: &str, figure: impl Into<Value>) {
        self.figures[name] = figure.into();
    }

    /// Adds the figures of an object, each by its own name.
    pub(crate) fn add_all(&mut self, figures: Value) {
        if let (Some(all), Value::Object(figures)) = (self.figures.as_object_mut(), figures) {
            all.extend(figures);
        }
    }

    /// Adds a table of figures: each row has a name and a path. The bar shows the first column; a row
    /// without it is left out, and a table without rows.
    pub(crate) fn table<S: AsRef<str>>(
        &mut self,
        heading: &str,
        rows: &[(S, S)],
        columns: &[Column<'_>],
    ) {
        let headings = columns.iter().map(|(heading, ..)| (*heading).to_owned());
        let mut lines = vec![
            format!("{heading:<50}{}", cells(headings))
                .trim_end()
                .to_owned(),
        ];
        let figures = |path: &S| -> Option<Vec<f64>> {
            let paths = columns.iter().map(|(_, end, _)| join(path.as_ref(), end));
            paths.map(|path| self.number(&path)).collect()
        };
        let rows = rows
            .iter()
            .filter_map(|(name, path)| Some((name, figures(path)?)));
        let rows: Vec<_> = rows.collect();
        let first = rows.iter().map(|(_, figures)| figures[0]);
        let largest = first.fold(f64::MIN_POSITIVE, f64::max);
        for (name, figures) in &rows {
            let bar = bar(figures[0] / largest);
            let formats = columns.iter().zip(figures);
            let texts = cells(formats.map(|((.., format), figure)| format(*figure)));
            lines.push(format!("  {:<11} {bar}{texts}", name.as_ref()));
        }
        if !rows.is_empty() {
            self.tables.push(lines.join("\n"));
        }
    }

    /// Adds a line with a figure, if it is known.
    pub(crate) fn line(&mut self, name: &str, path: &str, format: impl Fn(f64) -> String) {
        if let Some(figure) = self.number(path) {
            self.lines.push(format!("  {name:<48} {}", format(figure)));
        }
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
        self.figures.to_string()
    }

    /// The tables, then the lines.
    pub(crate) fn text(&self) -> String {
        let mut parts = vec![self.title.clone()];
        parts.extend_from_slice(&self.tables);
        parts.push(self.lines.join("\n"));
        parts.join("\n\n")
    }

    /// The figure at a path. `None`: it is not known.
    pub(crate) fn at(&self, path: &str) -> Option<&Value> {
        let figure = self
            .figures
            .pointer(&format!("/{}", path.replace('.', "/")));
        figure.filter(|figure| !figure.is_null())
    }

    /// The number at a path.
    pub(crate) fn number(&self, path: &str) -> Option<f64> {
        self.at(path)?.as_f64()
    }
}

fn join(path: &str, end: &str) -> String {
    format!("{path}.{end}").trim_matches('.').to_owned()
}

fn cells(cells: impl Iterator<Item = String>) -> String {
    cells.map(|cell| format!(" {cell:>10}")).collect()
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
    /// Checks figures to three digits.
    #[track_caller]
    pub(crate) fn check(&self, figures: &[(&str, f64)]) {
        for (path, expected) in figures {
            let found = self.number(path);
            let near = |found: f64| (found - expected).abs() <= expected.abs() * 2e-3;
            assert!(found.is_some_and(near), "{path}: {found:?}, not {expected}");
        }
    }

    /// Checks that figures are not known.
    #[track_caller]
    pub(crate) fn check_unknown(&self, paths: &[&str]) {
        for path in paths {
            assert_eq!(self.at(path), None, "{path}");
        }
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
        assert!(widest <= Some(84) && !text.contains("NaN"), "{text}");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    fn figures_stand_below_their_headings_and_unknown_ones_nowhere() {
        let mut report = Report::new(Scenario::Renew, "nothing", 5.0, "memory:");
        report.add("all", json!([{"p50_us": 1, "p99_us": 2, "max_us": 3}]));
        report.add("other", Value::Null);
        report.table("waits", &[("all", "all.0"), ("other", "other")], &SPREAD);
        report.table("none", &[("other", "other")], &SPREAD);
        report.line("median", "all.0.p50_us", time);
        report.line("none", "other", time);
        let text = report.text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "renew: nothing, 5 s at memory:");
        assert_eq!(lines[2].chars().count(), lines[3].chars().count());
        assert!(lines[3].ends_with("1.00µs     2.00µs     3.00µs"), "{text}");
        assert_eq!(lines.len(), 6);
        assert!(report.json().contains(r#""other":null"#));
    }
}
