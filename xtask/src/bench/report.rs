//! The figures as JSON, and as the tables of `docs/bench/compare.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::runner::SCENARIOS;
use super::{Results, of};

/// All figures, and how they were measured.
pub(super) fn json(
    results: &Results,
    versions: &BTreeMap<String, String>,
    skipped: &[(String, String)],
    machine: &str,
    command: &str,
) -> Value {
    let scenarios = SCENARIOS.iter().map(|scenario| {
        let figures = of(results, scenario).map(|(label, figures)| {
            let mut figures = json!(figures);
            figures["library"] = label.into();
            figures
        });
        let figures: Vec<_> = figures.collect();
        json!({"scenario": scenario.name, "what": scenario.what, "results": figures})
    });
    let skipped = skipped
        .iter()
        .map(|(what, why)| json!({"what": what, "why": why}));
    json!({
        "command": command,
        "machine": machine,
        "versions": versions,
        "left_out": skipped.collect::<Vec<_>>(),
        "scenarios": scenarios.collect::<Vec<_>>(),
    })
}

/// A document with a table for each scenario of a JSON report. Each library stands beside how many times its
/// throughput Leasehold has, if that was measured.
pub(super) fn document(report: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut document = format!(
        "# Leasehold and other libraries\n\n{}. Written by `{}`.\n",
        text(&report["machine"]),
        text(&report["command"])
    );
    for scenario in list(&report["scenarios"]) {
        let results = list(&scenario["results"]);
        if results.is_empty() {
            continue;
        }
        let mut ours = results.iter();
        let ours = ours.find(|figures| figures["library"] == "leasehold");
        let ours = ours.map(|figures| number(figures, RATE));
        let (name, what) = (text(&scenario["scenario"]), text(&scenario["what"]));
        let _ = write!(document, "\n## {name}\n\n{what}.\n\n{HEAD}");
        for figures in &results {
            let rate = number(figures, RATE);
            let unequal = Some(number(figures, "share_deviation")).filter(|share| *share > 0.0);
            let change = figures["release_to_acquisition_p50_us"].as_f64();
            let _ = writeln!(
                document,
                "| {} | {rate:.0} | {} | {} | {} | {} | {} | {:.3} | {} |",
                text(&figures["library"]),
                ours.map_or_else(
                    || "-".into(),
                    |ours| format!("{:.1}", ours / rate.max(1e-9))
                ),
                time(number(figures, "wait_p50_us")),
                time(number(figures, "wait_p99_us")),
                time(number(figures, "wait_max_us")),
                unequal.map_or_else(|| "-".into(), |share| format!("{:.1} %", share * 1e2)),
                number(figures, "script_calls_per_acquisition"),
                change.map_or_else(|| "-".into(), time),
            );
        }
    }
    document
}

const RATE: &str = "acquisitions_per_second";

const HEAD: &str = "\
| library | acquisitions/s | Leasehold has, times | wait, p50 | p99 | longest | off an equal share | \
script calls each | release to acquisition, p50 |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
";

fn number(figures: &Value, name: &str) -> f64 {
    figures[name].as_f64().unwrap_or_default()
}

/// A time with the unit that suits it.
fn time(micros: f64) -> String {
    let duration = Duration::try_from_secs_f64(micros / 1e6).unwrap_or_default();
    format!("{duration:.1?}")
}
