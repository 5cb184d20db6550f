//! What the crowd got, for people.

use super::report::{Got, Report};
use crate::bench::drawing::{
    barred, count, heading, name_of, percent, plain, span, thousands, times,
};

/// The report as a few lines with a bar for each figure.
pub(in crate::bench) fn draw(report: &Report) -> String {
    let rows = rows(report);
    let mut lines = vec![title(report), String::new()];
    lines.extend(rates(report, &rows));
    lines.push(String::new());
    lines.extend(tasks(report));
    lines.push(String::new());
    lines.extend(waits(&rows));
    lines.push(String::new());
    lines.extend(remarks(report));
    lines.push(String::new());
    lines.join("\n")
}

fn rates(report: &Report, rows: &[Row]) -> Vec<String> {
    let several = report.processes > 1;
    let columns: &[&str] = if several { &["", "share"] } else { &[] };
    let mut lines = vec![heading("acquisitions a second", columns)];
    for row in rows {
        let number = row.got.acquisitions_per_second;
        let mut figures = vec![thousands(number)];
        if several {
            figures.push(percent(row.share));
        }
        let part = part(number, report.all.acquisitions_per_second);
        lines.push(barred(&row.name, part, &figures));
    }
    lines
}

fn tasks(report: &Report) -> Vec<String> {
    let fairness = &report.fairness;
    let mut lines = vec![heading("those of one task", &[])];
    for (name, number) in [
        ("busiest", fairness.task_per_second_max),
        ("median", fairness.task_per_second_median),
        ("idlest", fairness.task_per_second_min),
    ] {
        let part = part(number, fairness.task_per_second_max);
        lines.push(barred(name, part, &[thousands(number)]));
    }
    lines
}

fn waits(rows: &[Row]) -> Vec<String> {
    let mut lines = vec![heading("the wait for a lock", &["p50", "p99", "longest"])];
    let longest = rows.iter().map(|row| row.got.wait.p50_us);
    let longest = longest.fold(0.0, f64::max);
    for row in rows {
        let wait = row.got.wait;
        let figures = [wait.p50_us, wait.p99_us, wait.max_us].map(span);
        lines.push(barred(&row.name, part(wait.p50_us, longest), &figures));
    }
    lines
}

fn title(report: &Report) -> String {
    let each = if report.processes == 1 { "" } else { " each" };
    let names = match report.names {
        1 => "one name".to_owned(),
        names => count(names as usize, "name"),
    };
    format!(
        "{}: {names}, {} of {} on {}{each}, {} s at {}",
        name_of(&report.scenario),
        count(report.processes.into(), "process"),
        count(report.tasks.into(), "task"),
        count(report.threads.into(), "thread"),
        report.seconds,
        report.store
    )
}

/// One process, or all of them.
struct Row {
    name: String,
    got: Got,
    share: f64,
}

/// All together first; then each, if there are more than one.
fn rows(report: &Report) -> Vec<Row> {
    let mut rows = vec![Row {
        name: "all".to_owned(),
        got: report.all,
        share: 1.0,
    }];
    if report.processes > 1 {
        rows.extend(
            report
                .by_process
                .iter()
                .enumerate()
                .map(|(number, part)| Row {
                    name: format!("process {}", number + 1),
                    got: part.got,
                    share: part.share,
                }),
        );
    }
    rows
}

fn remarks(report: &Report) -> Vec<String> {
    let fairness = &report.fairness;
    let mut lines = Vec::new();
    if let Some(calls) = report.all.commands_per_acquisition {
        lines.push(plain(
            "store calls for each acquisition",
            &format!("{calls:.3}"),
        ));
    }
    let handoffs = format!("{:.3}", report.all.handoffs_per_acquisition);
    lines.push(plain("hand-offs for each acquisition", &handoffs));
    if let Some(section) = &report.section {
        let mean = format!(
            "{} (asked for {})",
            span(section.mean_us),
            span(section.asked_us)
        );
        lines.push(plain("a critical section took", &mean));
        lines.push(plain("the lock was in use", &percent(section.in_use)));
    }
    let spread = format!("{} the median", times(fairness.wait_p99_per_p50));
    lines.push(plain("the p99 of the waits is", &spread));
    if report.processes > 1 {
        let far = percent(fairness.process_departure);
        lines.push(plain("a process is off an equal share by at most", &far));
    }
    let far = percent(fairness.task_departure);
    lines.push(plain("a task is off an equal share by at most", &far));
    let exclusion = &report.exclusion;
    let verdict = if exclusion.held { "held" } else { "BROKEN" };
    #[allow(clippy::cast_precision_loss)]
    let watched = thousands(exclusion.acquisitions as f64);
    let watched = format!("{verdict}, {watched} acquisitions watched");
    lines.push(plain("mutual exclusion and the order of tokens", &watched));
    lines
}

fn part(figure: f64, most: f64) -> f64 {
    figure / most.max(f64::MIN_POSITIVE)
}
