//! The figures of a run, and those of several rounds.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::servers::Usage;
use super::work::Work;

/// The number of buckets that a power of ten has in a runner's histogram.
const BUCKETS: f64 = 200.0;

/// Buckets and their counts.
type Histogram = BTreeMap<u32, u64>;

/// The result of one process.
#[derive(Debug, Deserialize)]
pub(super) struct ProcessResult {
    pub(super) version: String,
    acquisitions: f64,
    wait_us: Histogram,
    wait_max_us: f64,
    pair_us: Histogram,
    /// When it had the lock, from and to, in nanoseconds.
    held: Vec<(u64, u64)>,
}

/// The figures of a run, by their names in the report. One that was not observed is missing.
pub(super) type Figures = BTreeMap<&'static str, f64>;

/// A figure in several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// The figures of a run: its processes, and what the servers did meanwhile.
pub(super) fn from_processes(
    work: &Work,
    processes: &[ProcessResult],
    usage: Usage,
    seconds: Duration,
) -> Figures {
    let acquisitions: f64 = processes.iter().map(|process| process.acquisitions).sum();
    let each = |count: f64| (acquisitions > 0.0).then(|| count / acquisitions);
    let waits = merged(processes.iter().map(|process| &process.wait_us));
    let wait_p50 = quantile(&waits, 0.5);
    // Under contention a pair is a wait.
    let own = processes.iter().filter(|_| work.own_names);
    let pairs = merged(own.map(|process| &process.pair_us));
    let longest = processes.iter().map(|process| process.wait_max_us);
    let round_trips = |round_trip: Duration| Some(wait_p50? / 1e6 / round_trip.as_secs_f64());
    let changes = changes(processes);
    let figures = [
        (
            "acquisitions_per_second",
            Some((acquisitions / seconds.as_secs_f64()).round()),
        ),
        ("wait_p50_us", wait_p50),
        ("wait_p99_us", quantile(&waits, 0.99)),
        ("wait_max_us", longest.reduce(f64::max)),
        (
            "wait_p50_round_trips",
            work.round_trip().and_then(round_trips),
        ),
        ("pair_p50_us", quantile(&pairs, 0.5)),
        ("server_us_per_acquisition", each(usage.cpu_us)),
        ("script_calls_per_acquisition", each(usage.scripts)),
        ("commands_per_acquisition", each(usage.commands)),
        ("share_deviation", share_deviation(processes)),
        // From the release in one process to the acquisition in another.
        ("release_to_acquisition_p50_us", nth(&changes, 0.5)),
        ("release_to_acquisition_p99_us", nth(&changes, 0.99)),
    ];
    let known = figures.into_iter();
    known
        .filter_map(|(name, figure)| Some((name, round(figure?))))
        .collect()
}

/// Each figure's median over the rounds, with the smallest and the largest.
pub(super) fn spreads(rounds: &[Figures]) -> BTreeMap<String, Spread> {
    let mut values: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for (name, figure) in rounds.iter().flatten() {
        values.entry(*name).or_default().push(*figure);
    }
    let spreads = values.into_iter();
    spreads
        .map(|(name, values)| (name.to_owned(), Spread::of(values)))
        .collect()
}

impl Spread {
    /// The median alone.
    pub(super) fn without_range(self) -> Self {
        let median = self.median;
        Self {
            median,
            min: median,
            max: median,
        }
    }

    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        Self {
            median: round(f64::midpoint(values[last / 2], values[last.div_ceil(2)])),
            min: values[0],
            max: values[last],
        }
    }
}

/// The largest deviation of a process from an equal share: 0.05 is 5 %.
fn share_deviation(processes: &[ProcessResult]) -> Option<f64> {
    let all: f64 = processes.iter().map(|process| process.acquisitions).sum();
    let equal = all / processes.len() as f64;
    let deviations = processes
        .iter()
        .map(|process| (process.acquisitions / equal - 1.0).abs());
    deviations
        .reduce(f64::max)
        .filter(|_| processes.len() > 1 && all > 0.0)
}

/// How long each change of hands between processes took, in microseconds, in order.
fn changes(processes: &[ProcessResult]) -> Vec<f64> {
    let held = processes.iter().enumerate().flat_map(|(index, process)| {
        let held = process.held.iter();
        held.map(move |(from, to)| (*from, *to, index))
    });
    let mut held: Vec<_> = held.collect();
    held.sort_unstable();
    let mut changes: Vec<_> = held
        .windows(2)
        .filter(|pair| pair[0].2 != pair[1].2)
        .map(|pair| pair[1].0.saturating_sub(pair[0].1) as f64 / 1e3)
        .collect();
    changes.sort_by(f64::total_cmp);
    changes
}

fn nth(sorted: &[f64], quantile: f64) -> Option<f64> {
    let at = (sorted.len() as f64 * quantile) as usize;
    sorted.get(at.min(sorted.len().checked_sub(1)?)).copied()
}

fn merged<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Histogram {
    let mut sum = Histogram::new();
    for (bucket, count) in histograms.flatten() {
        *sum.entry(*bucket).or_default() += count;
    }
    sum
}

/// The middle of the bucket in which a quantile is.
fn quantile(histogram: &Histogram, quantile: f64) -> Option<f64> {
    let all: u64 = histogram.values().sum();
    let mut seen = 0;
    for (bucket, count) in histogram {
        seen += count;
        if seen as f64 >= all as f64 * quantile {
            return Some(10_f64.powf((f64::from(*bucket) + 0.5) / BUCKETS) - 1.0);
        }
    }
    None
}

/// Rounds to three places: more than any of these figures is accurate to.
fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
