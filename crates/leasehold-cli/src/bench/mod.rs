//! `leasehold bench`: what a lock costs, alone and among many.

mod alone;
mod clock;
mod crew;
mod crowd;
mod drawing;
mod figures;
mod meters;
mod options;
mod pause;
mod place;
mod process;
mod progress;
mod renew;
mod times;
mod wakeup;
mod witness;

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

pub(crate) use self::crew::member::serve as member;
use self::options::Plan;
pub(crate) use self::place::Place;
use crate::duration;
use crate::exit::Failure;
use crate::output;

/// Measure what a lock costs at this store.
///
/// Takes locks under names of its own only. Where nobody else wants the lock, it takes turns with
/// bare calls that do the same to the store without leasehold around them: over the same
/// connection, in the same process, in short slices, so that whatever else the machine does hits
/// both. Where many want it, it also watches that they had it one at a time, and where very many
/// are held, that none is lost.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// What to measure
    #[arg(long, value_enum, default_value_t = Scenario::Uncontended)]
    pub(crate) scenario: Scenario,
    /// How many tasks lock at once in each process; 64 if not given, for independent and renew 256
    /// (64 with SQLite)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) tasks: Option<u16>,
    /// contended, many: how many processes there are; 1 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) processes: Option<u16>,
    /// contended: how long each holder keeps the lock; it gives it back at once if not given
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) section: Option<Duration>,
    /// many: how many locks there are; 1000 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) names: Option<u32>,
    /// wakeup: how many wait where the server's work is looked at; 1 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=500))]
    pub(crate) waiters: Option<u16>,
    /// renew: how many locks are held at once; 100000 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    pub(crate) leases: Option<u32>,
    /// renew: the ttl of these locks; 30s if not given
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// watched: where the watchdog is, unix:PATH or tcp://HOST:PORT; the one on this machine if not given
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) watchdog: Option<String>,
    /// How long to measure; 5 if not given. wakeup takes six seconds more. renew watches renewals
    /// for that long, two thirds of the ttl if not given, so that every lease is renewed twice; the
    /// whole of it takes two and a half times that, and the time to take and release the locks
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u16).range(1..=3_600))]
    pub(crate) seconds: Option<u16>,
    /// How many threads run the tasks of a process; 1 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
    /// One JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scenario {
    /// One task takes one lock, over and over: what a lock costs where nobody else wants it
    Uncontended,
    /// Many tasks, each with a lock of its own: what one process gets out of the store
    Independent,
    /// Many tasks in one process or several want the same lock: how often it changes hands, and how
    /// fairly
    Contended,
    /// A lock goes to and fro between processes: how long after a release the next one has it, and
    /// what waiting costs the server
    Wakeup,
    /// Many tasks and many locks, some wanted more often than others
    Many,
    /// One process holds very many locks: what it costs to renew their leases, and what becomes
    /// slower meanwhile
    Renew,
    /// Each task has a lock of its own, with a watchdog that looks after it and without, in turn: what
    /// it costs to be looked after
    Watched,
}

const EXAMPLES: &str = "\
EXAMPLES
  leasehold bench --scenario contended --tasks 16 --processes 4
  leasehold bench --scenario contended --section 1ms --seconds 10 --json
  leasehold bench --scenario wakeup --waiters 100
  leasehold bench --scenario many --names 10000
  leasehold bench --scenario renew --leases 1000000
  leasehold watchdog & leasehold bench --scenario watched";

/// Measures the store of `place`.
pub(crate) fn run(args: &BenchArgs, place: &Place) -> Result<u8, Failure> {
    match options::plan(args, place)? {
        Plan::Alone(alone) => {
            let report = alone.measure(place)?;
            show(args, &report, alone::draw)?;
        }
        Plan::Crowd(crowd) => {
            let report = crowd.measure(place)?;
            show(args, &report, crowd::draw)?;
            report.verdict()?;
        }
        Plan::Wakeup(wakeup) => {
            let report = wakeup.measure(place)?;
            show(args, &report, wakeup::draw)?;
        }
        Plan::Renew(renew) => {
            let report = renew.measure(place)?;
            show(args, &report, renew::draw)?;
            report.verdict()?;
        }
    }
    Ok(0)
}

fn show<R: Serialize>(args: &BenchArgs, report: &R, draw: fn(&R) -> String) -> Result<(), Failure> {
    if args.json {
        output::json(report)
    } else {
        output::write(draw(report).as_bytes())
    }
}

fn runtime(threads: u16) -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = if threads == 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(threads.into());
        builder
    };
    let runtime = builder.enable_all().build();
    runtime.map_err(|error| Failure::own("the runtime could not be started", error))
}
