//! What was found about renewals, for people.

use super::report::{Held, Memory, Renewal, Report};
use crate::bench::drawing::{barred, count, heading, name_of, plain, span, thousands, times};

/// The report as a few lines with a bar for each figure.
pub(in crate::bench) fn draw(report: &Report) -> String {
    let mut lines = vec![
        format!(
            "{}: {} with a ttl of {} s, {} s at {}",
            name_of(&report.scenario),
            leases(report),
            report.ttl_ms as f64 / 1e3,
            report.seconds.round(),
            report.store
        ),
        String::new(),
    ];
    lines.extend(cores(&report.held));
    lines.extend(lag(&report.held));
    if let Some(renewal) = &report.renewal {
        lines.extend(server_time(renewal));
    }
    lines.extend(pairs(report));
    lines.push(String::new());
    lines.extend(renewals(&report.held));
    lines.extend(comparisons(report));
    if let Some(memory) = &report.memory {
        lines.extend(memory_of(memory));
    }
    lines.extend(fate(report));
    lines.push(String::new());
    lines.join("\n")
}

fn leases(report: &Report) -> String {
    count(report.leases as usize, "lease")
}

/// The processor time for nothing but renewals.
fn cores(held: &Held) -> Vec<String> {
    let mut lines = vec![heading("processor time for renewals, of one core", &[])];
    let cores = [Some(("process", held.process_cpu)), server(held)];
    let most = cores.iter().flatten().map(|(_, cpu)| *cpu);
    let most = most.fold(f64::MIN_POSITIVE, f64::max);
    for (name, cpu) in cores.into_iter().flatten() {
        let figure = format!("{:.2} %", cpu * 100.0);
        lines.push(barred(name, cpu / most, &[figure]));
    }
    lines
}

fn server(held: &Held) -> Option<(&'static str, f64)> {
    held.server_cpu.map(|cpu| ("server", cpu))
}

fn lag(held: &Held) -> Vec<String> {
    let Some(lag) = held.lag else {
        return Vec::new();
    };
    let figures = [lag.p50_us, lag.p99_us, lag.max_us];
    vec![
        String::new(),
        heading(
            "renewals sent after they were due",
            &["p50", "p99", "longest"],
        ),
        barred("batches", 1.0, &figures.map(span)),
    ]
}

fn server_time(renewal: &Renewal) -> Vec<String> {
    let columns = ["in all", "in scripts", "renewals"];
    let mut lines = vec![
        String::new(),
        heading("server time for each renewal", &columns),
    ];
    let costs = [("leasehold", renewal.ours), ("bare calls", renewal.bare)];
    let most = costs.map(|(_, cost)| cost.server_cpu_us);
    let most = most.into_iter().fold(f64::MIN_POSITIVE, f64::max);
    for (name, cost) in costs {
        #[allow(clippy::cast_precision_loss)]
        let renewals = thousands(cost.renewals as f64);
        let figures = [span(cost.server_cpu_us), span(cost.script_us), renewals];
        lines.push(barred(name, cost.server_cpu_us / most, &figures));
    }
    lines
}

fn pairs(report: &Report) -> Vec<String> {
    let columns = ["p50", "p99", "a second"];
    let mut lines = vec![
        String::new(),
        heading("another lock and its release", &columns),
    ];
    let paces = [
        ("no leases", report.pairs.alone),
        ("beside them", report.pairs.beside),
    ];
    let most = paces.map(|(_, pace)| pace.p50_us);
    let most = most.into_iter().fold(f64::MIN_POSITIVE, f64::max);
    for (name, pace) in paces {
        let figures = [
            span(pace.p50_us),
            span(pace.p99_us),
            thousands(pace.per_second),
        ];
        lines.push(barred(name, pace.p50_us / most, &figures));
    }
    lines
}

fn renewals(held: &Held) -> Vec<String> {
    #[allow(clippy::cast_precision_loss)]
    let mut text = thousands(held.renewals as f64);
    if let Some(every) = held.renewed_every_s {
        text.push_str(&format!(", each lease every {every:.2} s"));
    }
    let mut lines = vec![plain("renewals", &text)];
    if let Some(calls) = held.calls_per_10_s {
        lines.push(plain("store calls in 10 s", &thousands(calls)));
    }
    if let Some(renewals) = held.renewals_per_batch {
        lines.push(plain("renewals in a batch", &format!("{renewals:.1}")));
    }
    lines
}

fn comparisons(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(renewal) = &report.renewal {
        let ratio = renewal.ratio;
        let text = format!("{} a bare call's time", times(ratio.server_cpu));
        lines.push(plain("a renewal takes the server", &text));
        let text = format!("{} a bare call's time", times(ratio.script));
        lines.push(plain("and in scripts", &text));
    }
    let ratio = report.pairs.ratio;
    let text = format!("{} its time alone", times(ratio.p50));
    lines.push(plain("another lock and its release takes", &text));
    let text = format!("{} as many", times(ratio.throughput));
    lines.push(plain("and in a second there are", &text));
    lines
}

fn memory_of(memory: &Memory) -> Vec<String> {
    let text = format!(
        "{} bytes, and its guard of {}",
        thousands(memory.beyond_guard),
        memory.guard
    );
    vec![plain("memory of a lease in this process", &text)]
}

fn fate(report: &Report) -> Vec<String> {
    let trouble = &report.trouble;
    #[allow(clippy::cast_precision_loss)]
    let [jeopardy, lost] = [trouble.jeopardy, trouble.lost].map(|count| thousands(count as f64));
    let took = |seconds: f64, per_second: f64| {
        format!("{seconds:.2} s, {} a second", thousands(per_second))
    };
    let left = match report.left {
        0 => "none".to_owned(),
        left => thousands(left as f64),
    };
    vec![
        plain(
            "leases that were in jeopardy, lost",
            &format!("{jeopardy}, {lost}"),
        ),
        plain(
            "all taken in",
            &took(report.taken.seconds, report.taken.per_second),
        ),
        plain(
            "all released in",
            &took(report.released.seconds, report.released.per_second),
        ),
        plain("locks still held then", &left),
    ]
}
