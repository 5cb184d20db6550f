//! A scenario of the campaign, how much of it runs, and its outcome.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread;

use crate::checker::{self, CheckReport};
use crate::clock::Nanos;
use crate::history;

/// The kinds of scenarios. Only the length of a campaign determines how much of the random faults and soaks runs.
pub(crate) const RANDOM: &str = "random";
pub(crate) const SOAK: &str = "soak";
pub(crate) const LEADERS: &str = "leaders";
pub(crate) const WATCHDOG: &str = "watchdog";

/// The directory of the histories that are kept.
const HISTORIES: &str = "target/faults";

/// The limits of the latencies after a death that a watchdog notices, in milliseconds.
const KILLED_LIMITS: Limits = [20.0, 50.0, f64::INFINITY];

/// A scenario.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) description: &'static str,
    pub(crate) limits: Option<Limits>,
    /// The number of runs, and that of the short form. What a run is depends on the kind.
    runs: usize,
    short: usize,
    /// Scenarios of one group run side by side.
    group: u8,
    run: fn(&Run) -> Outcome,
}

/// The limits of latencies, in milliseconds: of the median, the 99th percentile and the largest. The short form does not
/// count what exceeds them.
pub(crate) type Limits = [f64; 3];

/// How much of the scenarios to run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Form {
    /// The number of rounds of random faults, each of a minute. None: a short one.
    pub(crate) minutes: u64,
    /// So many of a hundred runs of the other scenarios.
    pub(crate) percent: Option<u16>,
}

/// A scenario that runs.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) name: &'static str,
    /// The number of runs.
    pub(crate) count: usize,
    pub(crate) form: Form,
    pub(crate) seed: u64,
}

/// The outcome of a scenario, before its latencies are compared with their limits.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) runs: usize,
    pub(crate) report: CheckReport,
    pub(crate) latencies: Vec<Nanos>,
    pub(crate) notes: Vec<String>,
}

impl Form {
    /// Whether latencies are not judged: a few runs of each scenario, nearly all side by side.
    pub(crate) fn is_short(self) -> bool {
        self.minutes == 0 && self.percent.is_none()
    }
}

impl Scenario {
    pub(crate) const fn new(
        kind: &'static str,
        group: u8,
        name: &'static str,
        (runs, short): (usize, usize),
        run: fn(&Run) -> Outcome,
        description: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            description,
            limits: None,
            runs,
            short,
            group,
            run,
        }
    }

    /// The latencies have the limits of a death that a watchdog notices.
    pub(crate) const fn killed(self) -> Self {
        self.limited(KILLED_LIMITS)
    }

    pub(crate) const fn limited(self, limits: Limits) -> Self {
        Self {
            limits: Some(limits),
            ..self
        }
    }

    /// The number of runs of a form.
    pub(crate) fn count(&self, form: Form) -> usize {
        match form.percent {
            Some(percent) if ![RANDOM, SOAK].contains(&self.kind) => {
                (self.runs * usize::from(percent)).div_ceil(100)
            }
            _ if form.minutes == 0 => self.short,
            _ => self.runs,
        }
    }

    fn outcome(&self, form: Form, seed: u64) -> Outcome {
        let run = Run {
            name: self.name,
            count: self.count(form),
            form,
            seed,
        };
        eprintln!("{}: {} runs", run.name, run.count);
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.run)(&run)));
        let mut outcome = outcome.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let mut outcome = Outcome::default();
            outcome.miss(format!(
                "the campaign failed: {}",
                text.unwrap_or("it panicked")
            ));
            outcome
        });
        outcome.latencies.sort_unstable();
        eprintln!("{}: {}", run.name, outcome.report.summary());
        outcome
    }
}

/// Runs scenarios: those of one group side by side, in the short form all but the random ones.
pub(crate) fn run_all(
    scenarios: &[&'static Scenario],
    form: Form,
    seed: u64,
) -> Vec<(&'static Scenario, Outcome)> {
    let together = |a: &&Scenario, b: &&Scenario| {
        let random = [a, b].map(|scenario| scenario.kind == RANDOM);
        a.group == b.group || form.is_short() && random == [false; 2]
    };
    let mut outcomes = Vec::new();
    for group in scenarios.chunk_by(together) {
        thread::scope(|scope| {
            let running: Vec<_> = group
                .iter()
                .map(|&scenario| (scenario, scope.spawn(move || scenario.outcome(form, seed))))
                .collect();
            let ended = running.into_iter();
            outcomes.extend(ended.map(|(scenario, outcome)| (scenario, outcome.join().unwrap())));
        });
    }
    outcomes
}

impl Run {
    /// Checks the history in a directory, and keeps a copy if it has violations.
    pub(crate) fn check(&self, directory: &Path, label: &str) -> CheckReport {
        let report = checker::check(&history::read(directory));
        if !report.violations.is_empty() {
            let name = format!("{}-{}{label}", self.seed, self.name);
            let kept = Path::new(HISTORIES).join(name);
            copy(directory, &kept);
            println!("the history is kept in {}", kept.display());
        }
        report
    }
}

impl Outcome {
    /// Adds a violation that the checks of a history cannot find.
    pub(crate) fn miss(&mut self, text: impl Into<String>) {
        self.report.violation(text.into());
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Percentiles of the latencies, which are sorted, in milliseconds.
    pub(crate) fn percentiles_ms<const N: usize>(&self, percents: [usize; N]) -> [Option<f64>; N] {
        percents.map(|percent| {
            let index = (self.latencies.len() * percent)
                .div_ceil(100)
                .checked_sub(1)?;
            Some(*self.latencies.get(index)? as f64 / 1e6)
        })
    }

    /// Whether the latencies are within limits.
    pub(crate) fn is_within(&self, limits: Limits) -> bool {
        let latencies = self.percentiles_ms([50, 99, 100]);
        let mut pairs = latencies.into_iter().zip(limits);
        pairs.all(|(latency, limit)| latency.is_none_or(|latency| latency <= limit))
    }
}

/// Copies the files of a directory, and replaces those of an earlier campaign.
fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        // Sockets of nodes are also there.
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}
