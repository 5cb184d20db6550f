//! Holders that die, one after the other.

use std::fs;

use leasehold_testkit::eventually;
use rustix::process::{Pid, Signal, kill_process};

use super::contended_lock::{ContendedLock, LATEST, TTL_LONG, run_in_groups};
use super::world::TIMEOUT;
use crate::clock;
use crate::scenario::{Outcome, Run};

/// Kills holders one after the other.
fn one_by_one(run: &Run, die: impl Fn(&mut ContendedLock, &mut Outcome)) -> Outcome {
    run_in_groups(run, TTL_LONG, 1, |mut group| {
        die(&mut group.locks[0], group.outcome);
    })
}

pub(super) fn killed(run: &Run) -> Outcome {
    one_by_one(run, |lock, outcome| lock.kill(LATEST, outcome))
}

pub(super) fn zombie(run: &Run) -> Outcome {
    one_by_one(run, |lock, outcome| {
        let since = clock::now();
        lock.process.kill_unreaped();
        lock.expect_grant(since, LATEST, outcome);
        if lock.process.helper.state() != Some('Z') {
            outcome.miss("the holder was not a zombie at the grant to its waiter");
        }
    })
}

pub(super) fn exec(run: &Run) -> Outcome {
    run_in_groups(run, TTL_LONG, 1, |mut group| {
        let (lock, outcome) = (&mut group.locks[0], group.outcome);
        let since = clock::now();
        lock.exec(group.world, group.options);
        lock.expect_grant(since, LATEST, outcome);
        let (_, held) = lock.release();
        if !held {
            outcome.miss(format!("{} was not kept", lock.name()));
        }
    })
}

pub(super) fn forked_child(run: &Run) -> Outcome {
    one_by_one(run, |lock, outcome| {
        let child = lock.process.helper.request("fork");
        let child = child.parse().ok().and_then(Pid::from_raw).unwrap();
        lock.kill(LATEST, outcome);
        if sockets(child) == 0 {
            outcome.miss("the child had no socket at the grant to the waiter");
        }
        kill_process(child, Signal::KILL).unwrap();
        eventually(TIMEOUT, || sockets(child) == 0);
    })
}

/// The number of sockets of a process.
fn sockets(pid: Pid) -> usize {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter();
    let links = files
        .flatten()
        .flatten()
        .map(|file| fs::read_link(file.path()));
    links
        .flatten()
        .filter(|link| link.to_string_lossy().starts_with("socket:"))
        .count()
}
