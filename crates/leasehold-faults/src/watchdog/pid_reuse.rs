//! A dead holder whose process id is given to another process.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Pid;

use super::contended_lock::{ContendedLock, HolderOptions, LATEST, TTL_LONG};
use super::world::World;
use crate::clock;
use crate::scenario::{Outcome, Run};

/// The last process id of the kernel, which root may set.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// The number of attempts: other processes start at the same time.
const ATTEMPTS: usize = 200;

pub(super) fn pid_reuse(run: &Run) -> Outcome {
    let (runs, mut outcome) = (run.count, Outcome::default());
    if !rustix::process::geteuid().is_root() || !Path::new(LAST_PID).exists() {
        outcome.note("not run: it needs root, and a kernel whose last process id can be set");
        return outcome;
    }
    let world = World::new();
    let node = world.node("node");
    let options = HolderOptions::watched(TTL_LONG, &[&node]);
    let mut attempts = 0;
    while outcome.runs < runs && attempts < 2 * runs {
        attempts += 1;
        let mut lock = ContendedLock::start_many(&world, 1, &options).remove(0);
        node.helper.stop();
        let pid = lock.process.helper.pid();
        lock.process.kill();
        let other = take_over(pid);
        let since = clock::now();
        node.helper.resume();
        match other {
            Some(mut other) => {
                lock.expect_grant(since, LATEST, &mut outcome);
                other.kill().unwrap();
                other.wait().unwrap();
                outcome.runs += 1;
            }
            None => drop(lock.waiter.granted_within(LATEST)),
        }
    }
    if outcome.runs < runs {
        let runs = outcome.runs;
        outcome.note(format!(
            "the id was reused in {runs} of {attempts} attempts"
        ));
    }
    world.check(run, true, &mut outcome);
    outcome
}

/// Starts a process with this id. `None`: another process has it.
fn take_over(pid: Pid) -> Option<Child> {
    let pid = pid.as_raw_nonzero().get().unsigned_abs();
    for _ in 0..ATTEMPTS {
        fs::write(LAST_PID, (pid - 1).to_string()).unwrap();
        let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        if other.id() == pid {
            return Some(other);
        }
        other.kill().unwrap();
        other.wait().unwrap();
        if Path::new(&format!("/proc/{pid}")).exists() {
            return None;
        }
    }
    None
}
