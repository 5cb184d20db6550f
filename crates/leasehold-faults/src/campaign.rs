//! A campaign: the scenarios that are selected, and their report.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;

use crate::report::CampaignReport;
use crate::scenario::{self, Form, LEADERS, RANDOM, SOAK, Scenario, WATCHDOG};
use crate::{leaders, random, watchdog};

#[derive(Debug, clap::Args)]
pub(crate) struct CampaignArgs {
    /// Draw random faults from this number; from a random one if it is not given.
    #[arg(long)]
    seed: Option<u64>,
    /// A round of at most 20 s, a few changes of leader, and a few runs of each scenario of the watchdog: the default.
    #[arg(long, conflicts_with = "minutes")]
    short: bool,
    /// So many rounds of a minute, all changes of leader, and all runs of each scenario of the watchdog.
    #[arg(long)]
    minutes: Option<u64>,
    /// Run this part of the changes of leader, and of the runs of each scenario of the watchdog.
    #[arg(long, conflicts_with = "short", value_parser = clap::value_parser!(u16).range(1..))]
    times_percent: Option<u16>,
    /// Run these scenarios only: random for single, masters, postgres, etcd, zookeeper and bucket, leaders for all changes of leader,
    /// watchdog for the others, or their names. Only this selects soak: all stores at the same time, for --minutes.
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(names()))]
    only: Vec<String>,
    /// Write the results of complete scenarios into the report in this directory.
    #[arg(long)]
    report: Option<PathBuf>,
}

/// All scenarios, in the order of the report.
fn scenarios() -> impl Iterator<Item = &'static Scenario> {
    let leaders = leaders::SCENARIOS.iter();
    random::SCENARIOS
        .iter()
        .chain(leaders)
        .chain(watchdog::SCENARIOS)
        .chain(random::SOAKS)
}

/// The names of scenarios and of their kinds.
fn names() -> impl Iterator<Item = &'static str> {
    let kinds = [RANDOM, LEADERS, WATCHDOG, SOAK];
    kinds
        .into_iter()
        .chain(scenarios().map(|scenario| scenario.name))
}

impl CampaignArgs {
    /// The selected scenarios.
    fn scenarios(&self) -> Vec<&'static Scenario> {
        let selected = |scenario: &&Scenario| {
            let mut only = self.only.iter();
            (self.only.is_empty() && scenario.kind != SOAK)
                || only.any(|only| [scenario.kind, scenario.name].contains(&&**only))
        };
        let runs = |scenario: &&Scenario| scenario.count(self.form()) > 0;
        scenarios().filter(selected).filter(runs).collect()
    }

    fn form(&self) -> Form {
        Form {
            minutes: self.minutes.unwrap_or(0),
            percent: self.times_percent,
        }
    }
}

/// Runs a campaign, prints its results and adds them to the report. Returns whether it found nothing.
pub(crate) fn run(args: &CampaignArgs) -> bool {
    let form = args.form();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("seed {seed}");
    let selected = args.scenarios();
    for scenario in &selected {
        println!("{}: {}", scenario.name, scenario.description);
    }
    let outcomes = scenario::run_all(&selected, form, seed);
    let report = CampaignReport::new(seed, form, outcomes);
    println!("\n{}", report.markdown(scenarios()));
    let clean = report.is_clean(!form.is_short());
    if let Some(directory) = args.report.as_deref().filter(|_| !form.is_short()) {
        report.write(directory, scenarios());
    }
    clean
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;
    use crate::report::{DATA, DOCUMENT};

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
        let all = watchdog::SCENARIOS.len();
        // The short form has no failovers without a replica or a standby that acknowledges.
        for (line, short, worlds, leaders, watchdog) in [
            ("", true, 14, 5, all),
            ("--short", true, 14, 5, all),
            ("--times-percent 10", false, 14, 7, all),
            ("--minutes 5", false, 20, 7, all),
            ("--only single", true, 8, 0, 0),
            ("--only random --minutes 30", false, 20, 0, 0),
            ("--only watchdog", true, 0, 0, all),
            ("--only leaders --minutes 30", false, 0, 7, 0),
            ("--only soak --minutes 5", false, 0, 0, 0),
            ("--only masters,bucket,leaders-file,killed", true, 3, 1, 1),
        ] {
            let args = parse(line).unwrap();
            let form = args.form();
            let of = |kind: &str| {
                let scenarios = args.scenarios().into_iter();
                scenarios
                    .filter(|scenario| scenario.kind == kind)
                    .collect::<Vec<_>>()
            };
            let worlds_of = of(RANDOM).into_iter().map(|scenario| scenario.count(form));
            let found = (worlds_of.sum(), of(LEADERS).len(), of(WATCHDOG).len());
            assert_eq!(found, (worlds, leaders, watchdog), "{line}");
            assert_eq!(form.is_short(), short, "{line}");
            assert_eq!(of(SOAK).is_empty(), !line.contains("soak"), "{line}");
        }
        let percent = parse("--times-percent 10").unwrap().form();
        let killed = scenarios().find(|scenario| scenario.name == "killed");
        assert_eq!(killed.unwrap().count(percent), 200);
        parse("--only none").unwrap_err();
    }

    #[test]
    fn the_document_shows_the_last_results_of_every_scenario() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/faults/");
        let read = |file| fs::read_to_string(format!("{directory}{file}")).unwrap();
        let report: CampaignReport = serde_json::from_str(&read(DATA)).unwrap();
        assert_eq!(report.document(scenarios()), read(DOCUMENT));
    }
}
