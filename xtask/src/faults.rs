//! `cargo xtask faults`: campaigns of random faults against real servers, holders and the watchdog.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::tools::{cargo_line, root, run};

/// The package of the campaigns, and its program.
pub(crate) const PROGRAM: &str = "leasehold-faults";

/// The seed of the short form in `cargo xtask test`. Its schedule contains every kind of fault.
const SHORT_SEED: &str = "1";

/// A directory in memory for temporary files. Killed servers lose nothing there that they wrote, and a slow disk
/// would only delay the campaign.
const MEMORY: &str = "/dev/shm";

/// The campaign of random faults, with its directory for histories.
const RANDOM: &[&str] = &["campaign", "--histories", "target/faults"];

/// Runs a campaign with these options. Only complete campaigns write `docs/faults/`.
pub(crate) fn campaign(args: &[&str]) -> Result<(), String> {
    let report = ["--report", "docs/faults"];
    let (campaign, args, complete) = match args.split_first() {
        Some((&"watchdog", args)) => (&["watchdog"][..], args, !args.contains(&"--short")),
        _ => (
            RANDOM,
            args,
            args.contains(&"--minutes") || args.contains(&"--long"),
        ),
    };
    let report = if complete && !args.contains(&"--only") {
        &report[..]
    } else {
        &[]
    };
    start(
        cargo_line("run --release --locked --package").args([PROGRAM, "--"]),
        &[campaign, args, report].concat(),
    )
}

/// Runs the short form of the random faults, with the program that was built for the tests.
pub(crate) fn short() -> Result<(), String> {
    start(
        &mut built()?,
        &[RANDOM, &["--short", "--seed", SHORT_SEED]].concat(),
    )
}

/// Runs the short form of the watchdog's campaign.
pub(crate) fn short_watchdog() -> Result<(), String> {
    start(&mut built()?, &["watchdog", "--short"])
}

/// The program beside this one. `cargo run` would compile it again, with the features of its package alone.
fn built() -> Result<Command, String> {
    let this = env::current_exe().map_err(|error| format!("path of this program: {error}"))?;
    Ok(Command::new(this.with_file_name(PROGRAM)))
}

fn start(program: &mut Command, args: &[&str]) -> Result<(), String> {
    if Path::new(MEMORY).is_dir() {
        program.env("TMPDIR", MEMORY);
    }
    run(program.args(args).current_dir(root()))
}
