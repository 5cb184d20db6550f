//! The figures of renewals.

use std::time::Duration;

use leasehold::Guard;
use serde_json::{Value, json};

use super::slices::{Slices, Work};
use super::{Findings, Pairs};
use crate::format::{fine, per, ratio, round};
use crate::options::Settings;
use crate::report;

pub(super) fn report(settings: &Settings, findings: &Findings) -> report::Findings {
    let rate = |took: Duration| {
        let seconds = took.as_secs_f64();
        let per_second = round(f64::from(settings.leases) / seconds.max(1e-9));
        json!({"seconds": round(seconds), "per_second": per_second})
    };
    let Findings {
        jeopardy,
        lost,
        held,
        still_held,
        ..
    } = *findings;
    let figures = json!({
        "seconds": round(findings.observed.duration.as_secs_f64()),
        "leases": settings.leases,
        "ttl_ms": settings.ttl.as_secs_f64() * 1e3,
        "tasks": settings.tasks,
        "threads": settings.threads,
        "taken": rate(findings.taking),
        "held": held_figures(settings, findings),
        "trouble": {"jeopardy": jeopardy, "lost": lost, "held": held},
        "memory": memory(settings, findings.resident),
        "tables": (!findings.tables.is_empty()).then(|| table_figures(&findings.tables)),
        "renewal": renewal(&findings.slices),
        "pairs": pairs(&findings.pairs_without_renewals, &findings.slices.pairs),
        "released": rate(findings.releasing),
        "still_held": still_held,
    });
    let not_held = (settings.leases as usize).saturating_sub(held) as u64;
    let failure = (not_held > 0 || lost > 0 || still_held > 0).then(|| {
        let lost = not_held.max(lost);
        format!(
            "leases were not held to their end: {lost} lost, and {still_held} still there after their release"
        )
    });
    (figures, failure)
}

/// What was used and done while there was nothing to do but renewals.
fn held_figures(settings: &Settings, findings: &Findings) -> Value {
    let used = &findings.observed;
    let seconds = used.duration.as_secs_f64().max(1e-9);
    let core = |cpu: Duration| fine(cpu.as_secs_f64() / seconds);
    let each = per(used.renewals, settings.leases.into());
    // By the library's own count, else every call is one.
    let batches = Some(used.batches).filter(|batches| *batches > 0);
    let batches = batches.or(used.calls).filter(|batches| *batches > 0);
    json!({
        "process_cpu": core(used.cpu),
        "server_cpu": used.server.map(|stats| core(stats.cpu)),
        "renewals": used.renewals,
        "renewed_every_s": (each > 0.0).then(|| round(seconds / each)),
        "calls": used.calls,
        "calls_per_10_s": used.calls.map(|calls| round(per(calls, 1) / seconds * 10.0)),
        "renewals_per_batch": batches.map(|batches| round(per(used.renewals, batches))),
        "lag": findings.lag.spread(),
    })
}

/// The bytes of the process, and of each lease.
fn memory(settings: &Settings, resident: [Option<u64>; 3]) -> Option<Value> {
    let [before, taken, renewed] = resident;
    let (before, taken, renewed) = (before?, taken?, renewed?);
    let guard = size_of::<Guard>();
    let beyond = |after: u64| {
        let each = per(after.saturating_sub(before), settings.leases.into());
        round((each - per(guard as u64, 1)).max(0.0))
    };
    Some(json!({
        "before": before,
        "taken": taken,
        "renewed": renewed,
        "guard": guard,
        "beyond_guard": beyond(renewed),
        "beyond_guard_taken": beyond(taken),
    }))
}

/// The sizes of tables, in the order of their measurements.
fn table_figures(tables: &[[i64; 2]]) -> Value {
    let figures = |at: usize| tables.iter().map(|it| it[at]).collect::<Vec<_>>();
    json!({"bytes": figures(0), "dead_rows": figures(1)})
}

/// What a renewal costs the server: by Leasehold, and by the baseline.
///
/// While baseline renewals are done, ours go on. Their cost is known from the slices without others.
fn renewal(slices: &Slices) -> Option<Value> {
    let cost = |work: &Work, renewals: u64, others: [f64; 2]| {
        let stats = work.server.filter(|_| renewals > 0)?;
        let each = |all: Duration, others: f64| {
            let own = (all.as_secs_f64() * 1e6 - others).max(0.0);
            round(own / per(renewals, 1))
        };
        Some([
            each(stats.cpu, others[0]),
            each(stats.script_time, others[1]),
        ])
    };
    let ours = cost(&slices.ours, slices.ours.due, [0.0; 2])?;
    let due = per(slices.baseline.due, 1);
    let baseline = cost(
        &slices.baseline,
        slices.baseline.by_baseline,
        ours.map(|us| us * due),
    )?;
    let figures = |cost: [f64; 2], renewals: u64| json!({"renewals": renewals, "server_cpu_us": cost[0], "script_us": cost[1]});
    Some(json!({
        "ours": figures(ours, slices.ours.due),
        "baseline": figures(baseline, slices.baseline.by_baseline),
        "ratio": {"server_cpu": ratio(ours[0], baseline[0]), "script": ratio(ours[1], baseline[1])},
    }))
}

/// Another lock and its release, while no leases are held and during their renewals.
fn pairs(without_renewals: &Pairs, with_renewals: &Pairs) -> Value {
    let ratio_of =
        |figure: &dyn Fn(&Pairs) -> f64| ratio(figure(with_renewals), figure(without_renewals));
    json!({
        "without_renewals": pair_figures(without_renewals),
        "with_renewals": pair_figures(with_renewals),
        "ratio": {
            "throughput": ratio_of(&Pairs::per_second),
            "p50": ratio_of(&|pairs| pairs.quantile_us(0.5)),
            "p99": ratio_of(&|pairs| pairs.quantile_us(0.99)),
        },
    })
}

/// The figures of one of the two.
fn pair_figures(pairs: &Pairs) -> Value {
    json!({
        "count": pairs.count(),
        "per_second": pairs.per_second(),
        "p50_us": pairs.quantile_us(0.5),
        "p99_us": pairs.quantile_us(0.99),
    })
}
