//! The results of the processes of a run, merged.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The number of buckets that a power of ten has in a runner's histogram.
const BUCKETS: f64 = 20.0;

/// The result of one process.
#[derive(Debug, Deserialize)]
pub(super) struct ProcessResult {
    pub(super) version: String,
    acquisitions: f64,
    pub(super) seconds: f64,
    wait_us: Vec<(u32, u64)>,
    wait_max_us: f64,
    /// When it had the lock, from and to, in nanoseconds.
    events: Vec<(u64, u64)>,
}

/// The figures of a run, by their names in the report. One that was not observed is missing.
pub(super) type Figures = BTreeMap<&'static str, f64>;

/// The figures of a run: its processes, and the calls that the server counted meanwhile.
pub(super) fn from_processes(
    processes: &[ProcessResult],
    (scripts, commands): (u64, u64),
) -> Figures {
    let acquisitions: f64 = processes.iter().map(|process| process.acquisitions).sum();
    let rates = processes
        .iter()
        .map(|process| process.acquisitions / process.seconds);
    let mut waits: BTreeMap<u32, u64> = BTreeMap::new();
    for (bucket, count) in processes.iter().flat_map(|process| &process.wait_us) {
        *waits.entry(*bucket).or_default() += count;
    }
    let equal = acquisitions / processes.len().max(1) as f64;
    let deviation = |process: &ProcessResult| (process.acquisitions / equal.max(1.0) - 1.0).abs();
    let per_acquisition = |count: u64| count as f64 / acquisitions.max(1.0);
    let changes = changes(processes);
    let figures = [
        ("acquisitions_per_second", Some(rates.sum::<f64>().round())),
        ("wait_p50_us", quantile(&waits, 0.5)),
        ("wait_p99_us", quantile(&waits, 0.99)),
        (
            "wait_max_us",
            max(processes.iter().map(|process| process.wait_max_us)),
        ),
        // The largest deviation of a process from an equal share: 0.05 is 5 %.
        ("share_deviation", max(processes.iter().map(deviation))),
        (
            "script_calls_per_acquisition",
            Some(per_acquisition(scripts)),
        ),
        ("commands_per_acquisition", Some(per_acquisition(commands))),
        // From the release in one process to the acquisition in another.
        ("release_to_acquisition_p50_us", nth(&changes, 0.5)),
        ("release_to_acquisition_p99_us", nth(&changes, 0.99)),
    ];
    let known = figures.into_iter();
    known
        .filter_map(|(name, figure)| Some((name, round(figure?))))
        .collect()
}

/// Each figure's median over the rounds.
pub(super) fn median(rounds: &[Figures]) -> Figures {
    let median = |name| {
        let of = |round: &Figures| round.get(name).copied().unwrap_or(f64::MAX);
        let mut values: Vec<_> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        (name, values[values.len() / 2])
    };
    let names = rounds.iter().flat_map(Figures::keys).copied();
    names.map(median).collect()
}

/// How long each change of hands between processes took, in microseconds, in order.
fn changes(processes: &[ProcessResult]) -> Vec<f64> {
    let events = processes.iter().enumerate().flat_map(|(index, process)| {
        let events = process.events.iter();
        events.map(move |(from, to)| (*from, *to, index))
    });
    let mut events: Vec<_> = events.collect();
    events.sort_unstable();
    let mut changes: Vec<_> = events
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

/// The middle of the bucket in which a quantile is.
fn quantile(waits: &BTreeMap<u32, u64>, quantile: f64) -> Option<f64> {
    let all: u64 = waits.values().sum();
    let mut seen = 0;
    for (bucket, count) in waits {
        seen += count;
        if seen as f64 >= all as f64 * quantile {
            return Some(10_f64.powf((f64::from(*bucket) + 0.5) / BUCKETS) - 1.0);
        }
    }
    None
}

fn max(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(f64::max)
}

/// Rounds to three places: more than any of these figures is accurate to.
fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
