//! Processes that share the permits of a semaphore, one of which is killed every second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold_testkit::found_within;

use super::contended_lock::{HolderOptions, LATEST, TTL_LONG};
use super::world::{Node, World, millis};
use crate::clock::{self, MILLI, Nanos};
use crate::history::{Event, EventReader, HoldEvent};
use crate::holder::{PermitsConfig, Workload, relying};
use crate::holder_process::HolderProcess;
use crate::scenario::{Limits, Outcome, Run};

const PROCESSES: usize = 8;
const PERMITS: u32 = 5;

/// A process is killed in each of these intervals.
const INTERVAL: Duration = millis(1_000);

/// The ttl without a watchdog: the permit of a dead process is back before the next is killed.
const TTL: Duration = millis(900);

/// From a death to the next holder without a watchdog: the ttl, 1 % of it, and 50 ms. The latter are for the measurement: it
/// ends with the last of five grants, which may be a later one between living processes.
pub(super) const EXPIRED_LIMITS: Limits = [959.0; 3];

/// The age of a permit whose holder is killed: a node has acknowledged its lease.
const AGE: Nanos = 30 * MILLI;

/// The pause before another process is chosen.
const CHOICE_INTERVAL: Duration = millis(1);

/// The processes and their semaphore.
struct Contention<'a> {
    world: &'a World,
    options: HolderOptions,
    relying: &'static AtomicU64,
    members: Vec<Member>,
}

/// A process that shares the semaphore.
struct Member {
    process: HolderProcess,
    events: EventReader,
    /// The last grant of a permit to it, and the last release.
    granted: Nanos,
    releasing: Nanos,
}

pub(super) fn watched(run: &Run) -> Outcome {
    let world = World::new();
    let node = world.node("node");
    kill_holders(run, &world, HolderOptions::watched(TTL_LONG, &[&node]))
}

pub(super) fn expired(run: &Run) -> Outcome {
    let no_nodes: [&Node; 0] = [];
    let options = HolderOptions::watched(TTL, &no_nodes);
    kill_holders(run, &World::new(), options)
}

/// Kills a holder in each interval, and starts another process in its place.
fn kill_holders(run: &Run, world: &World, options: HolderOptions) -> Outcome {
    let is_watched = !options.nodes.addresses.is_empty();
    let mut contention = Contention {
        world,
        options,
        relying: relying(&world.recording.directory()),
        members: Vec::new(),
    };
    for nth in 0..PROCESSES {
        let member = contention.start(nth);
        contention.members.push(member);
    }
    let mut outcome = Outcome::default();
    let mut rng = Rng::with_seed(run.seed);
    for _ in 0..run.count {
        let next = Instant::now() + INTERVAL;
        match contention.kill_one(&mut rng) {
            Some(latency) => outcome.latencies.push(latency),
            None => outcome.miss(format!("{PERMITS} permits were not held in {LATEST:?}")),
        }
        outcome.runs += 1;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    for member in contention.members {
        member.process.end();
    }
    world.check(run, is_watched, &mut outcome);
    outcome
}

impl Contention<'_> {
    fn start(&self, nth: usize) -> Member {
        let name = format!("permits{}", self.world.next_number());
        // Without a watchdog, one that the machine stalls for a ttl relies on a permit that has passed on, and cannot know.
        let is_counted = !self.options.nodes.addresses.is_empty();
        let workload = Workload::Permits(PermitsConfig {
            permits: PERMITS,
            bit: u64::from(is_counted) << nth,
        });
        let config = self.options.config(self.world, &name, workload);
        Member {
            events: EventReader::open(&config.history()),
            process: HolderProcess::start(&self.world.recording.journal, &config),
            granted: Nanos::MAX,
            releasing: 0,
        }
    }

    /// Kills a process that has a permit. Returns the time until all permits are held again, which those that live can
    /// only do when its permit is back.
    fn kill_one(&mut self, rng: &mut Rng) -> Option<Nanos> {
        self.until_all_held()?;
        let (killed, since) = loop {
            thread::sleep(CHOICE_INTERVAL);
            let nth = rng.usize(..PROCESSES);
            let member = &mut self.members[nth];
            member.update();
            if !member.holds(clock::now()) {
                continue;
            }
            // It must not release its permit meanwhile.
            member.process.helper.stop();
            member.update();
            let since = clock::now();
            if member.holds(since) && since - member.granted >= AGE {
                self.relying.fetch_and(!(1 << nth), Ordering::SeqCst);
                member.process.kill();
                member.granted = Nanos::MAX;
                break (nth, since);
            }
            member.process.helper.resume();
        };
        let held = self.until_all_held();
        self.members[killed] = self.start(killed);
        Some(held?.saturating_sub(since))
    }

    /// Waits until as many processes as there are permits have one. Returns when the last of them was granted.
    fn until_all_held(&mut self) -> Option<Nanos> {
        found_within(LATEST, || {
            // Events are read one process after the other.
            let now = clock::now();
            self.members.iter_mut().for_each(Member::update);
            let holders = self.members.iter().filter(|member| member.holds(now));
            let granted: Vec<_> = holders.map(|member| member.granted).collect();
            let all_held = granted.len() == PERMITS as usize;
            granted.into_iter().max().filter(|_| all_held)
        })
    }
}

impl Member {
    /// Reads its new events.
    fn update(&mut self) {
        while let Some((at, event)) = self.events.next() {
            match event {
                Event::Hold(_, HoldEvent::Granted { .. }) => self.granted = at,
                Event::Hold(_, HoldEvent::Releasing) => self.releasing = at,
                _ => {}
            }
        }
    }

    /// Whether it had a permit at an instant, by the events that were read.
    fn holds(&self, at: Nanos) -> bool {
        let released = (self.granted..=at).contains(&self.releasing);
        self.granted <= at && !released
    }
}
