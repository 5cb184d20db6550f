//! The same work done by Leasehold and by other libraries on the same machine: `cargo xtask bench compare`.
//!
//! Each runner is a small program, see `bench/README.md`. They run one after the other, in rounds and in random order,
//! so that whatever else the machine does hits all of them.

mod figures;
mod libraries;
mod machine;
mod proxy;
mod report;
mod runner;
#[allow(dead_code)]
#[path = "../../server_stats.rs"]
mod server_stats;
mod servers;
mod table;
#[allow(dead_code)]
#[path = "../../../../../xtask/src/tools.rs"]
mod tools;
mod work;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, RandomState};
use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser as _;
use clap::builder::{PossibleValue, PossibleValuesParser};

use self::figures::{Figures, RATE, SERVER_TIME};
use self::libraries::{LEASEHOLD, LibraryVariant};
use self::report::{ComparisonReport, Entry, WorkResult};
use self::table::{Unit, value_text};
use self::work::{Deployment, WORKS, Work};
use crate::tools::{output, root};

/// The duration of each measurement after its warm-up.
const DURATION: Duration = Duration::from_secs(2);

/// The measurements of each library at each kind of work. Their median counts.
const ROUNDS: usize = 3;

/// Measure Leasehold and other libraries at the same work, and write docs/bench.
#[derive(Debug, clap::Parser)]
#[command(name = "cargo xtask bench compare")]
struct Options {
    /// Libraries to measure, separated by commas, and always Leasehold; all if not given
    #[arg(long, value_name = "LIBRARY", value_delimiter = ',')]
    #[arg(value_parser = PossibleValuesParser::new(libraries::names()))]
    only: Vec<String>,
    /// Kinds of work to measure, separated by commas; all if not given
    #[arg(long, value_name = "WORK", value_delimiter = ',', value_parser = work_names())]
    work: Vec<String>,
    /// Seed of the order of the libraries, which changes with each round; a new one if not given
    #[arg(long, value_name = "N", default_value_t = new_seed(), hide_default_value = true)]
    seed: u64,
}

/// One measurement.
struct Measurement<'a> {
    round: usize,
    work: &'static Work,
    variant: &'a LibraryVariant,
}

fn main() -> ExitCode {
    match compare(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds what can be built, runs it, and writes `docs/bench/`.
fn compare(options: &Options) -> Result<(), String> {
    let mut report = ComparisonReport {
        command: command(options.seed),
        machine: machine::describe(),
        ..ComparisonReport::default()
    };
    for (name, program) in [("redis-server", "redis-server"), ("etcd-server", "etcd")] {
        let version = output(Command::new(program).arg("--version"))?;
        let version = version.lines().next().unwrap_or_default().trim();
        report.versions.insert(name.into(), version.into());
    }
    let zookeeper = servers::zookeeper_version();
    report
        .versions
        .insert("zookeeper-server".into(), zookeeper.into());
    let variants = build(&options.only, &mut report.left_out)?;
    let works = options.works(&mut report.left_out);
    let plan = plan(&variants, &works, options.seed);
    let measured = measure(&plan, &mut report)?;
    report.works = work_results(&works, &variants, &measured);
    write(report, options)
}

/// The measurements in their order.
fn plan<'a>(
    variants: &'a [LibraryVariant],
    works: &[&'static Work],
    seed: u64,
) -> Vec<Measurement<'a>> {
    let mut plan = Vec::new();
    for round in 1..=ROUNDS {
        for &work in works {
            let suitable = variants.iter().filter(|variant| variant.suits(work));
            let mut suitable: Vec<_> = suitable.collect();
            suitable.sort_by_cached_key(|variant| {
                let hasher = BuildHasherDefault::<DefaultHasher>::default();
                hasher.hash_one((seed, round, work.name, variant.label()))
            });
            plan.extend(suitable.into_iter().map(|variant| Measurement {
                round,
                work,
                variant,
            }));
        }
    }
    plan
}

/// Executes the plan. Returns the figures of the measurements that succeeded. If one of Leasehold fails, no ratio can be
/// computed, so that is an error.
fn measure<'a>(
    plan: &'a [Measurement<'a>],
    report: &mut ComparisonReport,
) -> Result<Vec<(&'a Measurement<'a>, Figures)>, String> {
    let all = plan.len();
    println!("\n{all} measurements: {}\n", report.command);
    let mut measured = Vec::new();
    for (number, measurement) in (1..).zip(plan) {
        let Measurement {
            round,
            work,
            variant,
        } = measurement;
        let (digits, name, label) = (all.to_string().len(), work.name, variant.label());
        print!("[{number:digits$}/{all}] round {round}, {name:<20} {label:<27}");
        let _ = std::io::stdout().flush();
        match runner::measure(variant, work, DURATION) {
            Ok((figures, version)) => {
                let value = |name: &str, unit| {
                    let figure = figures.get(name).copied().unwrap_or_default();
                    value_text(figure, unit)
                };
                let rate = value(RATE, Unit::Count);
                let server_time = value(SERVER_TIME, Unit::Micros);
                println!("{rate:>10}/s {server_time:>9} of the server each");
                report.versions.insert(variant.library.to_owned(), version);
                measured.push((measurement, figures));
            }
            Err(why) => {
                println!("FAILED: {why}");
                let failed = format!("{label} at {name}");
                if variant.library == LEASEHOLD {
                    return Err(format!("{failed}: {why}"));
                }
                report.left_out.insert(failed, why);
            }
        }
    }
    Ok(measured)
}

/// The results in the order of the kinds of work and of the libraries.
fn work_results(
    works: &[&'static Work],
    variants: &[LibraryVariant],
    measured: &[(&Measurement<'_>, Figures)],
) -> Vec<WorkResult> {
    let entry = |work: &Work, label: String| {
        let rounds = measured.iter().filter(|(measurement, _)| {
            measurement.work.name == work.name && measurement.variant.label() == label
        });
        let figures = figures::spreads(rounds.map(|(_, figures)| figures));
        (!figures.is_empty()).then_some(Entry { label, figures })
    };
    let result = |work: &&'static Work| {
        let labels = variants.iter().map(LibraryVariant::label);
        WorkResult {
            work: work.name.into(),
            what: work.what.into(),
            command: None,
            results: labels.filter_map(|label| entry(work, label)).collect(),
        }
    };
    works.iter().map(result).collect()
}

/// Prints the report, and writes it if no library was left out. Some kinds of work replace those of the report before.
fn write(mut report: ComparisonReport, options: &Options) -> Result<(), String> {
    println!("\n{}", report::document(&report));
    if !options.only.is_empty() {
        println!("No file is written: --only leaves libraries out.");
        return Ok(());
    }
    let directory = root().join("docs/bench");
    if !options.work.is_empty() {
        let before = directory.join("compare.json");
        let before = fs::read(&before)
            .map_err(|error| error.to_string())
            .and_then(|json| serde_json::from_slice(&json).map_err(|error| error.to_string()))
            .and_then(|before: ComparisonReport| before.updated(report));
        report = match before {
            Ok(updated) => updated,
            Err(why) => {
                println!("No file is written: docs/bench/compare.json cannot be updated: {why}");
                return Ok(());
            }
        };
    }
    let document = report::document(&report);
    let json = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
    for (name, text) in [("compare.json", json + "\n"), ("compare.md", document)] {
        fs::create_dir_all(&directory)
            .and_then(|()| fs::write(directory.join(name), text))
            .map_err(|error| format!("docs/bench/{name}: {error}"))?;
        println!("Written: docs/bench/{name}");
    }
    Ok(())
}

/// Builds the runners. Returns the variants whose runner was built. Without the runner of Leasehold no ratio can be
/// computed, so that is an error.
fn build(
    only: &[String],
    left_out: &mut BTreeMap<String, String>,
) -> Result<Vec<LibraryVariant>, String> {
    let wanted = |variant: &LibraryVariant| {
        let mut names = only.iter();
        only.is_empty() || variant.library == LEASEHOLD || names.any(|name| name == variant.library)
    };
    let mut built = BTreeMap::new();
    let mut variants = Vec::new();
    for variant in libraries::all().filter(wanted) {
        let (library, directory) = (variant.library, variant.language.directory);
        match built.entry(directory).or_insert_with(|| variant.build()) {
            Ok(()) => variants.push(variant),
            Err(why) if library == LEASEHOLD => {
                return Err(format!("the runner of {library} was not built: {why}"));
            }
            Err(why) => {
                if left_out.insert(library.into(), why.clone()).is_none() {
                    println!("WARNING: {library} is not measured: {why}");
                }
            }
        }
    }
    Ok(variants)
}

impl Options {
    /// The kinds of work that are asked for and can be measured here.
    fn works(&self, left_out: &mut BTreeMap<String, String>) -> Vec<&'static Work> {
        let wanted =
            |work: &&Work| self.work.is_empty() || self.work.iter().any(|name| name == work.name);
        let mut works: Vec<_> = WORKS.iter().filter(wanted).collect();
        if let Err(why) = machine::check_cores() {
            works.retain(|work| {
                let pinned = work.deployment == Deployment::Pinned;
                if pinned {
                    println!("WARNING: {} is not measured: {why}", work.name);
                    left_out.insert(work.name.into(), why.clone());
                }
                !pinned
            });
        }
        works
    }
}

fn work_names() -> PossibleValuesParser {
    PossibleValuesParser::new(
        WORKS
            .iter()
            .map(|work| PossibleValue::new(work.name).help(work.what)),
    )
}

/// The command line of this comparison, with the seed that repeats it.
fn command(seed: u64) -> String {
    let mut words: Vec<_> = env::args().skip(1).collect();
    if !words.iter().any(|word| word.starts_with("--seed")) {
        words.push(format!("--seed {seed}"));
    }
    format!("cargo xtask bench compare {}", words.join(" "))
}

/// A seed that is short enough to be typed.
fn new_seed() -> u64 {
    RandomState::new().hash_one(()) % 1_000_000
}

#[cfg(test)]
mod tests;
