//! The dashboard and the alerts in `packaging`, compared with the metrics that the code describes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::tools::root;

const DASHBOARD: &str = "packaging/grafana/leasehold.json";
const ALERTS: &str = "packaging/prometheus/alerts.yml";
const ALERTS_TEST: &str = "packaging/prometheus/alerts_test.yml";

const OPERATIONS: &str = "docs/operations.md";

/// The crates with metrics.
const SOURCES: [&str; 2] = ["crates/leasehold/src", "crates/leasehold-watchdog/src"];

/// The page that the alerts link to.
const RUNBOOK: &str = "https://github.com/leasehold/leasehold/blob/main/";

/// The labels that Prometheus adds, and those of the dashboard's data source.
const LABELS_ADDED: [&str; 3] = ["instance", "job", "le"];

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

fn dashboard() -> Value {
    serde_json::from_str(&read(DASHBOARD)).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The panels of a dashboard, without the headings of its rows.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    panels.filter(|panel| panel["type"] != "row")
}

/// All queries of a dashboard, those of its variables included.
fn queries(dashboard: &Value) -> Vec<&str> {
    let targets = panels(dashboard).flat_map(|panel| panel["targets"].as_array().unwrap());
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let definitions = variables.map(|variable| text(&variable["definition"]));
    let exprs = targets.map(|target| text(&target["expr"]));
    exprs.chain(definitions).collect()
}

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

/// The labels in the groupings and selectors of a query.
fn labels(query: &str) -> BTreeSet<&str> {
    let after = |begin, end| {
        let parts = query.split(begin).skip(1);
        parts.filter_map(move |part: &str| Some(part.split_once(end)?.0))
    };
    let groupings = after("by (", ')').flat_map(|list| list.split(','));
    let selectors = after("{", '}').flat_map(|list| list.split(','));
    let selected = selectors.filter_map(|matcher| matcher.split(['=', '!']).next());
    let labels = groupings.chain(selected).map(str::trim);
    labels.filter(|label| !label.is_empty()).collect()
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
    let dashboard = dashboard();
    let exprs = queries(&dashboard).join("\n");
    let series = names(&exprs).into_iter();
    let used: BTreeSet<_> = series.map(|series| metric(series, &described)).collect();
    assert_eq!(used, described.keys().copied().collect());
    for file in [ALERTS, ALERTS_TEST] {
        let text = read(file);
        for series in names(&text) {
            let metric = metric(series, &described);
            assert!(described.contains_key(metric), "{series} in {file}");
        }
    }
}

/// A query of a label that no metric has would return nothing.
#[test]
fn queries_have_the_labels_of_metrics() {
    let page = read(OPERATIONS);
    let rows = page.lines().filter(|row| row.starts_with("| `leasehold_"));
    let cells = rows.filter_map(|row| row.split('|').nth(3));
    let known = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let known: BTreeSet<_> = known.chain(LABELS_ADDED).collect();
    let (dashboard, alerts) = (dashboard(), read(ALERTS));
    let exprs = alerts.lines().filter(|line| line.contains(" expr: "));
    let mut queries = queries(&dashboard);
    queries.extend(exprs);
    assert_eq!(labels("sum by (a, b) (x{c=\"1\",d!~\"2\"})").len(), 4);
    for query in queries {
        let unknown: Vec<_> = labels(query).into_iter().collect();
        let is_known = |label: &&str| known.contains(label);
        assert!(unknown.iter().all(is_known), "{unknown:?} in {query}");
    }
}

#[test]
fn panels_have_a_place_a_description_and_a_unit() {
    let dashboard = dashboard();
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
    let (alerts, tests) = (read(ALERTS), read(ALERTS_TEST));
    let page = read(OPERATIONS);
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
