//! `cargo xtask bench compare`: the same work done by Leasehold and by other libraries on the same machine.
//!
//! Each runner is a small program, see `bench/README.md`. They run one after the other, in rounds and in random order,
//! so that whatever else the machine does hits all of them.

mod figures;
mod machine;
mod peers;
mod proxy;
mod report;
mod runner;
mod servers;
mod shuffle;
mod table;
mod work;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::num::NonZero;
use std::process::Command;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};

use self::figures::Figures;
use self::peers::Peer;
use self::report::{Entry, Report, Section};
use self::shuffle::Random;
use self::work::{Deployment, WORKS, Work};
use crate::tools::{output, root};

/// The time that the start of servers and runners takes, for the estimate of what is left.
const START: Duration = Duration::from_millis(700);

/// The options of the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Libraries to measure beside Leasehold, separated by commas; all if not given
    #[arg(long, value_name = "LIBRARY", value_delimiter = ',')]
    #[arg(value_parser = PossibleValuesParser::new(peers::names()))]
    only: Vec<String>,
    /// Kinds of work to measure, separated by commas; all if not given
    #[arg(long, value_name = "WORK", value_delimiter = ',', value_parser = work_names())]
    work: Vec<String>,
    /// Duration of each measurement after its warm-up, in seconds
    #[arg(long, value_name = "S", default_value = "2", value_parser = positive)]
    seconds: Duration,
    /// Measurements of each library at each kind of work; their median counts
    #[arg(long, value_name = "N", default_value = "3")]
    rounds: NonZero<usize>,
    /// Seed of the order of the libraries, which changes with each round; a new one if not given
    #[arg(long, value_name = "N", default_value_t = shuffle::new_seed(), hide_default_value = true)]
    seed: u64,
}

/// One measurement.
struct Run<'a> {
    round: usize,
    work: &'static Work,
    peer: &'a Peer,
}

/// Builds what can be built, runs it, and writes `docs/bench/`.
pub(crate) fn compare(options: &Options) -> Result<(), String> {
    crate::servers::ensure_redis()?;
    let mut report = Report {
        command: options.command(),
        machine: machine::describe(),
        ..Report::default()
    };
    let redis = output(Command::new("redis-server").arg("--version"))?;
    report
        .versions
        .insert("redis-server".into(), redis.trim().into());
    let peers = build(&options.only, &mut report.left_out);
    let works = options.works(&mut report.left_out);
    let runs = plan(&peers, &works, options);
    let measured = measure(&runs, options, &mut report);
    report.works = sections(&works, &peers, &measured);
    write(&report, options)
}

/// The runs in their order.
fn plan<'a>(peers: &'a [Peer], works: &[&'static Work], options: &Options) -> Vec<Run<'a>> {
    let mut random = Random(options.seed);
    let mut runs = Vec::new();
    for round in 1..=options.rounds.get() {
        for &work in works {
            let mut suitable: Vec<_> = peers.iter().filter(|peer| peer.suits(work)).collect();
            random.shuffle(&mut suitable);
            runs.extend(suitable.into_iter().map(|peer| Run { round, work, peer }));
        }
    }
    runs
}

/// The figures of each kind of work and library, by round.
type Measured = BTreeMap<(&'static str, String), Vec<Figures>>;

fn measure(runs: &[Run<'_>], options: &Options, report: &mut Report) -> Measured {
    let mut measured = Measured::new();
    println!(
        "\n{} runs, {}: {}\n",
        runs.len(),
        left(runs, options),
        report.command
    );
    for (at, Run { round, work, peer }) in runs.iter().enumerate() {
        let (number, all, label) = (at + 1, runs.len(), peer.label());
        let digits = all.to_string().len();
        print!(
            "[{number:digits$}/{all}] round {round}, {:<20} {label:<27}",
            work.name
        );
        let _ = std::io::stdout().flush();
        match runner::run(peer, work, options.seconds) {
            Ok((figures, version)) => {
                let figure = |name: &str| figures.get(name).copied().unwrap_or(0.0);
                println!(
                    "{:>10}/s {:>9} µs of the server each, {}",
                    table::number_text(figure("acquisitions_per_second"), 0),
                    table::number_text(figure("server_us_per_acquisition"), 1),
                    left(&runs[number..], options),
                );
                report.versions.insert(peer.library.to_owned(), version);
                measured
                    .entry((work.name, label))
                    .or_default()
                    .push(figures);
            }
            Err(why) => {
                println!("FAILED: {why}");
                report
                    .left_out
                    .insert(format!("{label} at {}", work.name), why);
            }
        }
    }
    measured
}

/// An estimate of how long runs take.
fn left(runs: &[Run<'_>], options: &Options) -> String {
    let time = |run: &Run<'_>| START + run.peer.warm_up() + options.seconds;
    let all: Duration = runs.iter().map(time).sum();
    match all.as_secs() {
        seconds @ 0..90 => format!("{seconds} s left"),
        seconds => format!("{} min left", seconds.div_ceil(60)),
    }
}

fn sections(works: &[&'static Work], peers: &[Peer], measured: &Measured) -> Vec<Section> {
    let section = |work: &&'static Work| {
        let results = peers.iter().filter_map(|peer| {
            let library = peer.label();
            let rounds = measured.get(&(work.name, library.clone()))?;
            let figures = figures::spreads(rounds);
            Some(Entry { library, figures })
        });
        Section {
            work: work.name.into(),
            what: work.what.into(),
            results: results.collect(),
        }
    };
    let sections = works.iter().map(section);
    sections
        .filter(|section| !section.results.is_empty())
        .collect()
}

/// Prints the report, and writes it if it is complete.
fn write(report: &Report, options: &Options) -> Result<(), String> {
    let document = report::document(report);
    println!("\n{document}");
    if !(options.only.is_empty() && options.work.is_empty()) {
        println!("No file is written: --only and --work leave something out.");
        return Ok(());
    }
    let json = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    let directory = root().join("docs/bench");
    for (name, text) in [("compare.json", json + "\n"), ("compare.md", document)] {
        fs::create_dir_all(&directory)
            .and_then(|()| fs::write(directory.join(name), text))
            .map_err(|error| format!("docs/bench/{name}: {error}"))?;
        println!("Written: docs/bench/{name}");
    }
    Ok(())
}

/// Builds the runners. Returns the peers whose runner was built.
fn build(only: &[String], left_out: &mut BTreeMap<String, String>) -> Vec<Peer> {
    let mut peers = peers::all();
    let wanted = |library: &str| only.is_empty() || only.iter().any(|name| name == library);
    peers.retain(|peer| peer.library == peers::OURS || wanted(peer.library));
    let mut built = BTreeMap::new();
    peers.retain(|peer| {
        let outcome = built
            .entry(peer.directory())
            .or_insert_with(|| peer.build());
        let Err(why) = outcome else { return true };
        if left_out.insert(peer.library.into(), why.clone()).is_none() {
            println!("WARNING: {} is not measured: {why}", peer.library);
        }
        false
    });
    peers
}

impl Options {
    /// The command line that repeats this.
    fn command(&self) -> String {
        let mut command = String::from("cargo xtask bench compare");
        for (option, names) in [("only", &self.only), ("work", &self.work)] {
            if !names.is_empty() {
                command += &format!(" --{option} {}", names.join(","));
            }
        }
        let (seconds, rounds, seed) = (self.seconds.as_secs_f64(), self.rounds, self.seed);
        command + &format!(" --seconds {seconds} --rounds {rounds} --seed {seed}")
    }

    /// The kinds of work that are asked for and can be measured here.
    fn works(&self, left_out: &mut BTreeMap<String, String>) -> Vec<&'static Work> {
        let wanted =
            |work: &&Work| self.work.is_empty() || self.work.iter().any(|name| name == work.name);
        let mut works: Vec<_> = WORKS.iter().filter(wanted).collect();
        if let Err(why) = machine::two_cores() {
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

fn positive(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| format!("{text} is not a positive number"))
}

#[cfg(test)]
mod tests;
