//! Holders that are stopped, and go on or die.

use std::thread;
use std::time::Duration;

use leasehold::watchdog::Liveness;

use super::super::actor::{is_so_within, wait_for};
use super::super::outcome::Outcome;
use super::super::said::Belief;
use super::super::world::{World, millis};
use super::cohort::{Cohort, Member, rounds};
use crate::clock;

/// The ttl of those that are stopped for three ttls.
const TTL: Duration = millis(2_000);

/// The ttl of those that are killed: whoever is served much earlier is served because of a watchdog.
const TTL_LONG: Duration = millis(30_000);
const LATEST: Duration = millis(10_000);

/// Of those whose main thread goes.
const TTL_MIDDLE: Duration = millis(6_000);

pub(super) fn stopped(times: usize, _: bool) -> Result<Outcome, String> {
    let world = World::new()?;
    let node = world.node("node")?;
    let nodes = [node.address()];
    let (mut outcome, mut doubted) = (Outcome::default(), 0);
    for (round, size) in rounds(times, 20) {
        let mut cohort = Cohort::start(&world, (round, size), TTL, &nodes)?;
        cohort.stop()?;
        thread::sleep(3 * TTL);
        for member in &mut cohort.members {
            outcome.times += 1;
            if !member.is_served_wrongly("while its holder was stopped", &mut outcome)? {
                doubted += usize::from(goes_on(member, &mut outcome)?);
            }
        }
    }
    let times = outcome.times;
    outcome.note(format!(
        "{doubted} of {times} said Jeopardy(paused) before Held; others looked after the store had answered"
    ));
    Ok(outcome)
}

/// Lets a holder go on, which still holds. Answers whether it was in doubt before.
fn goes_on(member: &mut Member, outcome: &mut Outcome) -> Result<bool, String> {
    let since = clock::now();
    member.holder.actor.go_on()?;
    let (beliefs, at) = member.holder.woken()?;
    let name = member.holder.lock();
    if beliefs.last() != Some(&Belief::Held) {
        outcome.miss(format!("the holder of {name} believed {beliefs:?}"));
        return Ok(false);
    }
    outcome.spans.push(at.saturating_sub(since));
    if member.is_served_wrongly("while its holder went on", outcome)? {
        return Ok(false);
    }
    let (released, kept) = member.holder.release()?;
    match member.waiter.served_within(LATEST)? {
        Some(at) if kept && at >= released => {}
        Some(_) => outcome.miss(format!("{name} was not held until its release")),
        None => outcome.miss(format!("{name} was not served after its release")),
    }
    Ok(beliefs.first() == Some(&Belief::Paused))
}

pub(super) fn unwatched(times: usize, _: bool) -> Result<Outcome, String> {
    let world = World::new()?;
    let mut outcome = Outcome::default();
    for (round, size) in rounds(times, 20) {
        let cohort = Cohort::start(&world, (round, size), TTL, &[])?;
        cohort.stop()?;
        thread::sleep(3 * TTL);
        for member in &cohort.members {
            outcome.times += 1;
            let name = member.holder.lock();
            if member.waiter.served_within(LATEST)?.is_none() {
                outcome.miss(format!("{name} was not served after its ttl"));
            }
            member.holder.actor.go_on()?;
            let (beliefs, _) = member.holder.woken()?;
            if beliefs != [Belief::Lost] {
                outcome.miss(format!("the holder of {name} believed {beliefs:?}"));
            }
        }
    }
    Ok(outcome)
}

pub(super) fn killed_while_stopped(times: usize, _: bool) -> Result<Outcome, String> {
    let world = World::new()?;
    let node = world.node("node")?;
    let nodes = [node.address()];
    let mut outcome = Outcome::default();
    for (round, size) in rounds(times, 100) {
        let mut cohort = Cohort::start(&world, (round, size), TTL_LONG, &nodes)?;
        cohort.stop()?;
        wait_for("the node does not renew for all", || {
            let clients = node.clients();
            let silent = clients
                .iter()
                .filter(|client| client.liveness == Liveness::Silent);
            silent.count() == size
        })?;
        for member in &mut cohort.members {
            outcome.times += 1;
            if !member.is_served_wrongly("while its holder was stopped", &mut outcome)? {
                member.dies(LATEST, &mut outcome)?;
            }
        }
    }
    Ok(outcome)
}

pub(super) fn main_thread_gone(times: usize, _: bool) -> Result<Outcome, String> {
    let world = World::new()?;
    let node = world.node("node")?;
    let nodes = [node.address()];
    let mut outcome = Outcome::default();
    for (round, size) in rounds(times, 50) {
        let mut cohort = Cohort::start(&world, (round, size), TTL_MIDDLE, &nodes)?;
        for Member { holder, .. } in &mut cohort.members {
            holder.actor.order("drop-main")?;
            wait_for("the main thread does not end", || {
                holder.actor.state() == Some('Z')
            })?;
        }
        cohort.stop()?;
        thread::sleep(TTL_MIDDLE + TTL_MIDDLE / 6);
        for member in &mut cohort.members {
            outcome.times += 1;
            if member.is_served_wrongly("while its holder was stopped", &mut outcome)? {
                continue;
            }
            member.holder.actor.go_on()?;
            let (beliefs, _) = member.holder.woken()?;
            if beliefs.last() != Some(&Belief::Held) {
                let name = member.holder.lock();
                outcome.miss(format!("the holder of {name} believed {beliefs:?}"));
            }
            // It is served by the end of its ttl anyway.
            member.dies(TTL_MIDDLE / 2, &mut outcome)?;
        }
        // The next round has the node for itself.
        let gone = is_so_within(LATEST, || node.clients().is_empty());
        if !gone {
            outcome.miss("the node still has clients that are dead");
        }
    }
    Ok(outcome)
}
