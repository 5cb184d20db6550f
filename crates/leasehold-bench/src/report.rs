//! The findings of a run: figures by name, as JSON for programs and in lines for people.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::options::Scenario;

/// The findings of a run. Names and units of figures stay as they are.
///
/// A path such as `held.lag.p50_us` leads to a figure.
#[derive(Debug)]
pub(crate) struct Report {
    figures: Value,
    /// Why the run failed, if it did.
    pub(crate) failure: Option<String>,
}

impl Report {
    /// A report; `store` is the store's URL without a password.
    pub(crate) fn new(scenario: Scenario, seconds: f64, store: &str) -> Self {
        let mut report = Self {
            figures: Map::new().into(),
            failure: None,
        };
        let scenario = scenario.to_string();
        report.add_all(json!({"scenario": scenario, "store": store, "seconds": seconds}));
        report
    }

    /// Adds the figures of an object, each by its own name.
    pub(crate) fn add_all(&mut self, figures: Value) {
        if let (Some(all), Value::Object(figures)) = (self.figures.as_object_mut(), figures) {
            all.extend(figures);
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

    /// The figure at a path. `None`: it is not known.
    #[cfg(test)]
    pub(crate) fn at(&self, path: &str) -> Option<&Value> {
        let figure = self
            .figures
            .pointer(&format!("/{}", path.replace('.', "/")));
        figure.filter(|figure| !figure.is_null())
    }

    /// The number at a path.
    #[cfg(test)]
    pub(crate) fn number(&self, path: &str) -> Option<f64> {
        self.at(path)?.as_f64()
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_figures_are_lines_and_unknown_ones_are_null() {
        let mut report = Report::new(Scenario::Renew, 5.0, "memory:");
        report.add_all(json!({"all": [{"p50_us": 1.25, "held": true}], "other": null}));
        let text = report.text();
        let lines: Vec<Vec<_>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        for line in [
            ["scenario", "renew"],
            ["seconds", "5.0"],
            ["all.0.p50_us", "1.25"],
            ["all.0.held", "true"],
        ] {
            assert!(lines.contains(&line.to_vec()), "{text}");
        }
        assert_eq!(lines.len(), 5);
        assert!(report.json().contains(r#""other":null"#));
    }
}
