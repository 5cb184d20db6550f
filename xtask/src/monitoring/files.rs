//! The dashboard and the rules of the alerts.

use std::fs;

use serde_json::Value;

use crate::tools::root;

/// The directory of the alerts.
pub(super) const PROMETHEUS: &str = "packaging/prometheus";

const DASHBOARD: &str = "packaging/grafana/leasehold.json";

/// The values of the variables of the dashboard: everything, in a short time.
const VARIABLES: [(&str, &str); 5] = [
    ("$__rate_interval", "20s"),
    ("$__range", "10m"),
    ("$job", ".*"),
    ("$instance", ".*"),
    ("$node", ".*"),
];

/// A query of the dashboard.
#[derive(Debug)]
pub(super) struct Query {
    /// The panel or variable that has it.
    pub(super) place: String,
    pub(super) expr: String,
}

pub(super) fn read(file: &str) -> Result<String, String> {
    fs::read_to_string(root().join(file)).map_err(|error| format!("{file}: {error}"))
}

pub(super) fn dashboard() -> Result<Value, String> {
    serde_json::from_str(&read(DASHBOARD)?).map_err(|error| format!("{DASHBOARD}: {error}"))
}

/// The panels of a dashboard, without the headings of its rows.
pub(super) fn panels(dashboard: &Value) -> Vec<&Value> {
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    panels.filter(|panel| panel["type"] != "row").collect()
}

/// All queries of a dashboard, with values for its variables. A query for the values of a label counts the series of
/// each.
pub(super) fn queries(dashboard: &Value) -> Vec<Query> {
    let mut queries = Vec::new();
    for panel in panels(dashboard) {
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push(Query {
                place: text(&panel["title"]),
                expr: substituted(&text(&target["expr"])),
            });
        }
    }
    let variables = dashboard["templating"]["list"].as_array();
    for variable in variables.into_iter().flatten() {
        let definition = text(&variable["definition"]);
        let arguments = definition.strip_prefix("label_values(");
        let arguments = arguments.and_then(|rest| rest.strip_suffix(')')?.rsplit_once(", "));
        if let Some((selector, label)) = arguments {
            queries.push(Query {
                place: text(&variable["name"]),
                expr: substituted(&format!("count by ({label}) ({selector})")),
            });
        }
    }
    queries
}

fn substituted(expr: &str) -> String {
    let replace = |expr: String, (name, value): (&str, &str)| expr.replace(name, value);
    VARIABLES.into_iter().fold(expr.to_owned(), replace)
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet, HashSet};
    use std::path::Path;

    use super::*;

    const ALERTS: &str = "packaging/prometheus/alerts.yml";
    const ALERTS_TEST: &str = "packaging/prometheus/alerts_test.yml";

    const OPERATIONS: &str = "docs/operations.md";

    /// The crates with metrics.
    const SOURCES: [&str; 2] = ["crates/leasehold/src", "crates/leasehold-watchdog/src"];

    /// The page that the alerts link to.
    const RUNBOOK: &str = "https://github.com/leasehold/leasehold/blob/main/";

    fn sources(directory: &Path, text: &mut String) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }

    fn source() -> String {
        let mut text = String::new();
        for directory in SOURCES {
            sources(&root().join(directory), &mut text);
        }
        text
    }

    /// The names in a text that begin like those of metrics.
    fn names(text: &str) -> BTreeSet<&str> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let words = words.filter(|word| word.starts_with("leasehold_") && !word.ends_with('_'));
        words.collect()
    }

    /// The kind of each metric that the code describes.
    fn described(source: &str) -> BTreeMap<&str, &str> {
        let mut described = BTreeMap::new();
        for kind in ["counter", "gauge", "histogram"] {
            for call in source.split(&format!("describe_{kind}!(")).skip(1) {
                let name = call.split('"').nth(1).unwrap();
                described.insert(name, kind);
            }
        }
        described
    }

    /// The metric of a series: a histogram has three, with suffixes.
    fn metric<'a>(series: &'a str, described: &BTreeMap<&str, &str>) -> &'a str {
        let suffixes = ["_bucket", "_sum", "_count"];
        let base = suffixes.iter().find_map(|end| series.strip_suffix(end));
        match base {
            Some(base) if described.get(base) == Some(&"histogram") => base,
            _ => series,
        }
    }

    #[test]
    fn every_metric_is_described_with_its_kind_and_unit() {
        let source = source();
        let described = described(&source);
        let literals = source.split('"').filter(|text| {
            let name = |c: char| c.is_ascii_lowercase() || c == '_';
            text.starts_with("leasehold_") && text.chars().all(name) && !text.ends_with('_')
        });
        let used: BTreeSet<_> = literals.collect();
        assert_eq!(used, described.keys().copied().collect());
        for (name, kind) in described {
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
            let is_time = name.ends_with("_seconds") && !name.ends_with("_timestamp_seconds");
            assert_eq!(is_time, kind == "histogram", "{name}");
        }
    }

    #[test]
    fn the_dashboard_has_every_metric_and_no_other_names() {
        let source = source();
        let described = described(&source);
        let exprs: String = queries(&dashboard().unwrap())
            .into_iter()
            .map(|query| query.expr + "\n")
            .collect();
        let series = names(&exprs).into_iter();
        let used: BTreeSet<_> = series.map(|series| metric(series, &described)).collect();
        assert_eq!(used, described.keys().copied().collect());
        for file in [ALERTS, ALERTS_TEST] {
            let text = read(file).unwrap();
            for series in names(&text) {
                let metric = metric(series, &described);
                assert!(described.contains_key(metric), "{series} in {file}");
            }
        }
    }

    #[test]
    fn panels_have_a_place_a_description_and_a_unit() {
        let dashboard = dashboard().unwrap();
        let mut ids = HashSet::new();
        let mut cells = HashSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            let title = text(&panel["title"]);
            assert!(!title.is_empty() && ids.insert(&panel["id"]), "{title}");
            let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
            let (x, y) = (place("x"), place("y"));
            assert!(x + place("w") <= 24, "{title}");
            for x in x..x + place("w") {
                for y in y..y + place("h") {
                    assert!(cells.insert((x, y)), "{title} overlaps another panel");
                }
            }
        }
        for panel in panels(&dashboard) {
            let title = text(&panel["title"]);
            assert!(text(&panel["description"]).ends_with('.'), "{title}");
            let defaults = &panel["fieldConfig"]["defaults"];
            let states = !defaults["mappings"].as_array().unwrap().is_empty();
            assert!(states || defaults["unit"].is_string(), "{title}");
            let mut references = HashSet::new();
            for target in panel["targets"].as_array().unwrap() {
                assert!(references.insert(&target["refId"]), "{title}");
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
                assert!(!text(&target["expr"]).is_empty(), "{title}");
            }
        }
    }

    #[test]
    fn alerts_have_all_fields_and_tests() {
        let (alerts, tests) = (read(ALERTS).unwrap(), read(ALERTS_TEST).unwrap());
        let page = read(OPERATIONS).unwrap();
        let mut names = HashSet::new();
        for alert in alerts.split("- alert: ").skip(1) {
            let name = alert.lines().next().unwrap();
            assert!(names.insert(name), "{name}");
            for field in ["expr", "for", "summary", "description"] {
                assert!(alert.contains(&format!(" {field}: ")), "{name}: {field}");
            }
            let severity = |severity| alert.contains(&format!("severity: {severity}\n"));
            assert!(severity("critical") || severity("warning"), "{name}");
            let (_, link) = alert.split_once("runbook_url: ").unwrap();
            let link = link.lines().next().unwrap();
            assert_eq!(link, format!("{RUNBOOK}{OPERATIONS}#alerts"));
            assert!(tests.contains(&format!("alertname=\"{name}\"")), "{name}");
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
        assert!(!names.is_empty());
    }
}
