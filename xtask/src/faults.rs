//! `cargo xtask faults`: the campaign of faults against real servers, holders and the watchdog.

use std::env;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::servers;
use crate::tools::{cargo_line, root, run};

/// The package of the campaign, and its program.
pub(crate) const PROGRAM: &str = "leasehold-faults";

/// The seed of the short form in `cargo xtask test`. Its schedule contains every kind of fault of a single server.
const SHORT_SEED: &str = "1";

/// A directory in memory for temporary files. Killed servers lose nothing there that they wrote, and a slow disk
/// would only delay the campaign.
const MEMORY: &str = "/dev/shm";

/// Runs a campaign with these options. Complete campaigns write `docs/faults/`.
pub(crate) fn campaign(args: &[String]) -> Result<(), String> {
    let mut program = cargo_line("run --release --locked --package");
    program.args([PROGRAM, "--", "campaign", "--report", "docs/faults"]);
    start(program.args(args))
}

/// Runs the short form with these options, with the program that was built for the tests. `variable`: where it finds its
/// servers.
pub(crate) fn short(options: &[&str], variable: Option<(&str, &OsStr)>) -> Result<(), String> {
    // `cargo run` would compile it again, with the features of its package alone.
    let this = env::current_exe().map_err(|error| format!("path of this program: {error}"))?;
    let mut program = Command::new(this.with_file_name(PROGRAM));
    program.envs(variable);
    start(
        program
            .args(["campaign", "--short", "--seed", SHORT_SEED])
            .args(options),
    )
}

fn start(program: &mut Command) -> Result<(), String> {
    if Path::new(MEMORY).is_dir() {
        program.env("TMPDIR", MEMORY);
    }
    run(program
        .envs(servers::BUCKET_CREDENTIALS)
        .current_dir(root()))
}
