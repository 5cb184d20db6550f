//! A campaign: the scenarios that are selected, one after the other, and their report.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;

use crate::checker::CheckReport;
use crate::database;
use crate::leaders;
use crate::random::{self, Size};
use crate::report::{LeadersReport, RandomReport, Report, WatchdogReport};
use crate::scenario::Form;
use crate::watchdog::{self, SCENARIOS, Scenario};

/// The scenarios of random faults: worlds with a single server, and with many masters.
const SINGLE: &str = "single";
const MASTERS: &str = "masters";

/// Random faults of a PostgreSQL server.
const POSTGRES: &str = "postgres";

/// Names for all scenarios of a kind.
const RANDOM: &str = "random";
const LEADERS: &str = "leaders";
const WATCHDOG: &str = "watchdog";

#[derive(Debug, clap::Args)]
pub(crate) struct CampaignArgs {
    /// Draw random faults from this number; from a random one if it is not given.
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    length: Length,
    /// Run this part of the changes of leader, and of the runs of each scenario of the watchdog.
    #[arg(long, conflicts_with = "short", value_parser = clap::value_parser!(u16).range(1..))]
    times_percent: Option<u16>,
    /// Run these scenarios only: single, masters, random for both, postgres, leaders for all changes of leader, watchdog for the
    /// others, or their names.
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(names()))]
    only: Vec<String>,
    /// Write the results of complete campaigns into the report in this directory.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Keep histories with violations in this directory.
    #[arg(long, default_value = "target/faults")]
    histories: PathBuf,
    /// Keep histories without violations, too.
    #[arg(long)]
    keep: bool,
}

/// The length of a campaign; the short form if none is given.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Length {
    /// A round of 20 s, a few changes of leader, and a few runs of each scenario of the watchdog.
    #[arg(long)]
    short: bool,
    /// So many rounds of a minute, all changes of leader, and all runs of each scenario of the watchdog.
    #[arg(long)]
    minutes: Option<u64>,
    /// 30 rounds of a minute, all changes of leader, and all runs of each scenario of the watchdog.
    #[arg(long)]
    long: bool,
}

/// All names of scenarios.
fn names() -> impl Iterator<Item = &'static str> {
    let leaders = leaders::SCENARIOS.iter().map(|scenario| scenario.name);
    let watchdog = SCENARIOS.iter().map(|scenario| scenario.name);
    [SINGLE, MASTERS, POSTGRES, RANDOM, LEADERS, WATCHDOG]
        .into_iter()
        .chain(leaders)
        .chain(watchdog)
}

impl CampaignArgs {
    fn selects(&self, kind: &str, name: &str) -> bool {
        let mut only = self.only.iter();
        self.only.is_empty() || only.any(|only| only == kind || only == name)
    }

    /// The selected scenarios of the watchdog.
    fn scenarios(&self) -> Vec<&'static Scenario> {
        let selected = |scenario: &&Scenario| self.selects(WATCHDOG, scenario.name);
        SCENARIOS.iter().filter(selected).collect()
    }

    /// The selected scenarios of leaders.
    fn leaders(&self) -> Vec<&'static leaders::Scenario> {
        let selected = |scenario: &&leaders::Scenario| self.selects(LEADERS, scenario.name);
        leaders::SCENARIOS.iter().filter(selected).collect()
    }

    fn form(&self) -> Form {
        let Length { minutes, long, .. } = self.length;
        match self.times_percent {
            Some(percent) => Form::Percent(percent),
            None if long || minutes.is_some() => Form::Percent(100),
            None => Form::Short,
        }
    }

    fn is_short(&self) -> bool {
        matches!(self.form(), Form::Short)
    }

    /// The size of the random faults. `None`: none is selected.
    fn size(&self) -> Option<Size> {
        let rounds = match self.length {
            Length { long: true, .. } => 30,
            Length { minutes, .. } => minutes.unwrap_or(0),
        };
        let (single, masters, round_ms) = match rounds {
            0 => (8, 2, 20_000),
            _ => (12, 4, 60_000),
        };
        let size = Size {
            rounds: rounds.max(1),
            single: single * u64::from(self.selects(RANDOM, SINGLE)),
            masters: masters * u64::from(self.selects(RANDOM, MASTERS)),
            round_ms,
        };
        (size.single + size.masters > 0).then_some(size)
    }
}

/// Runs a campaign, prints its results and adds them to the report. Returns whether it found nothing.
pub(crate) fn run(args: &CampaignArgs) -> bool {
    let mut results = Report::default();
    let mut clean = true;
    let size = args.size();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    if let Some(size) = size {
        let random = run_random(args, size, seed);
        clean &= random.violations.is_empty();
        results.random = Some(random);
    }
    if args.selects(POSTGRES, POSTGRES) {
        clean &= run_postgres(args, seed);
    }
    (results.leaders, results.watchdog) = match args.is_short() {
        // Side by side: latencies are not judged.
        true => thread::scope(|scope| {
            let leaders = scope.spawn(|| run_leaders(args, seed));
            let watchdog = run_watchdog(args);
            (leaders.join().unwrap(), watchdog)
        }),
        false => (run_leaders(args, seed), run_watchdog(args)),
    };
    let leaders = results.leaders.as_ref();
    clean &= leaders.is_none_or(LeadersReport::is_clean);
    let watchdog = results.watchdog.as_ref();
    clean &= watchdog.is_none_or(|report| report.is_clean(!args.is_short()));
    println!("\n{}", results.markdown());
    if let Some(directory) = args.report.as_deref().filter(|_| !args.is_short()) {
        let all_random = size.is_some_and(|size| size.single > 0 && size.masters > 0);
        results.random = results.random.filter(|_| all_random);
        let all_leaders = args.leaders().len() == leaders::SCENARIOS.len();
        results.leaders = results.leaders.filter(|_| all_leaders);
        let all_scenarios = args.scenarios().len() == SCENARIOS.len();
        results.watchdog = results.watchdog.filter(|_| all_scenarios);
        results.write(directory);
    }
    clean
}

fn run_random(args: &CampaignArgs, size: Size, seed: u64) -> RandomReport {
    println!("{size}, seed {seed}");
    let begin = Instant::now();
    let mut all = CheckReport::default();
    for round in 0..size.rounds {
        let report = random::run_round(size, seed, round, |directory, world, report| {
            keep(args, directory, &format!("{seed}-{round}-{world}"), report);
        });
        println!(
            "round {} of {}: {}",
            round + 1,
            size.rounds,
            report.summary()
        );
        all.merge(report);
    }
    for violation in &all.violations {
        println!("VIOLATION {violation}");
    }
    RandomReport::new(size, seed, begin.elapsed(), &all)
}

/// Runs the random faults of a PostgreSQL server. Returns whether they found nothing.
fn run_postgres(args: &CampaignArgs, seed: u64) -> bool {
    let (rounds, seconds) = match args.length {
        Length { long: true, .. } => (30, 60),
        Length { minutes, .. } => minutes.map_or((1, 20), |minutes| (minutes, 60)),
    };
    let mut clean = true;
    for round in 0..rounds {
        let seed = seed.wrapping_add(round);
        let length = Duration::from_secs(seconds);
        let report = database::run_round(seed, length, |directory, report| {
            keep(args, directory, &format!("{seed}-postgres"), report);
        });
        println!("PostgreSQL, seed {seed}: {}", report.summary());
        for violation in &report.violations {
            println!("VIOLATION {violation}");
        }
        clean &= report.violations.is_empty();
    }
    clean
}

fn run_leaders(args: &CampaignArgs, seed: u64) -> Option<LeadersReport> {
    let scenarios = args.leaders();
    if scenarios.is_empty() {
        return None;
    }
    let begin = Instant::now();
    let rows = leaders::run(
        &scenarios,
        args.form(),
        seed,
        |directory, scenario, report| {
            keep(args, directory, &format!("{seed}-{scenario}"), report);
        },
    );
    Some(LeadersReport::new(seed, begin.elapsed(), rows))
}

fn run_watchdog(args: &CampaignArgs) -> Option<WatchdogReport> {
    let scenarios = args.scenarios();
    if scenarios.is_empty() {
        return None;
    }
    let begin = Instant::now();
    let form = args.form();
    let rows = watchdog::run(&scenarios, form);
    Some(WatchdogReport::new(form, begin.elapsed(), rows))
}

/// Keeps a history, if it has violations or all are kept.
fn keep(args: &CampaignArgs, directory: &Path, name: &str, report: &CheckReport) {
    if args.keep || !report.violations.is_empty() {
        let kept = args.histories.join(name);
        copy(directory, &kept);
        println!("the history is kept in {}", kept.display());
    }
}

/// Copies the files of a directory, and replaces those of an earlier campaign.
fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Parsed {
        #[command(flatten)]
        args: CampaignArgs,
    }

    fn parse(line: &str) -> Result<CampaignArgs, clap::Error> {
        let words = ["campaign"].into_iter().chain(line.split_whitespace());
        Parsed::try_parse_from(words).map(|parsed| parsed.args)
    }

    #[test]
    fn names_select_scenarios_and_the_short_form_is_the_default() {
        let all = SCENARIOS.len();
        for (line, short, single, masters, leaders, scenarios) in [
            ("", true, 8, 2, 5, all),
            ("--short", true, 8, 2, 5, all),
            ("--times-percent 10", false, 8, 2, 5, all),
            ("--minutes 5", false, 12, 4, 5, all),
            ("--only single", true, 8, 0, 0, 0),
            ("--only random --long", false, 12, 4, 0, 0),
            ("--only watchdog", true, 0, 0, 0, all),
            ("--only leaders --long", false, 0, 0, 5, 0),
            ("--only masters,leaders-file,killed,exec", true, 0, 2, 1, 2),
        ] {
            let args = parse(line).unwrap();
            let size = args.size();
            let size = size.map_or((0, 0), |size| (size.single, size.masters));
            assert_eq!(size, (single, masters), "{line}");
            let found = (args.leaders().len(), args.scenarios().len());
            assert_eq!(found, (leaders, scenarios), "{line}");
            assert_eq!(args.is_short(), short, "{line}");
        }
        parse("--only none").unwrap_err();
    }
}
