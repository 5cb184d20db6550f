//! `cargo xtask bench compare`: the same work done by Leasehold and by other libraries on one server.
//!
//! Each runner is a small program with one command line and one line of JSON as its result, see
//! `bench/README.md`. They run one after the other, in rounds, so that whatever else the machine does
//! hits all of them.

mod figures;
mod machine;
mod peers;
mod report;
mod runner;
mod server;

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZero;

use self::figures::Figures;
use self::peers::Peer;
use self::runner::{SCENARIOS, Scenario};
use self::server::Servers;
use crate::tools::root;

/// The options of the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Duration of each measurement
    #[arg(long, default_value = "2", value_parser = positive)]
    seconds: f64,
    /// Measurements of each scenario, of which the medians count
    #[arg(long, default_value = "1")]
    rounds: NonZero<usize>,
    /// Only these libraries besides Leasehold; writes no file
    #[arg(long, value_delimiter = ',')]
    only: Option<Vec<String>>,
}

/// The figures of each scenario and peer: the medians of the rounds.
type Results = BTreeMap<(&'static str, String), Figures>;

/// Builds what can be built, runs it, and writes `docs/bench/`.
pub(crate) fn compare(options: &Options) -> Result<(), String> {
    let (peers, mut skipped) = build(options.only.as_deref());
    let servers = Servers::start()?;
    let mut versions = BTreeMap::new();
    let mut measured: BTreeMap<(&'static str, String), Vec<Figures>> = BTreeMap::new();
    let runs = options.rounds.get() * peers.len() * SCENARIOS.len();
    let mut run = 0;
    for round in 1..=options.rounds.get() {
        for scenario in &SCENARIOS {
            for peer in &peers {
                run += 1;
                if scenario.many && !peer.over_many() {
                    continue;
                }
                let (label, name) = (peer.label(), scenario.name);
                println!("[{run}/{runs}] round {round}: {name}: {label}");
                match runner::run(peer, scenario, &servers, options.seconds) {
                    Ok((figures, version)) => {
                        versions.insert(peer.library.to_owned(), version);
                        measured.entry((name, label)).or_default().push(figures);
                    }
                    Err(why) => {
                        println!("WARNING: {label} failed at {name}: {why}");
                        skipped.push((format!("{label} at {name}"), why));
                    }
                }
            }
        }
    }
    versions.insert("redis-server".into(), servers.version()?);
    drop(servers);
    let results: Results = measured
        .into_iter()
        .map(|(key, rounds)| (key, figures::median(&rounds)))
        .collect();
    let command = format!(
        "cargo xtask bench compare --seconds {} --rounds {}",
        options.seconds, options.rounds
    );
    let directory = root().join("docs/bench");
    let write = |name: &str, text: String| {
        fs::create_dir_all(&directory)
            .and_then(|()| fs::write(directory.join(name), text))
            .map_err(|error| format!("docs/bench/{name}: {error}"))
    };
    let machine = machine::describe();
    let report = report::json(&results, &versions, &skipped, &machine, &command);
    let document = report::document(&report);
    print!("{document}");
    if options.only.is_none() {
        write("compare.json", format!("{report:#}\n"))?;
        write("compare.md", document)?;
        println!("written: docs/bench/compare.json, docs/bench/compare.md");
    } else {
        println!("nothing is written: --only leaves something out");
    }
    Ok(())
}

/// Builds the runners. Returns the peers whose runner was built, and why the others are left out.
fn build(only: Option<&[String]>) -> (Vec<Peer>, Vec<(String, String)>) {
    let (mut peers, mut skipped) = (Vec::new(), Vec::new());
    for peer in peers::all() {
        let named = |only: &[String]| only.iter().any(|name| name == peer.library);
        if !peer.is_ours() && !only.is_none_or(named) {
            continue;
        }
        match peer.build() {
            Ok(()) => peers.push(peer),
            Err(why) => {
                println!("WARNING: {} is left out: {why}", peer.label());
                skipped.push((peer.label(), why));
            }
        }
    }
    (peers, skipped)
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| *number > 0.0);
    number.ok_or_else(|| format!("{text} is not a positive number"))
}

/// The figures of a scenario, in the order of the peers.
fn of<'a>(
    results: &'a Results,
    scenario: &'a Scenario,
) -> impl Iterator<Item = (String, &'a Figures)> {
    peers::all().into_iter().filter_map(|peer: Peer| {
        let label = peer.label();
        let figures = results.get(&(scenario.name, label.clone()))?;
        Some((label, figures))
    })
}

#[cfg(test)]
mod tests;
