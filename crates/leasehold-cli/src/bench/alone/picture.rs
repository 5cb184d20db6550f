//! The answer, for people.

use super::report::Report;
use crate::bench::Scenario;
use crate::bench::drawing::{barred, count, heading, name_of, span, thousands};
use crate::bench::figures::Figures;

/// The report as a few lines with a bar for each side.
pub(in crate::bench) fn draw(report: &Report) -> String {
    let [we, they] = match report.scenario {
        Scenario::Watched => ["watched", "not watched"],
        _ => ["leasehold", "bare calls"],
    };
    let sides = [(we, &report.ours), (they, &report.raw)];
    let mut lines = vec![
        format!(
            "{}: {} on {}, {} s at {}",
            name_of(&report.scenario),
            count(report.tasks, "task"),
            count(report.threads.into(), "thread"),
            report.seconds,
            report.store
        ),
        String::new(),
        heading("acquisitions a second", &[]),
    ];
    let most = most(&sides, |figures| figures.acquisitions_per_second);
    for (name, figures) in sides {
        let number = figures.acquisitions_per_second;
        lines.push(barred(name, number / most, &[thousands(number)]));
    }
    lines.push(String::new());
    lines.push(heading("one lock and release", &["p50", "p95", "p99"]));
    let most = self::most(&sides, |figures| figures.p50_us);
    for (name, figures) in sides {
        let times = [figures.p50_us, figures.p95_us, figures.p99_us].map(span);
        lines.push(barred(name, figures.p50_us / most, &times));
    }
    lines.push(String::new());
    lines.push(format!(
        "{we} does {:.2} times the acquisitions of {they}; one takes {:.2} times as long",
        report.ratio.throughput, report.ratio.p50
    ));
    let calls = [&report.ours, &report.raw].map(|figures| figures.commands_per_acquisition);
    if let [Some(ours), Some(raw)] = calls {
        lines.push(format!(
            "store calls for each acquisition: {ours:.2}, {they} {raw:.2}"
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn most(sides: &[(&str, &Figures); 2], figure: impl Fn(&Figures) -> f64) -> f64 {
    let figures = sides.iter().map(|(_, figures)| figure(figures));
    figures.fold(f64::MIN_POSITIVE, f64::max)
}
