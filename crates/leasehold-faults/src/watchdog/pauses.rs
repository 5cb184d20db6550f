//! Holders that are stopped, and resume or die.

use std::thread;
use std::time::Duration;

use leasehold::watchdog::wire::Liveness;
use leasehold_testkit::eventually;

use super::contended_lock::{ContendedLock, HolderOptions};
use super::outcome::Outcome;
use super::world::{TIMEOUT, World, holds_within, millis};
use crate::clock;
use crate::history::LeaseState;

/// The ttl of holders that are stopped for three ttls.
const TTL: Duration = millis(2_000);

/// The ttl of holders that are killed: a grant long before its end is due to the watchdog.
const TTL_LONG: Duration = millis(30_000);
const LATEST: Duration = millis(10_000);

/// The ttl of holders whose main thread ends.
const TTL_MIDDLE: Duration = millis(6_000);

/// Starts so many locks in all, at most `most` at a time, stops their holders and passes them on.
fn stop_many(
    world: &World,
    (runs, most): (usize, usize),
    options: &HolderOptions,
    mut each: impl FnMut(Vec<ContendedLock>),
) {
    let mut remaining = runs;
    while remaining > 0 {
        let count = remaining.min(most);
        remaining -= count;
        let mut locks = ContendedLock::start_many(world, count, options);
        locks.iter_mut().for_each(ContendedLock::stop);
        each(locks);
    }
}

pub(super) fn stopped(runs: usize, _: bool) -> Outcome {
    let world = World::new(true);
    let node = world.node("node");
    let options = HolderOptions::watched(TTL, &[&node]);
    let (mut outcome, mut doubted) = (Outcome::default(), 0);
    stop_many(&world, (runs, 20), &options, |locks| {
        thread::sleep(3 * TTL);
        for mut lock in locks {
            outcome.runs += 1;
            doubted += usize::from(resume_and_release(&mut lock, &mut outcome));
        }
    });
    outcome.note(format!(
        "{doubted} of {runs} read Jeopardy(paused) before Held; the others read a state after the reply of the store"
    ));
    world.check(&mut outcome);
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

pub(super) fn unwatched(runs: usize, _: bool) -> Outcome {
    let world = World::new(false);
    let options = HolderOptions::watched(TTL, &[]);
    let mut outcome = Outcome::default();
    stop_many(&world, (runs, 20), &options, |locks| {
        thread::sleep(3 * TTL);
        for mut lock in locks {
            outcome.runs += 1;
            let name = lock.name();
            if lock.waiter.granted_within(LATEST).is_none() {
                outcome.miss(format!("{name} was not granted after its ttl"));
            }
            let (states, _) = lock.resume();
            if !matches!(states[..], [LeaseState::Lost(_)]) {
                outcome.miss(format!("the holder of {name} read {states:?}"));
            }
        }
    });
    world.check(&mut outcome);
    outcome
}

pub(super) fn killed_while_stopped(runs: usize, _: bool) -> Outcome {
    let world = World::new(true);
    let node = world.node("node");
    let options = HolderOptions::watched(TTL_LONG, &[&node]);
    let mut outcome = Outcome::default();
    stop_many(&world, (runs, 100), &options, |mut locks| {
        eventually(TIMEOUT, || {
            let clients = node.clients();
            let silent = clients
                .iter()
                .filter(|client| client.liveness == Liveness::Silent);
            silent.count() == locks.len()
        });
        for lock in &mut locks {
            outcome.runs += 1;
            lock.kill(LATEST, &mut outcome);
        }
    });
    world.check(&mut outcome);
    outcome
}

pub(super) fn main_thread_gone(runs: usize, _: bool) -> Outcome {
    let world = World::new(true);
    let node = world.node("node");
    let options = HolderOptions::watched(TTL_MIDDLE, &[&node]);
    let mut outcome = Outcome::default();
    stop_many(&world, (runs, 50), &options, |mut locks| {
        for lock in &mut locks {
            lock.process.resume();
            assert_eq!(lock.process.helper.request("end-main"), "ok");
            eventually(TIMEOUT, || lock.process.helper.state() == Some('Z'));
            lock.stop();
        }
        thread::sleep(TTL_MIDDLE + TTL_MIDDLE / 6);
        for lock in &mut locks {
            outcome.runs += 1;
            let (states, _) = lock.resume();
            if !matches!(states.last(), Some(LeaseState::Held(_))) {
                outcome.miss(format!("the holder of {} read {states:?}", lock.name()));
            }
            // Later its lease expires anyway.
            lock.kill(TTL_MIDDLE / 2, &mut outcome);
        }
        drop(locks);
        // The next round has the node for itself.
        if !holds_within(LATEST, || node.clients().is_empty()) {
            outcome.miss("the node still has clients that are dead");
        }
    });
    world.check(&mut outcome);
    outcome
}
