//! The figures of contention.

use serde_json::{Value, json};

use super::tasks::Share;
use crate::format::{fine, per, ratio, round};
use crate::options::Settings;
use crate::report::Report;

pub(super) fn report(settings: &Settings, store: &str, shares: &[Share]) -> Report {
    let seconds = settings.duration.as_secs_f64();
    let mut report = Report::new(settings.scenario, seconds, store);
    let total = Share::total(shares);
    report.add_all(total.figures(seconds));
    let by_process = shares.iter().map(|share| {
        let mut figures = share.figures(seconds);
        figures["share"] = share.part_of(&total).into();
        figures
    });
    report.add_all(json!({
        "names": settings.names,
        "processes": settings.processes,
        "tasks": settings.tasks,
        "threads": settings.threads,
        "share": 1.0,
        "by_process": by_process.collect::<Vec<_>>(),
        "fairness": fairness(&total, shares, seconds),
        "section": (!settings.section.is_zero()).then(|| section(settings, &total)),
        "exclusion": {
            "held": total.observations.exclusive(),
            "acquisitions": total.counts.checked,
            "overlaps": total.observations.overlaps,
            "token_faults": total.observations.token_faults,
        },
    }));
    if !total.observations.exclusive() {
        report.failure = Some(format!(
            "mutual exclusion was broken: {} holders at once, {} tokens out of order",
            total.observations.overlaps, total.observations.token_faults
        ));
    }
    report
}

/// The critical sections.
fn section(settings: &Settings, total: &Share) -> Value {
    let counts = &total.counts;
    let duration_ns = settings.duration.as_secs_f64() * 1e9;
    json!({
        "requested_us": round(settings.section.as_secs_f64() * 1e6),
        "mean_us": round(per(counts.section_ns, counts.sections) / 1e3),
        "in_use": fine(per(counts.in_section_ns, 1) / duration_ns),
    })
}

impl Share {
    fn part_of(&self, total: &Self) -> f64 {
        fine(per(self.counts.acquisitions, total.counts.acquisitions))
    }

    fn figures(&self, seconds: f64) -> Value {
        let acquisitions = self.counts.acquisitions;
        json!({
            "acquisitions": acquisitions,
            "acquisitions_per_second": round(per(acquisitions, 1) / seconds),
            "wait": self.waits.spread(),
            "commands_per_acquisition": self.calls.map(|calls| fine(per(calls, acquisitions))),
            "handoffs": self.handoffs,
            "handoffs_per_acquisition": fine(per(self.handoffs, acquisitions)),
        })
    }
}

/// How equally processes and tasks were served.
fn fairness(total: &Share, shares: &[Share], seconds: f64) -> Value {
    let waits = &total.waits;
    let parts = shares.iter().map(|share| share.part_of(total));
    let by_process: Vec<_> = shares
        .iter()
        .map(|share| share.counts.acquisitions)
        .collect();
    let mut by_task = total.by_task.clone();
    by_task.sort_unstable();
    let task_rate = |at: usize| {
        let count = by_task.get(at).copied();
        round(per(count.unwrap_or(0), 1) / seconds)
    };
    json!({
        "wait_p99_per_p50": ratio(waits.quantile_us(0.99), waits.quantile_us(0.5)),
        "process_share_min": parts.clone().fold(1.0, f64::min),
        "process_share_max": parts.fold(0.0, f64::max),
        "process_departure": departure(&by_process),
        "task_per_second_min": task_rate(0),
        "task_per_second_median": task_rate(by_task.len() / 2),
        "task_per_second_max": task_rate(by_task.len().saturating_sub(1)),
        "task_departure": departure(&by_task),
    })
}

/// The largest distance of a count from an equal share, as a part of an equal share.
fn departure(counts: &[u64]) -> f64 {
    let equal = per(counts.iter().sum(), counts.len() as u64);
    let distances = counts.iter().map(|count| (per(*count, 1) - equal).abs());
    fine(distances.fold(0.0, f64::max) / equal.max(f64::MIN_POSITIVE))
}
