//! The fault campaign: real servers, real holder processes, random faults from a seed, and a judge
//! who reads what they wrote down. Run by `cargo xtask faults`; see `docs/faults/README.md`.

mod campaign;
mod clock;
mod history;
mod holder;
mod judge;
mod report;
mod watchdog;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::campaign::CampaignArgs;
use self::holder::HolderArgs;
use self::watchdog::{NodeArgs, SubjectArgs, WatchdogArgs};

#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a campaign.
    Campaign(CampaignArgs),
    /// Is a holder process of a campaign.
    #[command(hide = true)]
    Holder(HolderArgs),
    /// Runs the campaign of the watchdog.
    Watchdog(WatchdogArgs),
    /// Is a node of the watchdog in that campaign.
    #[command(hide = true)]
    WatchdogNode(NodeArgs),
    /// Is a holder of that campaign.
    #[command(hide = true)]
    WatchdogSubject(SubjectArgs),
    /// Judges histories that were kept.
    Judge {
        /// The folders of their worlds.
        folders: Vec<PathBuf>,
    },
}

fn main() -> ExitCode {
    let outcome = match Args::parse().command {
        Command::Campaign(args) => campaign::run(&args),
        Command::Holder(args) => holder::run(args).map(|()| true),
        Command::Watchdog(args) => watchdog::run(&args),
        Command::WatchdogNode(args) => watchdog::node(args).map(|()| true),
        Command::WatchdogSubject(args) => watchdog::subject(args).map(|()| true),
        Command::Judge { folders } => rejudge(&folders),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("leasehold-faults: {error}");
            ExitCode::from(2)
        }
    }
}

fn rejudge(folders: &[PathBuf]) -> Result<bool, String> {
    let mut clean = true;
    for folder in folders {
        let verdict = judge::judge(&history::read(folder)?);
        println!("{}: {}", folder.display(), verdict.summary());
        for violation in &verdict.violations {
            println!("VIOLATION {violation}");
            clean = false;
        }
    }
    Ok(clean)
}
