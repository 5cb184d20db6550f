//! The findings of a run: figures by name, as JSON for programs and in lines for people.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::options::Settings;

/// The figures of a run, and why it failed, if it did.
pub(crate) type Findings = (Value, Option<String>);

/// The findings of a run. Names and units of figures stay as they are.
///
/// A path such as `held.lag.p50_us` leads to a figure.
#[derive(Debug)]
pub(crate) struct Report {
    figures: Value,
    pub(crate) failure: Option<String>,
}

impl Report {
    /// A report of figures, each with its own name, and why the run failed, if it did. `store` is the store's URL without
    /// a password.
    pub(crate) fn new(settings: &Settings, store: &str, findings: Findings) -> Self {
        let (figures, failure) = findings;
        let seconds = settings.duration.as_secs_f64();
        let scenario = settings.scenario.to_string();
        let mut all = json!({"scenario": scenario, "store": store, "seconds": seconds});
        if let (Some(all), Value::Object(figures)) = (all.as_object_mut(), figures) {
            all.extend(figures);
        }
        Self {
            figures: all,
            failure,
        }
    }

    /// All figures as one JSON object.
    pub(crate) fn json(&self) -> String {
        self.figures.to_string()
    }

    /// All figures that are known, each with its path on a line.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        add_lines(&mut text, "", &self.figures);
        text
    }
}

fn add_lines(text: &mut String, path: &str, figure: &Value) {
    let join = |name: &str| format!("{path}.{name}").trim_start_matches('.').to_owned();
    match figure {
        Value::Null => {}
        Value::Object(figures) => {
            for (name, figure) in figures {
                add_lines(text, &join(name), figure);
            }
        }
        Value::Array(figures) => {
            for (number, figure) in figures.iter().enumerate() {
                add_lines(text, &join(&number.to_string()), figure);
            }
        }
        Value::String(figure) => add_line(text, path, figure),
        _ => add_line(text, path, &figure.to_string()),
    }
}

fn add_line(text: &mut String, path: &str, figure: &str) {
    let _ = writeln!(text, "{path:<44} {figure}");
}

/// Stands for a figure that is not known.
#[cfg(test)]
pub(crate) const UNKNOWN: f64 = f64::NAN;

/// Checks figures to three digits.
#[cfg(test)]
#[track_caller]
pub(crate) fn check(figures: &Value, expected: &[(&str, f64)]) {
    for (path, expected) in expected {
        let found = figures.pointer(&format!("/{}", path.replace('.', "/")));
        let found = found.filter(|figure| !figure.is_null());
        let ok = match found.map(Value::as_f64) {
            None => expected.is_nan(),
            Some(found) => {
                found.is_some_and(|found| (found - expected).abs() <= expected.abs() * 2e-3)
            }
        };
        assert!(ok, "{path}: {found:?}, not {expected}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Scenario;

    #[test]
    fn known_figures_are_lines_and_unknown_ones_are_null() {
        let figures = json!({"all": [{"p50_us": 1.25, "held": true}], "other": null});
        let report = Report::new(&Settings::of(Scenario::Renew), "memory:", (figures, None));
        let text = report.text();
        let lines: Vec<Vec<_>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        for line in [
            ["scenario", "renew"],
            ["seconds", "2.0"],
            ["all.0.p50_us", "1.25"],
            ["all.0.held", "true"],
        ] {
            assert!(lines.contains(&line.to_vec()), "{text}");
        }
        assert_eq!(lines.len(), 5);
        assert!(report.json().contains(r#""other":null"#));
    }
}
