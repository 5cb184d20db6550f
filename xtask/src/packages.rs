//! Packages of the distribution that the tests need servers from.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::tools::{find, output, run};

/// A package that brings a server.
pub(crate) struct Package {
    /// Its name, which is that of the service that it starts, too.
    pub(crate) name: &'static str,
    /// The program of the server.
    pub(crate) program: &'static str,
    /// What to do where it cannot be installed.
    pub(crate) by_hand: &'static str,
}

impl Package {
    /// Installs it. Its service must not run afterwards: the tests start servers of their own, and
    /// whoever runs them did not ask for one.
    pub(crate) fn install(&self) -> Result<(), String> {
        let Self {
            name,
            program,
            by_hand,
        } = self;
        println!("{program} is missing");
        let Some(sudo) = may_install() else {
            return Err(format!(
                "{program} is missing and cannot be installed from here (that takes apt-get, and \
                 root or sudo without a password); {by_hand}"
            ));
        };
        let before = self.servers();
        run(apt_get(sudo).arg("update"))?;
        run(apt_get(sudo).args(["install", "-y", "--no-install-recommends", name]))?;
        self.stop_service(sudo, &before);
        Ok(())
    }

    fn stop_service(&self, sudo: bool, before: &BTreeSet<i32>) {
        let started = || {
            self.servers()
                .difference(before)
                .copied()
                .collect::<Vec<_>>()
        };
        if started().is_empty() {
            return;
        }
        println!("the package has started its service; it is stopped");
        let stopped = if Path::new("/run/systemd/system").exists() {
            run(as_root(sudo, "systemctl").args(["disable", "--now", self.name]))
        } else {
            run(as_root(sudo, "service").args([self.name, "stop"]))
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

    /// The servers of this kind that run on this machine.
    fn servers(&self) -> BTreeSet<i32> {
        let Ok(entries) = fs::read_dir("/proc") else {
            return BTreeSet::new();
        };
        entries
            .filter_map(|entry| {
                let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
                (name.trim() == self.program).then_some(pid)
            })
            .collect()
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

fn as_root(sudo: bool, program: &str) -> Command {
    if !sudo {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.args(["-n", program]);
    command
}
