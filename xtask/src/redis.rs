//! The redis-server that the tests start: found, or installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::tools::{find, output, run};

const PROGRAM: &str = "redis-server";

/// Makes sure that there is a redis-server.
pub(crate) fn ensure() -> Result<(), String> {
    if find(PROGRAM).is_none() {
        install()?;
    }
    let version = output(Command::new(PROGRAM).arg("--version"))?;
    println!("{}", version.trim());
    Ok(())
}

/// Installs the distribution's redis-server. Its service must not run afterwards: the tests start
/// servers of their own, and whoever runs them did not ask for one.
fn install() -> Result<(), String> {
    println!("{PROGRAM} is missing");
    let Some(sudo) = may_install() else {
        return Err(
            "redis-server is missing and cannot be installed from here (that takes apt-get, and \
             root or sudo without a password); install Redis 7 and put redis-server in PATH"
                .into(),
        );
    };
    let before = servers();
    run(apt_get(sudo).arg("update"))?;
    run(apt_get(sudo).args(["install", "-y", "--no-install-recommends", PROGRAM]))?;
    stop_service(sudo, &before);
    match find(PROGRAM) {
        Some(_) => Ok(()),
        None => Err("the package redis-server was installed but has no redis-server".into()),
    }
}

/// Whether packages can be installed, and whether that takes sudo.
fn may_install() -> Option<bool> {
    find("apt-get")?;
    if geteuid().is_root() {
        return Some(false);
    }
    find("sudo")?;
    output(Command::new("sudo").args(["-n", "true"]))
        .is_ok()
        .then_some(true)
}

fn apt_get(sudo: bool) -> Command {
    let mut command = as_root(sudo, "env");
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]);
    command
}

fn stop_service(sudo: bool, before: &BTreeSet<i32>) {
    let started = || servers().difference(before).copied().collect::<Vec<_>>();
    if started().is_empty() {
        return;
    }
    println!("the package has started its service; it is stopped");
    let stopped = if Path::new("/run/systemd/system").exists() {
        run(as_root(sudo, "systemctl").args(["disable", "--now", PROGRAM]))
    } else {
        run(as_root(sudo, "service").args([PROGRAM, "stop"]))
    };
    if let Err(error) = stopped {
        println!("WARNING: {error}");
    }
    for pid in started().into_iter().filter_map(Pid::from_raw) {
        if sudo {
            let pid = pid.as_raw_nonzero().to_string();
            let _ = run(as_root(sudo, "kill").arg(pid));
        } else {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

fn as_root(sudo: bool, program: &str) -> Command {
    if !sudo {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.args(["-n", program]);
    command
}

/// The redis-servers that run on this machine.
fn servers() -> BTreeSet<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeSet::new();
    };
    entries
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            (name.trim() == PROGRAM).then_some(pid)
        })
        .collect()
}
