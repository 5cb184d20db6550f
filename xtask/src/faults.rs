//! `cargo xtask faults`: random faults against real servers and holders, and a judge.

use std::path::Path;

use crate::tools::{cargo, root, run};

/// What the short form draws its faults from in `cargo xtask test`: a schedule in which all kinds of
/// faults come.
const SHORT_SEED: &str = "1";

/// Where temporary files cost no disk. Servers that are killed lose nothing that they wrote, on
/// whatever it is; a slow disk would only make everybody wait.
const MEMORY: &str = "/dev/shm";

/// Runs a campaign as it is asked for. All but the short form writes `docs/faults/`.
pub(crate) fn campaign(args: &[&str]) -> Result<(), String> {
    let package = ["build", "--release", "--package", "leasehold-faults"];
    run(cargo().args(package).arg("--locked"))?;
    let writes = args.iter().any(|arg| ["--minutes", "--long"].contains(arg));
    let report: &[&str] = if writes {
        &["--report", "docs/faults"]
    } else {
        &[]
    };
    start(&["--release"], &[args, report].concat())
}

/// The short form with what the tests are built from.
pub(crate) fn short() -> Result<(), String> {
    start(&[], &["--short", "--seed", SHORT_SEED])
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
    program.args(["--", "campaign", "--histories"]);
    run(program.arg(root().join("target/faults")).args(args))
}
