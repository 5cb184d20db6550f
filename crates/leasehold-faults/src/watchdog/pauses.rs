//! Holders that are stopped, and resume or die.

use std::thread;
use std::time::Duration;

use leasehold::__private::wire::Liveness;
use leasehold_testkit::{eventually, within};

use super::contended_lock::{ContendedLock, LATEST, TTL_LONG, run_in_groups};
use super::world::{TIMEOUT, millis};
use crate::clock;
use crate::history::LeaseState;
use crate::scenario::{Outcome, Run};

/// The ttl of holders that are stopped for three ttls.
const TTL: Duration = millis(2_000);

/// The ttl of holders whose main thread ends.
const TTL_MIDDLE: Duration = millis(6_000);

pub(super) fn stopped(run: &Run) -> Outcome {
    let mut doubted = 0;
    let mut outcome = run_in_groups(run, TTL, 20, |mut group| {
        group.locks.iter_mut().for_each(ContendedLock::stop);
        thread::sleep(3 * TTL);
        for lock in &mut group.locks {
            doubted += usize::from(resume_and_release(lock, group.outcome));
        }
    });
    let runs = run.count;
    // The others read a state after the reply of the store.
    outcome.note(format!(
        "{doubted} of {runs} read Jeopardy(paused) before Held"
    ));
    outcome
}

/// Resumes a holder, which still holds, and releases its lock. Returns whether it was in doubt before.
fn resume_and_release(lock: &mut ContendedLock, outcome: &mut Outcome) -> bool {
    let since = clock::now();
    let (states, at) = lock.resume();
    let name = lock.name();
    if !matches!(states.last(), Some(LeaseState::Held(_))) {
        outcome.miss(format!("the holder of {name} read {states:?}"));
        return false;
    }
    outcome.latencies.push(at.saturating_sub(since));
    let (released, held) = lock.release();
    match lock.waiter.granted_within(LATEST) {
        Some(at) if held && at >= released => {}
        Some(_) => outcome.miss(format!("{name} was not held until its release")),
        None => outcome.miss(format!("{name} was not granted after its release")),
    }
    states.first() == Some(&LeaseState::Paused)
}

pub(super) fn killed_while_stopped(run: &Run) -> Outcome {
    run_in_groups(run, TTL_LONG, 100, |mut group| {
        group.locks.iter_mut().for_each(ContendedLock::stop);
        eventually(TIMEOUT, || {
            let clients = group.node.clients();
            let silent = clients
                .iter()
                .filter(|client| client.liveness == Liveness::Silent);
            silent.count() == group.locks.len()
        });
        for lock in &mut group.locks {
            lock.kill(LATEST, group.outcome);
        }
    })
}

pub(super) fn main_thread_gone(run: &Run) -> Outcome {
    run_in_groups(run, TTL_MIDDLE, 50, |mut group| {
        for lock in &mut group.locks {
            assert_eq!(lock.process.helper.request("end-main"), "ok");
            eventually(TIMEOUT, || lock.process.helper.state() == Some('Z'));
            lock.stop();
        }
        thread::sleep(TTL_MIDDLE + TTL_MIDDLE / 6);
        for lock in &mut group.locks {
            let (states, _) = lock.resume();
            if !matches!(states.last(), Some(LeaseState::Held(_))) {
                let text = format!("the holder of {} read {states:?}", lock.name());
                group.outcome.miss(text);
            }
            // Later its lease expires anyway.
            lock.kill(TTL_MIDDLE / 2, group.outcome);
        }
        drop(group.locks);
        // The next group has the node for itself.
        if !within(LATEST, || group.node.clients().is_empty()) {
            group
                .outcome
                .miss("the node still has clients that are dead");
        }
    })
}
