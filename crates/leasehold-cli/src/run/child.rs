//! The command's process.

// The one place that needs it: what must happen between fork and exec.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use leasehold::watchdog::Watchdog;
use leasehold::{Instant, LeaseId};
use rustix::process::{Pid, getpgrp};
use rustix::termios::tcgetpgrp;
use tokio::process::{Child as Process, Command};

use super::guardian::Guardian;
use super::processes::{self, Family};
use crate::exit::{self, Failure};

pub(crate) struct Child {
    process: Process,
    family: Family,
    guardian: Option<Guardian>,
}

/// Whether a terminal talks to our process group: its signals then reach the command, too.
pub(crate) fn at_terminal() -> bool {
    File::open("/dev/tty")
        .and_then(|terminal| Ok(tcgetpgrp(terminal)?))
        .is_ok_and(|foreground| foreground == getpgrp())
}

impl Child {
    pub(crate) fn start(
        command: &[OsString],
        environment: &[(&'static str, String)],
        lease: LeaseId,
        watchdog: Option<&Watchdog>,
    ) -> Result<Self, Failure> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Failure::usage("there is no command to run"));
        };
        processes::adopt_orphans();
        let mut child = Command::new(program);
        child.args(arguments);
        child.envs(environment.iter().map(|(name, value)| (name, value)));
        let own_group = !at_terminal();
        if own_group {
            child.process_group(0);
        }
        die_with_parent(&mut child);
        let guardian = Guardian::start(lease, watchdog);
        let process = child.spawn().map_err(|error| {
            let program = program.to_string_lossy();
            let code = match error.kind() {
                io::ErrorKind::NotFound => exit::NOT_FOUND,
                _ => exit::NOT_EXECUTABLE,
            };
            Failure::own(format!("{program} cannot be run"), error).with_code(code)
        })?;
        let pid = process
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw);
        Ok(Self {
            process,
            family: Family {
                child: pid,
                own_group,
                lease: lease.to_string(),
            },
            guardian,
        })
    }

    /// Waits until the command itself has ended.
    ///
    /// Dropped, it can be called again.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// The processes that work under the lock, or see to it that none does.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        let guardian = self.guardian.as_ref().map(Guardian::pid);
        self.process.id().into_iter().chain(guardian)
    }

    /// All processes of the command.
    pub(crate) fn family(&self) -> &Family {
        &self.family
    }

    /// Tells the guardian until when the command may live if nothing more is heard of us, and how long that
    /// is before the end of the lease.
    pub(crate) fn allow(&mut self, until: Instant, reserve: Duration) {
        // Elsewhere the clocks of two processes have nothing in common.
        if cfg!(target_os = "linux")
            && let Some(guardian) = &mut self.guardian
        {
            guardian.allow(until, reserve);
        }
    }

    /// The run has come to its end in good order: what is left is left on purpose.
    pub(crate) fn dismiss_guardian(&mut self) {
        if let Some(guardian) = self.guardian.take() {
            guardian.dismiss();
        }
    }
}

/// If the runner is killed, the command is, too.
#[cfg(target_os = "linux")]
fn die_with_parent(child: &mut Command) {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};

    let runner = rustix::process::getpid();
    let arm = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The runner may have died before the line above.
        if getppid() != Some(runner) {
            return Err(io::Error::from_raw_os_error(
                rustix::io::Errno::SRCH.raw_os_error(),
            ));
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe work may be done. `arm` makes two system
    // calls and allocates nothing.
    unsafe {
        child.pre_exec(arm);
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_child: &mut Command) {}
