//! Known faults in dependencies, as far as a tool on this machine can tell without the network.

use std::env;
use std::fs;
use std::path::PathBuf;

use crate::tools::{cargo, find, run};

/// Asks cargo-deny, or else cargo-audit, if it is installed and has a database.
pub(crate) fn check() -> Result<(), String> {
    let deny = find("cargo-deny").is_some();
    let audit = find("cargo-audit").is_some();
    if deny && has_database("advisory-dbs") {
        return run(cargo().args(["deny", "--offline", "check", "advisories"]));
    }
    if audit && has_database("advisory-db") {
        return run(cargo().args(["audit", "--no-fetch", "--stale"]));
    }
    let why = if deny || audit {
        "there is no advisory database here; run cargo deny fetch or cargo audit"
    } else {
        "neither cargo-deny nor cargo-audit is installed"
    };
    println!("WARNING: ADVISORIES WERE NOT CHECKED: {why}");
    Ok(())
}

fn has_database(folder: &str) -> bool {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| {
        let home = env::var_os("HOME")?;
        Some(PathBuf::from(home).join(".cargo"))
    });
    let entries = home.and_then(|home| fs::read_dir(home.join(folder)).ok());
    entries.is_some_and(|mut entries| entries.next().is_some())
}
