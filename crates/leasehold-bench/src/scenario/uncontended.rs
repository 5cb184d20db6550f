//! `uncontended`, `independent` and `watched`: each task has a lock of its own.

use serde_json::{Value, json};

use super::pairs::{Lock, Pairs};
use crate::format::ratio;
use crate::options::{Scenario, Settings};
use crate::report::Findings;
use crate::target::{Session, Target};
use crate::{Result, print_step};

/// The number of slices of each side. The first one only warms up.
///
/// Many, so that all sides see the same machine; not too many, as each begins and ends with tasks
/// that do not all run.
const ROUNDS: usize = 10;

/// Acquires and releases in slices, the sides in turn, and each of them at each place of a round. Beside many tasks of
/// ours, a side is one of them.
pub(super) async fn measure(
    settings: &Settings,
    target: &Target,
    plain: Session,
) -> Result<Findings> {
    let is_watched = settings.scenario == Scenario::Watched;
    let session = match is_watched {
        true => target.watched(&plain).await?,
        false => plain.clone(),
    };
    let (mut ours, mut other) = (Vec::new(), Vec::new());
    for task in 0..settings.tasks {
        ours.push(Lock::Ours(session.mutex(task)?));
        let name = format!("baseline/{task}");
        other.push(match is_watched {
            true => Lock::Ours(plain.mutex(name)?),
            false => Lock::Baseline(plain.baseline_lock(name)?),
        });
    }
    let mut sides = vec![Pairs::new(ours), Pairs::new(other)];
    if settings.scenario == Scenario::Independent {
        sides.push(Pairs::new(vec![Lock::Ours(session.mutex("one-task")?)]));
    }
    print_step("measuring");
    let count = sides.len();
    let slices = ROUNDS * count;
    for slice in 0..slices {
        let side = &mut sides[(slice + slice / count) % count];
        let length = settings.duration / slices as u32;
        side.run(length, &session).await?;
        if slice < count {
            side.reset();
        }
    }
    let figures = report(settings, &sides[0], &sides[1], sides.get(2));
    Ok((figures, None))
}

fn report(settings: &Settings, ours: &Pairs, other: &Pairs, one_task: Option<&Pairs>) -> Value {
    let mut report = ours.figures();
    report["tasks"] = settings.tasks.into();
    report["threads"] = settings.threads.into();
    report["raw"] = other.figures();
    report["ratio"] = json!({
        "throughput": ratio(ours.per_second(), other.per_second()),
        "p50": ratio(ours.quantile_us(0.5), other.quantile_us(0.5)),
        "throughput_to_one_task": one_task.map(|one| ratio(ours.per_second(), one.per_second())),
    });
    report["one_task"] = one_task.map(Pairs::figures).into();
    report
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::latencies::lock;
    use crate::report::{UNKNOWN, check};
    use crate::scenario::known::latencies;

    #[test]
    fn figures_are_what_was_counted() {
        let mut side = Pairs::new(Vec::new());
        (side.calls, side.busy) = (Some(150), Duration::from_millis(500));
        *lock(&side.latencies) = latencies(1..=100);
        let settings = Settings::of(Scenario::Uncontended);
        let mut one_task = Pairs::new(Vec::new());
        one_task.busy = Duration::from_secs(1);
        *lock(&one_task.latencies) = latencies(1..=10);
        let other = Pairs::new(Vec::new());
        let report = report(&settings, &side, &other, Some(&one_task));
        check(
            &report,
            &[
                ("acquisitions_per_second", 200.0),
                ("commands_per_acquisition", 1.5),
                ("p50_us", 50.0),
                ("p95_us", 95.0),
                ("p99_us", 99.0),
                ("ratio.p50", 0.0),
                ("ratio.throughput_to_one_task", 20.0),
                ("one_task.acquisitions_per_second", 10.0),
                ("raw.commands_per_acquisition", UNKNOWN),
            ],
        );
    }
}
