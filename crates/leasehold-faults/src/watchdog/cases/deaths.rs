//! Holders that die, one after the other.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::super::actor::{PATIENCE, wait_for};
use super::super::holder::{Holder, Role};
use super::super::outcome::Outcome;
use super::super::said::Said;
use super::super::waiter::Waiter;
use super::super::world::{World, millis};
use crate::clock::{self, Nanos};

/// The ttl of the leases: whoever is served before it is over is served because of a watchdog.
const TTL: Duration = millis(30_000);

/// Who is served later than this is served too late, on however busy a machine.
const LATEST: Duration = millis(10_000);

/// One death: a holder, who waits for its lock, and what came so far.
struct Death {
    holder: Holder,
    waiter: Waiter,
}

impl Death {
    /// Waits until the lock is served, and notes how long that took.
    fn served(&self, since: Nanos, outcome: &mut Outcome) -> Result<(), String> {
        match self.waiter.served_within(LATEST)? {
            Some(at) => outcome.spans.push(at.saturating_sub(since)),
            None => outcome.miss(format!(
                "{} was not served in {LATEST:?}",
                self.holder.lock()
            )),
        }
        Ok(())
    }
}

/// Has so many holders die, each in its own way.
fn one_by_one(
    times: usize,
    mut dies: impl FnMut(&mut Death, &mut Outcome) -> Result<(), String>,
) -> Result<Outcome, String> {
    let world = World::new()?;
    let node = world.node("node")?;
    let nodes = [node.address()];
    let mut outcome = Outcome::default();
    for time in 0..times {
        let role = Role {
            prefix: format!("death-{time}"),
            ttl: TTL,
            nodes: &nodes,
            more: Vec::new(),
        };
        let holder = Holder::holding(&world, &role)?;
        let waiter = world.waits(&holder.lock())?;
        if let Some(at) = waiter.is_served()? {
            outcome.miss(format!("served at {at}, before anybody died"));
            continue;
        }
        dies(&mut Death { holder, waiter }, &mut outcome)?;
        outcome.times += 1;
        if outcome.times.is_multiple_of(500) {
            eprintln!("  {} deaths", outcome.times);
        }
    }
    Ok(outcome)
}

pub(super) fn killed(times: usize, _: bool) -> Result<Outcome, String> {
    one_by_one(times, |death, outcome| {
        let since = clock::now();
        death.holder.actor.kill()?;
        death.served(since, outcome)
    })
}

pub(super) fn zombie(times: usize, _: bool) -> Result<Outcome, String> {
    one_by_one(times, |death, outcome| {
        let since = clock::now();
        death.holder.actor.signal(Signal::KILL)?;
        death.served(since, outcome)?;
        if death.holder.actor.state() != Some('Z') {
            outcome.miss("the holder was no zombie when its lock was served");
        }
        Ok(())
    })
}

pub(super) fn exec(times: usize, _: bool) -> Result<Outcome, String> {
    one_by_one(times, |death, outcome| {
        let since = clock::now();
        death.holder.actor.order("exec")?;
        death.holder.holds()?;
        death.served(since, outcome)?;
        let (_, kept) = death.holder.release()?;
        if !kept {
            outcome.miss(format!("{} was not kept", death.holder.next_lock()));
        }
        Ok(())
    })
}

pub(super) fn forked_child(times: usize, _: bool) -> Result<Outcome, String> {
    one_by_one(times, |death, outcome| {
        death.holder.actor.order("fork")?;
        let said = death
            .holder
            .until(PATIENCE, |said| matches!(said, Said::Forked(_)))?;
        let Some(Said::Forked(child)) = said.last() else {
            return Err("a holder did not fork".into());
        };
        let child = Pid::from_raw(*child).ok_or("a holder could not fork")?;
        let since = clock::now();
        death.holder.actor.kill()?;
        death.served(since, outcome)?;
        if sockets(child) == 0 {
            outcome.miss("the child had no socket when the lock was served");
        }
        kill_process(child, Signal::KILL).map_err(|error| error.to_string())?;
        wait_for("a child does not end", || sockets(child) == 0)
    })
}

/// How many sockets a process has.
fn sockets(pid: Pid) -> usize {
    let Ok(files) = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())) else {
        return 0;
    };
    let links = files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok());
    links
        .filter(|link| link.to_string_lossy().starts_with("socket:"))
        .count()
}
