//! The figures of a measurement, and those of several rounds.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::server_stats::ServerStats;
use super::work::Work;

/// The names of the figures in the report.
pub(super) const RATE: &str = "acquisitions_per_second";
pub(super) const WAIT: &str = "wait_p50_us";
pub(super) const WAIT_P99: &str = "wait_p99_us";
pub(super) const WAIT_MAX: &str = "wait_max_us";
pub(super) const ROUND_TRIPS: &str = "wait_p50_round_trips";
pub(super) const PAIR: &str = "pair_p50_us";
pub(super) const SERVER_TIME: &str = "server_us_per_acquisition";
pub(super) const SCRIPT_CALLS: &str = "script_calls_per_acquisition";
pub(super) const SHARE_DEVIATION: &str = "share_deviation";
pub(super) const SECTION: &str = "section_p50_us";
pub(super) const SECTION_P99: &str = "section_p99_us";
/// From the release in one process to the acquisition in another.
pub(super) const CHANGE: &str = "release_to_acquisition_p50_us";

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
    section_us: Histogram,
    /// When it had the lock, from and to, in nanoseconds.
    held: Vec<(u64, u64)>,
}

/// The figures of a measurement by name. One that was not observed is missing.
pub(super) type Figures = BTreeMap<&'static str, f64>;

/// A figure in several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// The figures of a measurement: its processes, and what the servers did meanwhile.
pub(super) fn from_processes(
    work: &Work,
    processes: &[ProcessResult],
    stats: Option<ServerStats>,
    seconds: Duration,
) -> Figures {
    let acquisitions: f64 = processes.iter().map(|process| process.acquisitions).sum();
    let each = |count: f64| (acquisitions > 0.0).then(|| count / acquisitions);
    let waits = merged(processes.iter().map(|process| &process.wait_us));
    let wait_p50 = quantile(&waits, 0.5);
    // Under contention a pair is a wait.
    let own = processes.iter().filter(|_| work.own_names);
    let pairs = merged(own.map(|process| &process.pair_us));
    let sections = merged(processes.iter().map(|process| &process.section_us));
    let longest = processes.iter().map(|process| process.wait_max_us);
    let round_trips = |delay: Duration| Some(wait_p50? / 1e6 / (2 * delay).as_secs_f64());
    let figures = [
        (RATE, Some((acquisitions / seconds.as_secs_f64()).round())),
        (WAIT, wait_p50),
        (WAIT_P99, quantile(&waits, 0.99)),
        (WAIT_MAX, longest.reduce(f64::max)),
        (ROUND_TRIPS, work.deployment.delay().and_then(round_trips)),
        (PAIR, quantile(&pairs, 0.5)),
        (
            SERVER_TIME,
            stats.and_then(|stats| each(stats.cpu.as_secs_f64() * 1e6)),
        ),
        (
            SCRIPT_CALLS,
            stats.and_then(|stats| each(stats.script_calls as f64)),
        ),
        (SECTION, quantile(&sections, 0.5)),
        (SECTION_P99, quantile(&sections, 0.99)),
        (SHARE_DEVIATION, share_deviation(processes)),
        (CHANGE, median_change(processes)),
    ];
    let known = figures.into_iter();
    known
        .filter_map(|(name, figure)| Some((name, round(figure?))))
        .collect()
}

/// Each figure's median over the rounds, with the smallest and the largest.
pub(super) fn spreads<'a>(
    rounds: impl IntoIterator<Item = &'a Figures>,
) -> BTreeMap<String, Spread> {
    let mut values: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for (name, figure) in rounds.into_iter().flatten() {
        values.entry(*name).or_default().push(*figure);
    }
    let spreads = values.into_iter();
    spreads
        .map(|(name, values)| (name.to_owned(), Spread::of(values)))
        .collect()
}

impl Spread {
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

/// How long a change of hands between processes took, in microseconds.
fn median_change(processes: &[ProcessResult]) -> Option<f64> {
    let held = processes.iter().enumerate().flat_map(|(index, process)| {
        let held = process.held.iter();
        held.map(move |(from, to)| (*from, *to, index))
    });
    let mut held: Vec<_> = held.collect();
    held.sort_unstable();
    let changes: Vec<_> = held
        .windows(2)
        .filter(|pair| pair[0].2 != pair[1].2)
        .map(|pair| pair[1].0.saturating_sub(pair[0].1) as f64 / 1e3)
        .collect();
    (!changes.is_empty()).then(|| Spread::of(changes).median)
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
