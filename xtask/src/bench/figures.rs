//! The results of the processes of a run, merged.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The number of buckets that a power of ten has in a runner's histogram.
const BUCKETS: f64 = 20.0;

/// The result of one process.
#[derive(Debug)]
pub(super) struct ProcessResult {
    acquisitions: f64,
    seconds: f64,
    waits: BTreeMap<u32, u64>,
    wait_max_us: f64,
    /// When it had the lock, from and to, in nanoseconds.
    events: Vec<(u64, u64)>,
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) per_second: f64,
    pub(super) wait_p50_us: f64,
    pub(super) wait_p99_us: f64,
    pub(super) wait_max_us: f64,
    /// The largest deviation of a process from an equal share: 0.05 is 5 %.
    pub(super) off_equal_share: f64,
    pub(super) scripts_each: f64,
    pub(super) commands_each: f64,
    /// From the release in one process to the acquisition in another, if it was seen often enough.
    pub(super) change_p50_us: Option<f64>,
    pub(super) change_p99_us: Option<f64>,
}

impl ProcessResult {
    /// Parses the result of a runner.
    pub(super) fn parse(result: &Value) -> Option<Self> {
        let mut waits = BTreeMap::new();
        for pair in result["wait_us"].as_array()? {
            let bucket = u32::try_from(pair[0].as_u64()?).ok()?;
            *waits.entry(bucket).or_default() += pair[1].as_u64()?;
        }
        let events = result["events"].as_array()?.iter();
        let events = events.map(|event| Some((event[0].as_u64()?, event[1].as_u64()?)));
        Some(Self {
            acquisitions: result["acquisitions"].as_f64()?,
            seconds: result["seconds"]
                .as_f64()
                .filter(|seconds| *seconds > 0.0)?,
            waits,
            wait_max_us: result["wait_max_us"].as_f64()?,
            events: events.collect::<Option<_>>()?,
        })
    }
}

impl Figures {
    /// The figures of a run: its processes, and the calls that the server counted meanwhile.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn of(parts: &[ProcessResult], (scripts, commands): (u64, u64)) -> Self {
        let all: f64 = parts.iter().map(|part| part.acquisitions).sum();
        let mut waits: BTreeMap<u32, u64> = BTreeMap::new();
        for (bucket, count) in parts.iter().flat_map(|part| &part.waits) {
            *waits.entry(*bucket).or_default() += count;
        }
        let equal = all / parts.len().max(1) as f64;
        let off = |part: &ProcessResult| (part.acquisitions / equal.max(1.0) - 1.0).abs();
        let each = |count: u64| count as f64 / all.max(1.0);
        let changes = changes(parts);
        Self {
            per_second: parts
                .iter()
                .map(|part| part.acquisitions / part.seconds)
                .sum(),
            wait_p50_us: quantile(&waits, 0.5),
            wait_p99_us: quantile(&waits, 0.99),
            wait_max_us: most(parts.iter().map(|part| part.wait_max_us)),
            off_equal_share: most(parts.iter().map(off)),
            scripts_each: each(scripts),
            commands_each: each(commands),
            change_p50_us: nth(&changes, 0.5),
            change_p99_us: nth(&changes, 0.99),
        }
    }

    /// Each figure's median over the rounds.
    pub(super) fn median(rounds: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| {
            let mut values: Vec<_> = rounds.iter().map(figure).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        let seen = rounds.iter().any(|round| round.change_p50_us.is_some());
        Self {
            per_second: of(|round| round.per_second),
            wait_p50_us: of(|round| round.wait_p50_us),
            wait_p99_us: of(|round| round.wait_p99_us),
            wait_max_us: of(|round| round.wait_max_us),
            off_equal_share: of(|round| round.off_equal_share),
            scripts_each: of(|round| round.scripts_each),
            commands_each: of(|round| round.commands_each),
            change_p50_us: seen.then(|| of(|round| round.change_p50_us.unwrap_or(f64::MAX))),
            change_p99_us: seen.then(|| of(|round| round.change_p99_us.unwrap_or(f64::MAX))),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "acquisitions_per_second": self.per_second.round(),
            "wait_p50_us": round(self.wait_p50_us),
            "wait_p99_us": round(self.wait_p99_us),
            "wait_max_us": round(self.wait_max_us),
            "off_equal_share": round(self.off_equal_share),
            "script_calls_per_acquisition": round(self.scripts_each),
            "commands_per_acquisition": round(self.commands_each),
            "release_to_acquisition_p50_us": self.change_p50_us.map(round),
            "release_to_acquisition_p99_us": self.change_p99_us.map(round),
        })
    }
}

/// How long each change of hands between processes took, in microseconds, in order.
#[allow(clippy::cast_precision_loss)]
fn changes(parts: &[ProcessResult]) -> Vec<f64> {
    let events = parts.iter().enumerate().flat_map(|(process, part)| {
        let events = part.events.iter();
        events.map(move |(from, to)| (*from, *to, process))
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

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
fn nth(sorted: &[f64], quantile: f64) -> Option<f64> {
    let at = (sorted.len() as f64 * quantile) as usize;
    sorted.get(at.min(sorted.len().checked_sub(1)?)).copied()
}

/// The middle of the bucket in which a quantile is.
#[allow(clippy::cast_precision_loss)]
fn quantile(waits: &BTreeMap<u32, u64>, quantile: f64) -> f64 {
    let all: u64 = waits.values().sum();
    let mut seen = 0;
    for (bucket, count) in waits {
        seen += count;
        if seen as f64 >= all as f64 * quantile {
            return 10_f64.powf((f64::from(*bucket) + 0.5) / BUCKETS) - 1.0;
        }
    }
    0.0
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// Rounds to three places: more than any of these figures is accurate to.
fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
