//! `leasehold bench`: what a lock costs, beside what the store alone costs.

mod figures;
mod measure;
mod picture;
mod report;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::ClientBuilder;
use leasehold::store::OpenOptions;
use leasehold::store::yardstick::Yardstick;
use serde::Serialize;

use self::measure::Worker;
use self::report::Report;
use crate::exit::Failure;
use crate::output;

/// The tasks of `independent` where a call costs little, and where each waits for a disk.
const TASKS: usize = 256;
const TASKS_ON_DISK: usize = 64;

/// Measure what a lock costs at this store.
///
/// Locks and releases over and over, in turn with bare calls that do the same to the store without
/// leasehold around them: over the same connection, in the same process, in short slices, so that
/// whatever else the machine does hits both. Takes locks under names of its own only.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure
    #[arg(long, value_enum, default_value_t = Scenario::Uncontended)]
    pub(crate) scenario: Scenario,
    /// How many tasks lock at once, each a name of its own; 256 if not given, 64 with SQLite
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) tasks: Option<u16>,
    /// How long to measure
    #[arg(long, value_name = "S", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=3_600))]
    pub(crate) seconds: u16,
    /// How many threads run the tasks
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: u16,
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
}

/// Measures the store that `url` names. `builder` says in which namespace.
pub(crate) fn run(
    args: &BenchArgs,
    url: &str,
    options: &OpenOptions,
    builder: ClientBuilder,
) -> Result<u8, Failure> {
    let report = find(args, url, options, builder)?;
    if args.json {
        output::json(&report)?;
    } else {
        output::write(picture::draw(&report).as_bytes())?;
    }
    Ok(0)
}

fn find(
    args: &BenchArgs,
    url: &str,
    options: &OpenOptions,
    builder: ClientBuilder,
) -> Result<Report, Failure> {
    let tasks = tasks(args, url)?;
    let runtime = runtime(args.threads)
        .map_err(|error| Failure::own("the runtime could not be started", error))?;
    runtime.block_on(async {
        let yardstick = Arc::new(Yardstick::open(url, options).await?);
        let client = builder.build(yardstick.store())?;
        // Two benches at once must not meet.
        let names = format!("bench/{:016x}", RandomState::new().hash_one(0));
        let mut ours = Vec::with_capacity(tasks);
        let mut bare = Vec::with_capacity(tasks);
        for task in 0..tasks {
            ours.push(Worker::Ours(client.mutex(format!("{names}/{task}"))?));
            let mutex = client.mutex(format!("{names}/bare/{task}"))?;
            bare.push(Worker::Bare(yardstick.lane(&mutex)));
        }
        let span = Duration::from_secs(args.seconds.into());
        let tallies = measure::alternate(ours, bare, span, &yardstick).await?;
        let store = client.store().to_string();
        Ok(Report::new(args, tasks, store, &tallies))
    })
}

fn tasks(args: &BenchArgs, url: &str) -> Result<usize, Failure> {
    match (args.scenario, args.tasks) {
        (Scenario::Uncontended, None | Some(1)) => Ok(1),
        (Scenario::Uncontended, Some(_)) => Err(Failure::usage(
            "uncontended is one task; measure many with --scenario independent",
        )),
        (Scenario::Independent, Some(tasks)) => Ok(tasks.into()),
        (Scenario::Independent, None) if url.starts_with("sqlite:") => Ok(TASKS_ON_DISK),
        (Scenario::Independent, None) => Ok(TASKS),
    }
}

fn runtime(threads: u16) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = if threads == 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(threads.into());
        builder
    };
    builder.enable_all().build()
}

#[cfg(test)]
mod tests;
