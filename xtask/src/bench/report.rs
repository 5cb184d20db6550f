//! The figures as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::figures::Figures;
use super::play::SCENARIOS;
use super::{Results, of};

/// A table for each scenario, ours first, each beside how often ours goes into it.
pub(super) fn table(results: &Results) -> String {
    let mut text = String::new();
    for scenario in &SCENARIOS {
        let _ = writeln!(text, "\n{}: {}", scenario.name, scenario.what);
        let _ = writeln!(
            text,
            "  {:<28} {:>10} {:>8} {:>10} {:>10} {:>10} {:>7} {:>8} {:>12}",
            "", "acq/s", "ours is", "wait p50", "p99", "longest", "unfair", "scripts", "change p50"
        );
        let mut ours = None;
        for (label, figures) in of(results, scenario) {
            let ours = *ours.get_or_insert(figures.per_second);
            let unfair = if scenario.processes > 1 {
                format!("{:.1} %", figures.unfair * 1e2)
            } else {
                "-".into()
            };
            let _ = writeln!(
                text,
                "  {label:<28} {:>10.0} {:>7.1}x {:>10} {:>10} {:>10} {unfair:>7} {:>8.3} {:>12}",
                figures.per_second,
                ours / figures.per_second.max(1e-9),
                span(figures.wait_p50_us),
                span(figures.wait_p99_us),
                span(figures.wait_max_us),
                figures.scripts_each,
                figures.change_p50_us.map_or_else(|| "-".into(), span),
            );
        }
    }
    text
}

/// Everything, for programs.
pub(super) fn json(
    results: &Results,
    versions: &BTreeMap<String, String>,
    skipped: &[(String, String)],
    machine: &str,
    command: &str,
) -> String {
    let scenarios: Vec<Value> = SCENARIOS
        .iter()
        .map(|scenario| {
            let figures = of(results, scenario);
            let figures: Vec<_> = figures
                .map(|(label, figures)| entry(&label, figures))
                .collect();
            json!({"scenario": scenario.name, "what": scenario.what, "results": figures})
        })
        .collect();
    let skipped: Vec<_> = skipped
        .iter()
        .map(|(what, why)| json!({"what": what, "why": why}))
        .collect();
    let report = json!({
        "command": command,
        "machine": machine,
        "versions": versions,
        "left_out": skipped,
        "scenarios": scenarios,
    });
    format!("{report:#}\n")
}

fn entry(label: &str, figures: &Figures) -> Value {
    let mut entry = figures.json();
    entry["library"] = label.into();
    entry
}

/// A time with the unit that suits it.
pub(super) fn span(micros: f64) -> String {
    match micros {
        ..10.0 => format!("{micros:.1} us"),
        10.0..1e3 => format!("{micros:.0} us"),
        1e3..1e6 => format!("{:.1} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}
