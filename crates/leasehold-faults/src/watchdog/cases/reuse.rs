//! A dead holder whose process id another process gets.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::super::actor::Actor;
use super::super::holder::{Holder, Role};
use super::super::outcome::Outcome;
use super::super::world::{World, millis};
use crate::clock;

const TTL: Duration = millis(30_000);
const LATEST: Duration = millis(10_000);

/// Where the kernel is told which id it gave last.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// How often to try: others start processes at the same time.
const TRIES: usize = 200;

pub(super) fn pid_reuse(times: usize, _: bool) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    if !rustix::process::geteuid().is_root() || !Path::new(LAST_PID).exists() {
        outcome
            .note("not played: it needs root, and a kernel that can be told which id it gave last");
        return Ok(outcome);
    }
    let world = World::new()?;
    let node = world.node("node")?;
    let nodes = [node.address()];
    let mut tries = 0;
    while outcome.times < times && tries < 2 * times {
        tries += 1;
        let role = Role {
            prefix: format!("reuse-{tries}"),
            ttl: TTL,
            nodes: &nodes,
            more: Vec::new(),
        };
        let mut holder = Holder::holding(&world, &role)?;
        let waiter = world.waits(&holder.lock())?;
        node.actor.stop()?;
        let pid = holder.actor.pid();
        holder.actor.kill()?;
        let other = taken_over(pid)?;
        let since = clock::now();
        node.actor.go_on()?;
        let served = waiter.served_within(LATEST)?;
        if other.is_none() {
            continue;
        }
        outcome.times += 1;
        match served {
            Some(at) => outcome.spans.push(at.saturating_sub(since)),
            None => outcome.miss(format!("{} was not served in {LATEST:?}", holder.lock())),
        }
    }
    if outcome.times < times {
        let times = outcome.times;
        outcome.note(format!(
            "the id could be forced only {times} times of {tries}"
        ));
    }
    Ok(outcome)
}

/// Starts a process of this id. `None`: somebody else has it.
fn taken_over(pid: u32) -> Result<Option<Actor>, String> {
    for _ in 0..TRIES {
        fs::write(LAST_PID, (pid - 1).to_string()).map_err(|error| error.to_string())?;
        let other = Actor::idle()?;
        if other.pid() == pid {
            return Ok(Some(other));
        }
        if Path::new(&format!("/proc/{pid}")).exists() {
            return Ok(None);
        }
    }
    Ok(None)
}
