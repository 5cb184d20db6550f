//! What the crowd got. Field names and units stay as they are.

use serde::Serialize;

use super::Crowd;
use super::work::Share;
use crate::bench::Scenario;
use crate::bench::figures::{fine, per, ratio, round};
use crate::bench::times::Times;
use crate::bench::witness::Testimony;
use crate::exit::Failure;

/// What a run found.
#[derive(Debug, Serialize)]
pub(in crate::bench) struct Report {
    pub(super) scenario: Scenario,
    /// Its URL without a password.
    pub(super) store: String,
    pub(super) names: u32,
    pub(super) processes: u16,
    /// In each process.
    pub(super) tasks: u16,
    pub(super) threads: u16,
    pub(super) seconds: u64,
    #[serde(flatten)]
    pub(super) all: Got,
    pub(super) by_process: Vec<Part>,
    pub(super) fairness: Fairness,
    /// `None`: the critical section was empty.
    pub(super) section: Option<Section>,
    pub(super) exclusion: Exclusion,
}

/// What one process got, or all of them.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Got {
    pub(super) acquisitions: u64,
    pub(super) acquisitions_per_second: f64,
    pub(super) wait: Wait,
    /// Script calls at Redis, transactions in SQLite; nothing to count in memory.
    pub(super) commands_per_acquisition: Option<f64>,
    /// How often a lease was passed on inside a process.
    pub(super) handoffs: u64,
    pub(super) handoffs_per_acquisition: f64,
}

/// From the question until the lock was there.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Wait {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) max_us: f64,
}

/// What one process got.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Part {
    /// Of all acquisitions.
    pub(super) share: f64,
    #[serde(flatten)]
    pub(super) got: Got,
}

/// How equally they were served.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Fairness {
    pub(super) wait_p99_per_p50: f64,
    /// The smallest and the largest share of a process.
    pub(super) process_share_min: f64,
    pub(super) process_share_max: f64,
    /// How far a process is from an equal share at most, as a part of an equal share.
    pub(super) process_departure: f64,
    /// Acquisitions a second of the idlest task of all processes, of the median one and of the
    /// busiest.
    pub(super) task_per_second_min: f64,
    pub(super) task_per_second_median: f64,
    pub(super) task_per_second_max: f64,
    /// How far a task is from an equal share at most, as a part of an equal share.
    pub(super) task_departure: f64,
}

/// The work under the lock.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Section {
    pub(super) asked_us: f64,
    pub(super) mean_us: f64,
    /// The part of the time in which somebody was in it.
    pub(super) in_use: f64,
}

/// Whether there was one holder at a time, with tokens in their order.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Exclusion {
    pub(super) held: bool,
    /// How many acquisitions were watched, warm-up included.
    pub(super) acquisitions: u64,
    pub(super) overlaps: u64,
    pub(super) token_faults: u64,
}

impl Report {
    pub(super) fn new(crowd: &Crowd, store: String, shares: &[Share]) -> Result<Self, Failure> {
        let seconds = crowd.span.as_secs_f64();
        let total = Share::together(shares)?;
        let all = Got::of(&total, seconds);
        let by_process: Vec<_> = shares
            .iter()
            .map(|share| Part {
                share: fine(per(share.acquisitions, total.acquisitions)),
                got: Got::of(share, seconds),
            })
            .collect();
        let fairness = Fairness::of(&total, shares, seconds);
        Ok(Self {
            scenario: crowd.scenario,
            store,
            names: crowd.names,
            processes: crowd.processes,
            tasks: crowd.tasks,
            threads: crowd.threads,
            seconds: crowd.span.as_secs(),
            fairness,
            section: (!crowd.section.is_zero()).then(|| Section {
                asked_us: round(crowd.section.as_secs_f64() * 1e6),
                mean_us: round(per(total.section_ns, total.sections) / 1e3),
                in_use: fine(per(total.in_section_ns, 1) / (seconds * 1e9)),
            }),
            exclusion: Exclusion {
                held: total.testimony.held(),
                acquisitions: total.witnessed,
                overlaps: total.testimony.overlaps,
                token_faults: total.testimony.token_faults,
            },
            by_process,
            all,
        })
    }

    /// Whether the lock did what a lock is for.
    pub(in crate::bench) fn verdict(&self) -> Result<(), Failure> {
        if self.exclusion.held {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "mutual exclusion was broken: {} holders at once, {} tokens out of order",
            self.exclusion.overlaps, self.exclusion.token_faults
        )))
    }
}

impl Share {
    /// All of them as one.
    fn together(shares: &[Self]) -> Result<Self, Failure> {
        let sum = |part: fn(&Self) -> u64| shares.iter().map(part).sum();
        let mut waits = Times::new()?;
        for share in shares {
            waits.add(&share.waits);
        }
        Ok(Self {
            acquisitions: sum(|share| share.acquisitions),
            by_task: shares
                .iter()
                .flat_map(|share| share.by_task.clone())
                .collect(),
            waits,
            in_section_ns: sum(|share| share.in_section_ns),
            section_ns: sum(|share| share.section_ns),
            sections: sum(|share| share.sections),
            calls: shares.iter().map(|share| share.calls).sum(),
            handoffs: sum(|share| share.handoffs),
            witnessed: sum(|share| share.witnessed),
            testimony: Testimony::together(shares.iter().map(|share| &share.testimony)),
        })
    }
}

impl Got {
    fn of(share: &Share, seconds: f64) -> Self {
        let each = |count: u64| fine(per(count, share.acquisitions));
        Self {
            acquisitions: share.acquisitions,
            acquisitions_per_second: round(per(share.acquisitions, 1) / seconds),
            wait: Wait {
                p50_us: share.waits.quantile_us(0.5),
                p99_us: share.waits.quantile_us(0.99),
                max_us: share.waits.max_us(),
            },
            commands_per_acquisition: share.calls.map(each),
            handoffs: share.handoffs,
            handoffs_per_acquisition: each(share.handoffs),
        }
    }
}

impl Fairness {
    fn of(total: &Share, shares: &[Share], seconds: f64) -> Self {
        let waits = &total.waits;
        let of_processes = shares.iter().map(|share| share.acquisitions);
        let share = |count: Option<u64>| fine(per(count.unwrap_or(0), total.acquisitions));
        let mut of_tasks = total.by_task.clone();
        of_tasks.sort_unstable();
        let task = |at: usize| {
            let count = of_tasks.get(at).copied();
            round(per(count.unwrap_or(0), 1) / seconds)
        };
        Self {
            wait_p99_per_p50: ratio(waits.quantile_us(0.99), waits.quantile_us(0.5)),
            process_share_min: share(of_processes.clone().min()),
            process_share_max: share(of_processes.clone().max()),
            process_departure: departure(of_processes),
            task_per_second_min: task(0),
            task_per_second_median: task(of_tasks.len() / 2),
            task_per_second_max: task(of_tasks.len().saturating_sub(1)),
            task_departure: departure(of_tasks.iter().copied()),
        }
    }
}

/// How far the one furthest from an equal share is from it, as a part of it.
fn departure(counts: impl ExactSizeIterator<Item = u64> + Clone) -> f64 {
    let equal = per(counts.clone().sum(), counts.len() as u64);
    let far = counts.map(|count| (per(count, 1) - equal).abs());
    fine(far.fold(0.0, f64::max) / equal.max(f64::MIN_POSITIVE))
}
