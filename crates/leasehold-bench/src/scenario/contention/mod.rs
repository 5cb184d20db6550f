//! `contended` and `many`: tasks in one or more processes that want the same locks.

mod names;
mod tasks;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Value, json};

pub(super) use self::tasks::serve;
use self::tasks::{ALL_READ, Share, Tasks};
use crate::baseline::Advisory;
use crate::clock::Window;
use crate::format::{fine, per, ratio, round};
use crate::options::{Scenario, Settings};
use crate::report::Findings;
use crate::target::{Session, Target};
use crate::workers::Workers;
use crate::{Result, print_step};

/// The part of a run's duration by which a warm-up precedes it.
const WARM_UP: u32 = 10;

/// The shortest warm-up: processes must have begun and met.
const WARM_UP_MIN: Duration = Duration::from_millis(300);

/// The aim for the wait of a writer among readers: so many critical sections, and this time.
const WRITER_WAIT_SECTIONS: u32 = 3;
const WRITER_WAIT: Duration = Duration::from_millis(25);

/// Lets all tasks lock and release for the duration, and then do the same with the locks that are compared.
pub(super) async fn measure(
    settings: &Settings,
    target: &Target,
    session: Session,
) -> Result<Findings> {
    let shares = run(settings, target, &session).await?;
    let (mut figures, mut failure) = findings(settings, &shares);
    for (name, other) in compared(settings, &session).await {
        let others = run(&other, target, &session).await?;
        let (mut of_other, failed) = findings(&other, &others);
        of_other["ratio"] = ratios(&Share::total(&shares), &Share::total(&others));
        figures[name] = of_other;
        failure = failure.or(failed);
    }
    if settings.reads.is_some() && !target.is_private() {
        let apart = Settings {
            reads: Some(ALL_READ),
            tasks: settings.tasks.saturating_mul(settings.processes),
            processes: 2,
            ..settings.clone()
        };
        let (of_writer, failed) = findings(&apart, &run(&apart, target, &session).await?);
        figures["writer_apart"] = of_writer;
        failure = failure.or(failed);
    }
    Ok((figures, failure))
}

/// The locks that are compared, by the names of their figures: with a read-write lock the mutex, with that advisory locks,
/// if the baseline can have them.
async fn compared(settings: &Settings, session: &Session) -> Vec<(&'static str, Settings)> {
    if settings.reads.is_some() {
        let mutex = Settings {
            reads: None,
            ..settings.clone()
        };
        return vec![("mutex", mutex)];
    }
    let is_contended = settings.scenario == Scenario::Contended;
    if !is_contended || !matches!(session.baseline.database().await, Ok(Some(_))) {
        return Vec::new();
    }
    let advisory = |advisory| Settings {
        advisory: Some(advisory),
        ..settings.clone()
    };
    vec![
        ("advisory_wait", advisory(Advisory::Wait)),
        ("advisory_poll", advisory(Advisory::Poll)),
    ]
}

/// Lets all tasks lock and release: in processes of their own, which begin anew, if the store can be shared.
async fn run(settings: &Settings, target: &Target, session: &Session) -> Result<Vec<Share>> {
    if target.is_private() {
        let tasks = Tasks::new(session.clone(), settings, 0)?;
        print_step("measuring");
        return Ok(vec![tasks.run(window(settings)).await?]);
    }
    let mut workers = Workers::start(target, settings, settings.processes).await?;
    print_step("measuring");
    let shares = workers.ask(&window(settings)).await?;
    workers.finish().await?;
    Ok(shares)
}

fn window(settings: &Settings) -> Window {
    Window::after(
        (settings.duration / WARM_UP).max(WARM_UP_MIN),
        settings.duration,
    )
}

fn findings(settings: &Settings, shares: &[Share]) -> Findings {
    let seconds = settings.duration.as_secs_f64();
    let total = Share::total(shares);
    let by_process = shares.iter().map(|share| {
        let mut figures = share.figures(seconds);
        figures["share"] = share.part_of(&total).into();
        figures
    });
    let observed = &total.observations;
    let mut all = total.figures(seconds);
    for (name, figure) in [
        ("names", settings.names.into()),
        ("processes", settings.processes.into()),
        ("tasks", settings.tasks.into()),
        ("threads", settings.threads.into()),
        ("share", 1.0.into()),
        ("by_process", by_process.collect::<Vec<_>>().into()),
        ("fairness", fairness(&total, shares, seconds)),
        ("section", section(settings, &total)),
        ("writers", writers(settings, &total)),
        (
            "exclusion",
            json!({
                "held": observed.exclusive(),
                "acquisitions": total.counts.checked,
                "overlaps": observed.overlaps,
                "token_faults": observed.token_faults,
            }),
        ),
    ] {
        all[name] = figure;
    }
    let failure = (!observed.exclusive()).then(|| {
        format!(
            "mutual exclusion was broken: {} holders at once, {} tokens out of order",
            observed.overlaps, observed.token_faults
        )
    });
    (all, failure)
}

/// What we did, divided by what others did.
fn ratios(ours: &Share, other: &Share) -> Value {
    let [count, of_other] = [ours, other].map(|share| per(share.counts.acquisitions, 1));
    let wait = |quantile| {
        ratio(
            ours.waits.quantile_us(quantile),
            other.waits.quantile_us(quantile),
        )
    };
    json!({
        "throughput": ratio(count, of_other),
        "wait_p50": wait(0.5),
        "wait_p99": wait(0.99),
    })
}

/// The critical sections, if there are any.
fn section(settings: &Settings, total: &Share) -> Value {
    if settings.section.is_zero() {
        return Value::Null;
    }
    let counts = &total.counts;
    let duration_ns = settings.duration.as_secs_f64() * 1e9;
    json!({
        "requested_us": round(settings.section.as_secs_f64() * 1e6),
        "mean_us": round(per(counts.section_ns, counts.sections) / 1e3),
        "in_use": fine(per(counts.in_section_ns, 1) / duration_ns),
    })
}

/// How long writers waited among readers.
fn writers(settings: &Settings, total: &Share) -> Value {
    if settings.reads.is_none() {
        return Value::Null;
    }
    let aim = settings.section * WRITER_WAIT_SECTIONS + WRITER_WAIT;
    let section_us = settings.section.as_secs_f64() * 1e6;
    let beyond = total.writer_waits.quantile_us(0.99) - section_us;
    json!({
        "wait": total.writer_waits.spread(),
        "wait_p99_beyond_section_us": round(beyond.max(0.0)),
        "wait_p99_aim_us": round(aim.as_secs_f64() * 1e6),
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
