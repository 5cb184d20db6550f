//! What was found about waking up, for people.

use super::report::{Report, Work};
use crate::bench::drawing::{barred, count, heading, name_of, plain, span, thousands, times};

/// The report as a few lines with a bar for each figure.
pub(in crate::bench) fn draw(report: &Report) -> String {
    let mut lines = vec![
        format!(
            "{}: {} in 2 processes, {} s at {}",
            name_of(&report.scenario),
            count(usize::from(report.waiters) + 1, "client"),
            report.seconds,
            report.store
        ),
        String::new(),
        heading("from release to acquisition", &["p50", "p99", "longest"]),
    ];
    let ping = report.ping.map(|ping| ("ping", ping));
    let spreads = [
        ("wake-up", report.wake_up),
        ("bare call", report.round_trip),
    ];
    let spreads: Vec<_> = spreads.into_iter().chain(ping).collect();
    let longest = spreads.iter().map(|(_, spread)| spread.p50_us);
    let longest = longest.fold(f64::MIN_POSITIVE, f64::max);
    for (name, spread) in spreads {
        let figures = [spread.p50_us, spread.p99_us, spread.max_us].map(span);
        lines.push(barred(name, spread.p50_us / longest, &figures));
    }
    lines.extend(server_time(report));
    lines.push(String::new());
    lines.push(plain(
        "a wake-up takes",
        &format!("{} a bare call", times(report.ratio.p50)),
    ));
    #[allow(clippy::cast_precision_loss)]
    let measured = thousands(report.wake_up.count as f64);
    lines.push(plain("wake-ups measured", &measured));
    if let Some(ratio) = report.server_cpu_ratio {
        let many = format!("{} its time for one", times(ratio));
        lines.push(plain("with many waiters a release takes the server", &many));
    }
    let works = [Some(report.one_waiter), report.many_waiters];
    for work in works.into_iter().flatten() {
        if let Some(calls) = work.commands_per_release {
            let text = format!("store calls for each release, {}", waiters(&work));
            lines.push(plain(&text, &format!("{calls:.2}")));
        }
    }
    if let Some(questions) = report.asleep.questions_per_waiter_and_ttl {
        let text = "questions of a waiter in a ttl without a release";
        lines.push(plain(text, &format!("{questions:.2}")));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn server_time(report: &Report) -> Vec<String> {
    let works = [Some(report.one_waiter), report.many_waiters];
    let known = works.into_iter().flatten().filter_map(|work| {
        let cpu = work.server_cpu_us_per_release?;
        Some((work, cpu, work.script_us_per_release?))
    });
    let known: Vec<_> = known.collect();
    if known.is_empty() {
        return Vec::new();
    }
    let most = known.iter().map(|(_, cpu, _)| *cpu);
    let most = most.fold(f64::MIN_POSITIVE, f64::max);
    let title = heading(
        "server time for each release",
        &["in all", "in scripts", "releases"],
    );
    let mut lines = vec![String::new(), title];
    for (work, cpu, scripts) in known {
        #[allow(clippy::cast_precision_loss)]
        let releases = thousands(work.releases as f64);
        let figures = [span(cpu), span(scripts), releases];
        lines.push(barred(&waiters(&work), cpu / most, &figures));
    }
    lines
}

fn waiters(work: &Work) -> String {
    count(work.waiters.into(), "waiter")
}
