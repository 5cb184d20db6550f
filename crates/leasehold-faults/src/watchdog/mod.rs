//! The campaign of the watchdog: holders that are stopped and killed in every way that was thought of, nodes
//! that are killed, stopped and cut off, and a measure of each.
//!
//! Servers, nodes and holders are processes of their own. Who waits for their locks is in this one.

mod actor;
mod cases;
mod certs;
mod holder;
mod node;
mod outcome;
mod report;
mod said;
mod subject;
mod waiter;
mod world;

use std::path::PathBuf;
use std::thread;
use std::time::Instant;

pub(crate) use self::node::{NodeArgs, run as node};
pub(crate) use self::subject::{SubjectArgs, run as subject};

use self::cases::{CASES, Case};
use self::outcome::{Outcome, Row};
use self::report::Report;

/// What the campaign is told on the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct WatchdogArgs {
    /// So many times of the full count, in a hundred.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    times_percent: u16,
    /// A few times each, all cases side by side; only misses count, not times.
    #[arg(long, conflicts_with = "times_percent")]
    short: bool,
    /// Only these cases.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Write the report into this folder.
    #[arg(long)]
    report: Option<PathBuf>,
}

impl WatchdogArgs {
    fn times(&self, case: &Case) -> usize {
        match self.short {
            true => case.short,
            false => (case.times * usize::from(self.times_percent)).div_ceil(100),
        }
    }

    fn form(&self) -> String {
        match (self.short, self.times_percent) {
            (true, _) => "the short form".into(),
            (false, 100) => "all times".into(),
            (false, percent) => format!("{percent} % of the times"),
        }
    }
}

/// Runs the campaign, and writes the report if that is wanted. Answers whether nothing was missed.
///
/// # Errors
///
/// What kept it from running to its end.
pub(crate) fn run(args: &WatchdogArgs) -> Result<bool, String> {
    let chosen: Vec<_> = CASES
        .iter()
        .filter(|case| args.only.is_empty() || args.only.iter().any(|only| only == case.name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<_> = CASES.iter().map(|case| case.name).collect();
        return Err(format!("the cases are {}", names.join(", ")));
    }
    let begin = Instant::now();
    let rows = play_all(args, &chosen);
    let report = Report::new(args.form(), begin.elapsed(), rows);
    println!("{}", report.markdown());
    if let Some(folder) = &args.report {
        report.write(folder)?;
    }
    Ok(report.is_clean(!args.short))
}

/// Plays the cases: those of one group side by side, in the short form all.
fn play_all(args: &WatchdogArgs, chosen: &[&'static Case]) -> Vec<Row> {
    let together = |a: &&Case, b: &&Case| args.short || a.group == b.group;
    let mut rows = Vec::new();
    for group in chosen.chunk_by(together) {
        thread::scope(|scope| {
            let played: Vec<_> = group
                .iter()
                .map(|case| scope.spawn(|| play(args, case)))
                .collect();
            for (case, played) in group.iter().zip(played) {
                let failed = |_| case.row(failed("it ended in a panic".into()));
                rows.push(played.join().unwrap_or_else(failed));
            }
        });
    }
    rows
}

fn play(args: &WatchdogArgs, case: &'static Case) -> Row {
    let begin = Instant::now();
    let times = args.times(case);
    eprintln!("{}: {times} times", case.name);
    let outcome = (case.play)(times, args.short);
    let row = case.row(outcome.unwrap_or_else(failed));
    eprintln!(
        "{}: {} misses in {} times, {:.0?}",
        row.case,
        row.misses,
        row.times,
        begin.elapsed()
    );
    for miss in &row.told {
        eprintln!("  miss: {miss}");
    }
    row
}

/// What cannot be played is missed.
fn failed(why: String) -> Outcome {
    Outcome {
        misses: vec![why],
        ..Outcome::default()
    }
}
