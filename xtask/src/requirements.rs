//! What the tests need beside servers: a compiler and room for what it writes.

use std::env;
use std::process::Command;

use rustix::fs::statvfs;
use rustix::process::geteuid;

use crate::tools::{find, output, root, target};

/// The compiler of the gate, which cargo requires for this package. The published crates compile with an older one.
const RUST: &str = env!("CARGO_PKG_RUST_VERSION");

/// What the directory of compiled crates needs: 4 GB after a run on Linux, and a fifth for other linkers.
const GIGABYTES: u64 = 5;

/// How long the build and the run take on two cores that do nothing else.
const BUILD_MINUTES: u32 = 4;
const RUN_MINUTES: u32 = 7;

/// Prints what the tests need, how long they take and which are skipped. Fails if the room is too small.
pub(crate) fn check() -> Result<(), String> {
    println!(
        "All tests take about {BUILD_MINUTES} minutes to compile and {RUN_MINUTES} to run on two idle cores. They need Rust \
         {RUST}, a C compiler, redis-server 7, PostgreSQL, etcd, Java, curl with repo1.maven.org, python3 with venv and PyPI, \
         and {GIGABYTES} GB in {}.",
        target().display()
    );
    for program in ["node", "go"] {
        if find(program).is_none() {
            println!("{program} is missing: its example in docs/languages.md is skipped.");
        }
    }
    if !geteuid().is_root() {
        println!("This user is not root: three tests with another user are skipped.");
    }
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = output(Command::new(rustc).arg("--version"))?;
    println!("{}", version.trim());
    let directory = if target().is_dir() {
        target()
    } else {
        root().into()
    };
    let disk = statvfs(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let free = disk.f_bavail * disk.f_frsize;
    let room = free + built();
    if room < GIGABYTES * 1_000_000_000 {
        return Err(format!(
            "the tests need {GIGABYTES} GB in {}, and {} MB are free there; free some, or set CARGO_TARGET_DIR to a \
             directory on another disk",
            target().display(),
            free / 1_000_000
        ));
    }
    Ok(())
}

/// How many bytes are in the directory of compiled crates, which may not be there yet.
fn built() -> u64 {
    let sum = output(Command::new("du").arg("-sk").arg(target())).unwrap_or_default();
    let kilobytes = sum.split_whitespace().next().unwrap_or_default();
    kilobytes.parse::<u64>().unwrap_or(0) * 1024
}
