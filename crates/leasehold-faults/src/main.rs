//! The fault campaign: real servers, nodes of the watchdog and holder processes under faults, and checks of the
//! history that they record. Run by `cargo xtask faults`; see `docs/faults/README.md`.

// A campaign that cannot go on fails by a panic, as a test does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admission;
mod campaign;
mod checker;
mod clock;
mod fence;
mod history;
mod holder;
mod holder_process;
mod leaders;
mod node;
mod random;
mod report;
mod scenario;
mod watchdog;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use leasehold_testkit::helper;

use self::campaign::CampaignArgs;

#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a campaign.
    Campaign(CampaignArgs),
    /// Checks histories of earlier campaigns.
    Check {
        /// Their directories.
        directories: Vec<PathBuf>,
    },
}

fn main() -> ExitCode {
    if helper::is_helper() {
        serve();
        return ExitCode::SUCCESS;
    }
    let clean = match Args::parse().command {
        Command::Campaign(args) => campaign::run(&args),
        Command::Check { directories } => check(&directories),
    };
    ExitCode::from(u8::from(!clean))
}

/// In a helper: obeys its first command, `holder JSON` or `node JSON`.
fn serve() {
    let mut commands = helper::commands();
    let Some(command) = commands.blocking_next() else {
        return;
    };
    let (process, config) = command.split_once(' ').unwrap();
    match process {
        "holder" => holder::run(serde_json::from_str(config).unwrap(), commands),
        _ => node::run(serde_json::from_str(config).unwrap(), commands),
    }
}

/// Checks the histories in some directories. Returns whether none has a violation.
fn check(directories: &[PathBuf]) -> bool {
    let mut clean = true;
    for directory in directories {
        let report = checker::check(&history::read(directory));
        println!("{}: {}", directory.display(), report.summary());
        for violation in &report.violations {
            println!("VIOLATION {violation}");
            clean = false;
        }
    }
    clean
}
