//! `cargo xtask manifests`: the systemd units, Kubernetes manifests and Prometheus alerts in `packaging`, checked by the
//! programs of these projects.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, id};
use std::{env, io};

use crate::tools::{find, root, run};

const UNITS: [&str; 2] = ["packaging", "packaging/examples/systemd"];

const PROMETHEUS: &str = "packaging/prometheus";

const KUBERNETES: &str = "packaging/examples/kubernetes";

/// The versions of Kubernetes: the first one with sidecars, and the last one that is known here.
const VERSIONS: [&str; 2] = ["1.29", "1.37"];

/// The units of the system, which those of ours refer to.
const SYSTEM_UNITS: &str = "/usr/lib/systemd/system";

pub(crate) fn check() -> Result<(), String> {
    check_units()?;
    check_alerts()?;
    if find("kubernetes-validate").is_none() {
        return Err("kubernetes-validate is not in PATH: pip install kubernetes-validate".into());
    }
    let manifests = files(KUBERNETES, &["yaml"])?;
    for version in VERSIONS {
        let mut validate = Command::new("kubernetes-validate");
        run(validate.args(["--strict", "-k", version]).args(&manifests))?;
    }
    Ok(())
}

/// Runs the tests of the alerts.
fn check_alerts() -> Result<(), String> {
    if find("promtool").is_none() {
        return Err("promtool is not in PATH; the Debian package prometheus has it".into());
    }
    for arguments in [
        "check rules alerts.yml",
        "check config prometheus.yml",
        "test rules alerts_test.yml",
    ] {
        let mut promtool = Command::new("promtool");
        promtool.current_dir(root().join(PROMETHEUS));
        run(promtool.args(arguments.split(' ')))?;
    }
    Ok(())
}

/// Checks the units in a root of their own: `systemd-analyze` searches for their programs, too.
fn check_units() -> Result<(), String> {
    let units: Vec<_> = UNITS
        .iter()
        .map(|directory| files(directory, &["service", "socket", "timer"]))
        .collect::<Result<_, _>>()?;
    let root = env::temp_dir().join(format!("leasehold-manifests-{}", id()));
    let prepared = prepare(&root, &units.concat());
    let checked = prepared
        .map_err(|error| error.to_string())
        .and_then(|names| {
            let mut verify = Command::new("systemd-analyze");
            verify
                .arg("verify")
                .arg(format!("--root={}", root.display()));
            run(verify.args(names))
        });
    fs::remove_dir_all(root).map_err(|error| error.to_string())?;
    checked
}

/// Copies the units into a root with their programs. Returns the names of the units.
fn prepare(root: &Path, units: &[PathBuf]) -> io::Result<Vec<String>> {
    let (directory, programs) = (root.join("etc/systemd/system"), root.join("usr/local/bin"));
    let system = root.join(SYSTEM_UNITS.trim_start_matches('/'));
    for directory in [&directory, &programs, &system] {
        fs::create_dir_all(directory)?;
    }
    for program in ["leasehold", "nightly-report"] {
        fs::copy("/bin/true", programs.join(program))?;
    }
    for unit in fs::read_dir(SYSTEM_UNITS)?.flatten() {
        if unit.path().extension().is_some_and(|end| end == "target") {
            fs::copy(unit.path(), system.join(unit.file_name()))?;
        }
    }
    let mut names = Vec::new();
    for unit in units {
        if let Some(name) = unit.file_name() {
            fs::copy(unit, directory.join(name))?;
            names.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// The files in a directory with these extensions.
fn files(directory: &str, extensions: &[&str]) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(root().join(directory));
    let entries = entries.map_err(|error| format!("{directory}: {error}"))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<_> = paths
        .filter(|path| {
            let extension = path.extension().and_then(|extension| extension.to_str());
            extension.is_some_and(|extension| extensions.contains(&extension))
        })
        .collect();
    files.sort();
    match files.is_empty() {
        true => Err(format!("{directory}: no files")),
        false => Ok(files),
    }
}
