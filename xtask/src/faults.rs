//! `cargo xtask faults`: random faults against real servers and holders, and a judge; and the faults of the
//! watchdog.

use std::path::Path;

use crate::tools::{cargo, root, run};

/// What the short form draws its faults from in `cargo xtask test`: a schedule in which all kinds of
/// faults come.
const SHORT_SEED: &str = "1";

/// Where temporary files cost no disk. Servers that are killed lose nothing that they wrote, on
/// whatever it is; a slow disk would only make everybody wait.
const MEMORY: &str = "/dev/shm";

/// The campaign of random faults, and where it keeps histories.
const RANDOM: &[&str] = &["campaign", "--histories", "target/faults"];

/// Runs a campaign as it is asked for. All but the short forms and parts of a campaign write `docs/faults/`.
pub(crate) fn campaign(args: &[&str]) -> Result<(), String> {
    let package = ["build", "--release", "--package", "leasehold-faults"];
    run(cargo().args(package).arg("--locked"))?;
    let report = ["--report", "docs/faults"];
    if let Some((&"watchdog", args)) = args.split_first() {
        let writes = !["--short", "--only"].iter().any(|form| args.contains(form));
        let report: &[&str] = if writes { &report } else { &[] };
        return start(&["--release"], &[&["watchdog"], args, report].concat());
    }
    let writes = args.iter().any(|arg| ["--minutes", "--long"].contains(arg));
    let writes = writes && !args.contains(&"--only");
    let report: &[&str] = if writes { &report } else { &[] };
    start(&["--release"], &[RANDOM, args, report].concat())
}

/// The short form with what the tests are built from.
pub(crate) fn short() -> Result<(), String> {
    start(&[], &[RANDOM, &["--short", "--seed", SHORT_SEED]].concat())
}

/// The short form of the watchdog's campaign.
pub(crate) fn short_watchdog() -> Result<(), String> {
    start(&[], &["watchdog", "--short"])
}

fn start(profile: &[&str], args: &[&str]) -> Result<(), String> {
    let mut program = cargo();
    if Path::new(MEMORY).is_dir() {
        program.env("TMPDIR", MEMORY);
    }
    let package = [
        "run",
        "--quiet",
        "--package",
        "leasehold-faults",
        "--locked",
    ];
    program.args(package).args(profile);
    run(program.arg("--").args(args).current_dir(root()))
}
