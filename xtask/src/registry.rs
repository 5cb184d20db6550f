//! Cargo commands that need the crate registry.

use std::process::{Command, Stdio};

/// Texts of cargo's messages about a registry that cannot be reached.
const UNREACHABLE: [&str; 3] = [
    "failed to download",
    "download of ",
    "attempting to make an HTTP request, but --offline was specified",
];

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CargoOutcome {
    Success,
    /// Cargo's message.
    Failure(String),
    /// The command needs the registry, which cannot be reached: the reason.
    Unreachable(String),
}

/// Runs a command of cargo; its error output decides how it ended.
pub(crate) fn run(cargo: &mut Command) -> Result<CargoOutcome, String> {
    let output = cargo.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cargo could not be started: {error}"))?;
    if output.status.success() {
        return Ok(CargoOutcome::Success);
    }
    Ok(classify(&String::from_utf8_lossy(&output.stderr)))
}

fn classify(message: &str) -> CargoOutcome {
    let is_cause = |line: &&str| UNREACHABLE.iter().any(|text| line.contains(text));
    match message.lines().rfind(is_cause) {
        Some(cause) => CargoOutcome::Unreachable(cause.trim().to_owned()),
        None => CargoOutcome::Failure(message.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_is_not_a_missing_registry() {
        let conflict = "error: failed to select a version for `libsqlite3-sys`.\n";
        assert_eq!(
            classify(conflict),
            CargoOutcome::Failure(conflict.trim().into())
        );
        let unreachable = "error: failed to get `sqlx`\n\nCaused by:\n  download of config.json failed\n\n\
                           Caused by:\n  failed to download from `https://index.crates.io/config.json`\n\n\
                           Caused by:\n  [7] Could not connect to server\n";
        let cause = "failed to download from `https://index.crates.io/config.json`";
        assert_eq!(
            classify(unreachable),
            CargoOutcome::Unreachable(cause.into())
        );
    }
}
