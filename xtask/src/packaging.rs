//! The files in `packaging` and the archives of a release, compared with the code.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::tidy::metrics::{self, Metrics};
use crate::tools::{cargo_line, output, root};

const DASHBOARD: &str = "packaging/grafana/leasehold.json";
const ALERTS: &str = "packaging/prometheus/alerts.yml";
const ALERTS_TEST: &str = "packaging/prometheus/alerts_test.yml";

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

/// Reads the sources that record metrics.
fn sources(directory: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root()).unwrap().to_string_lossy();
            found.insert(name.into_owned(), fs::read_to_string(&path).unwrap());
        }
    }
}

/// The names in a text that begin like those of metrics. A histogram has three series, with suffixes.
fn names<'a>(text: &'a str, recorded: &Metrics<'_>) -> BTreeSet<&'a str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let words = words.filter(|word| word.starts_with("leasehold_") && !word.ends_with('_'));
    let metric = |series: &'a str| {
        let suffixes = ["_bucket", "_sum", "_count"];
        let base = suffixes.iter().find_map(|end| series.strip_suffix(end));
        base.filter(|base| recorded.contains_key(base))
            .unwrap_or(series)
    };
    words.map(metric).collect()
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

/// A query of a label that no metric has would return nothing.
#[test]
fn the_dashboard_has_every_metric_and_queries_have_their_labels() {
    let mut texts = BTreeMap::new();
    for directory in metrics::SOURCES {
        sources(&root().join(directory), &mut texts);
    }
    let recorded = metrics::recorded(&texts);
    let known: BTreeSet<_> = recorded.keys().copied().collect();
    let (dashboard, alerts, tests) = (dashboard(), read(ALERTS), read(ALERTS_TEST));
    let mut queries = queries(&dashboard);
    assert_eq!(names(&queries.join("\n"), &recorded), known);
    for text in [&alerts, &tests] {
        let names = names(text, &recorded);
        assert!(names.is_subset(&known), "{names:?}");
    }
    let known = recorded
        .values()
        .flat_map(|(_, labels)| labels.iter().copied());
    let known: BTreeSet<_> = known.chain(LABELS_ADDED).collect();
    queries.extend(alerts.lines().filter(|line| line.contains(" expr: ")));
    assert_eq!(labels("sum by (a, b) (x{c=\"1\",d!~\"2\"})").len(), 4);
    for query in queries {
        let labels = labels(query);
        assert!(labels.is_subset(&known), "{labels:?} in {query}");
    }
}

#[test]
fn panels_have_a_place_a_description_and_a_unit() {
    let dashboard = dashboard();
    let (mut ids, mut cells) = (HashSet::new(), HashSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = text(&panel["title"]);
        assert!(!title.is_empty() && ids.insert(&panel["id"]), "{title}");
        let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        let (x, y) = (place("x"), place("y"));
        assert!(x + place("w") <= 24, "{title}");
        let mut own = (x..x + place("w")).flat_map(|x| (y..y + place("h")).map(move |y| (x, y)));
        assert!(own.all(|cell| cells.insert(cell)), "{title} overlaps");
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

/// `.ci/check-manifests` checks the rest.
#[test]
fn alerts_have_all_fields_and_tests() {
    let (alerts, tests) = (read(ALERTS), read(ALERTS_TEST));
    let page = read(metrics::PAGE);
    let alerts: Vec<_> = alerts.split("- alert: ").skip(1).collect();
    assert!(!alerts.is_empty());
    for alert in alerts {
        let name = alert.lines().next().unwrap();
        for field in ["expr", "for", "summary", "description"] {
            assert!(alert.contains(&format!(" {field}: ")), "{name}: {field}");
        }
        let severity = |severity| alert.contains(&format!("severity: {severity}\n"));
        assert!(severity("critical") || severity("warning"), "{name}");
        let link = format!("runbook_url: {RUNBOOK}{}#alerts\n", metrics::PAGE);
        assert!(alert.contains(&link), "{name}");
        assert!(tests.contains(&format!("alertname=\"{name}\"")), "{name}");
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn binstall_finds_the_archive_and_the_program_in_it() {
    let metadata = "metadata --no-deps --locked --format-version 1";
    let metadata = output(&mut cargo_line(metadata)).unwrap();
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let mut packages = metadata["packages"].as_array().unwrap().iter();
    let package = packages.find(|it| it["name"] == "leasehold-cli").unwrap();
    let binstall = |key: &str| text(&package["metadata"]["binstall"][key]);
    let name = "leasehold-{ version }-{ target }";
    let release = "{ repo }/releases/download/v{ version }";
    assert_eq!(binstall("pkg-url"), format!("{release}/{name}.tar.gz"));
    let program = format!("{name}/{{ bin }}{{ binary-ext }}");
    assert_eq!(binstall("bin-dir"), program);
    let dist = read(".ci/dist");
    assert!(dist.contains("\nname=leasehold-$version-${triple:-"));
    assert!(dist.contains("\"$dist/$name.tar.gz\" \"$name\"\n"));
}
