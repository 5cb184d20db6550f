//! `uncontended`, `independent` and `watched`: each task has a lock of its own.

use serde_json::{Value, json};

use super::pairs::{Lock, Pairs};
use crate::format::ratio;
use crate::options::{Scenario, Settings};
use crate::report::Findings;
use crate::target::{Session, Target};
use crate::{Result, print_step};

/// The number of slices of a run. The first of each side only warms up.
///
/// Many, so that both sides see the same machine; not too many, as each begins and ends with tasks
/// that do not all run.
const SLICES: u32 = 20;

/// Acquires and releases in slices, both sides in turn: ours, other, other, ours and so on.
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
            false => Lock::Baseline(plain.baseline_lock(name)?.advisory(settings.advisory)),
        });
    }
    let (mut ours, mut other) = (Pairs::new(ours), Pairs::new(other));
    print_step("measuring");
    for slice in 0..SLICES {
        let side = match slice % 4 {
            0 | 3 => &mut ours,
            _ => &mut other,
        };
        side.run(settings.duration / SLICES, &session).await?;
        if slice < 2 {
            side.reset();
        }
    }
    Ok((report(settings, &ours, &other), None))
}

fn report(settings: &Settings, ours: &Pairs, other: &Pairs) -> Value {
    let mut report = ours.figures();
    report["tasks"] = settings.tasks.into();
    report["threads"] = settings.threads.into();
    report["raw"] = other.figures();
    report["ratio"] = json!({
        "throughput": ratio(ours.per_second(), other.per_second()),
        "p50": ratio(ours.quantile_us(0.5), other.quantile_us(0.5)),
    });
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
        let report = report(&settings, &side, &Pairs::new(Vec::new()));
        check(
            &report,
            &[
                ("acquisitions_per_second", 200.0),
                ("commands_per_acquisition", 1.5),
                ("p50_us", 50.0),
                ("p95_us", 95.0),
                ("p99_us", 99.0),
                ("ratio.p50", 0.0),
                ("raw.commands_per_acquisition", UNKNOWN),
            ],
        );
    }
}
