//! What the shipped crates are built from.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::tools::{cargo, find, output, root, run};

/// The crates that users get. They are built from no other crate of this workspace.
const SHIPPED: [&str; 4] = [
    "leasehold-core",
    "leasehold",
    "leasehold-watchdog",
    "leasehold-cli",
];

/// The file that states the number of crates in the smallest build for Redis.
const STATED_IN: &str = "crates/leasehold/src/lib.rs";

/// The features of that build.
const SMALLEST: [&str; 3] = ["--no-default-features", "--features", "redis"];

/// The version of cargo-deny that is installed if there is none.
const DENY_VERSION: &str = "0.20.2";

/// Checks the packages that each shipped crate is built from, and the stated number of them.
pub(crate) fn check() -> Result<(), String> {
    for package in SHIPPED {
        let tree = tree(package, &["--all-features"])?;
        println!("{package} is built from {} crates", tree.len());
        if let Some(line) = tree.iter().find(|line| is_ours(line) && !is_shipped(line)) {
            return Err(format!(
                "{package} is built from {line}, which is not shipped"
            ));
        }
        if package == "leasehold-core" && !tree.is_empty() {
            return Err(format!("leasehold-core depends on {tree:?}"));
        }
    }
    let count = tree("leasehold", &SMALLEST)?.len();
    let text = fs::read_to_string(root().join(STATED_IN)).map_err(|error| error.to_string())?;
    let stated = format!("is built from {count} crates");
    if text.contains(&stated) {
        Ok(())
    } else {
        Err(format!(
            "{STATED_IN} does not say that leasehold with {SMALLEST:?} {stated}"
        ))
    }
}

/// The packages that a crate is built from on Linux, without tests and the crate itself. Packages of this workspace
/// have their directories behind them.
fn tree(package: &str, features: &[&str]) -> Result<BTreeSet<String>, String> {
    let edges = [
        "--edges",
        "normal,build",
        "--target",
        "x86_64-unknown-linux-gnu",
    ];
    let format = [
        "--prefix",
        "none",
        "--format",
        "{p}",
        "--no-dedupe",
        "--locked",
    ];
    let mut command = cargo();
    command
        .args(["tree", "--package", package])
        .args(edges)
        .args(format);
    let text = output(command.args(features))?;
    Ok(text.lines().skip(1).map(str::to_owned).collect())
}

fn is_ours(line: &str) -> bool {
    line.contains(&format!("({}", root().display()))
}

fn is_shipped(line: &str) -> bool {
    SHIPPED
        .iter()
        .any(|name| line.split(' ').next() == Some(name))
}

/// Checks licences, sources and known vulnerabilities of all dependencies with cargo-deny, as `deny.toml` says.
pub(crate) fn deny() -> Result<(), String> {
    let tools = root().join("target/tools");
    let installed = tools.join("bin/cargo-deny");
    let program = find("cargo-deny").unwrap_or_else(|| installed.clone());
    if !program.is_file() {
        // Without optimization, which would take longer to compile than all checks.
        let version = [
            "install",
            "cargo-deny",
            "--version",
            DENY_VERSION,
            "--locked",
            "--debug",
        ];
        run(cargo()
            .args(version)
            .arg("--root")
            .arg(&tools)
            .env_remove("CARGO_TARGET_DIR"))?;
    }
    let deny = || {
        let mut deny = Command::new(&program);
        deny.current_dir(root())
            .args(["--locked", "--all-features"]);
        deny
    };
    run(deny().args(["check", "licenses", "bans", "sources"]))?;
    if let Err(error) = run(deny().args(["fetch", "db"])) {
        println!(
            "WARNING: advisories were not checked, because their database cannot be reached: {error}"
        );
        return Ok(());
    }
    run(deny().args(["check", "--disable-fetch", "advisories"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_of_tests_is_not_shipped() {
        let line = |name: &str| format!("{name} v0.1.0 ({}/crates/{name})", root().display());
        assert!(is_ours(&line("leasehold-sim")) && !is_shipped(&line("leasehold-sim")));
        assert!(is_ours(&line("leasehold-core")) && is_shipped(&line("leasehold-core")));
        assert!(!is_ours("redis v1.8.1"));
    }
}
