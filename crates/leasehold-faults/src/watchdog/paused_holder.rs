//! A holder that is stopped and resumed at random, with a waiter for its lock at all times.

use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio_util::sync::CancellationToken;

use super::contended_lock::{ContendedLock, HolderOptions};
use super::world::{World, millis};
use crate::history::{Event, HoldEvent, LeaseState};

/// The ttl of all leases.
pub(super) const TTL: Duration = millis(2_000);

/// How often events are read.
const INTERVAL: Duration = millis(5);

/// How long a holder may take at the end to notice a loss.
const SETTLE_TIMEOUT: Duration = millis(20_000);

/// What happened to a holder.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) pauses: usize,
    /// Leases that were lost, and grants to the waiter.
    pub(super) lost: usize,
    granted: usize,
}

/// A holder under load.
pub(super) struct PausedHolder<'a> {
    world: &'a World,
    lock: ContendedLock,
    /// Whether the waiter waits.
    waiting: bool,
    counts: Counts,
}

impl<'a> PausedHolder<'a> {
    pub(super) fn start_many(world: &'a World, count: usize, options: &HolderOptions) -> Vec<Self> {
        let locks = ContendedLock::start_many(world, count, options).into_iter();
        let holder = |lock| Self {
            world,
            lock,
            waiting: true,
            counts: Counts::default(),
        };
        locks.map(holder).collect()
    }

    /// Stops and resumes it until the end of the scenario.
    pub(super) fn run(mut self, end: &CancellationToken) -> Counts {
        let mut rng = Rng::new();
        while !end.is_cancelled() {
            self.observe_for(millis(rng.u64(200..1000)), end);
            let pause = match rng.u8(..3) {
                0 => rng.u64(100..1_500),
                _ => rng.u64(2_500..5_000),
            };
            self.lock.process.stop();
            self.observe_for(millis(pause), end);
            self.lock.process.resume();
            self.counts.pauses += 1;
        }
        self.settle();
        self.counts
    }

    fn observe_for(&mut self, duration: Duration, end: &CancellationToken) {
        let until = Instant::now() + duration;
        while Instant::now() < until && !end.is_cancelled() {
            self.observe();
        }
    }

    fn observe(&mut self) {
        while let Some((_, Event::Hold(_, event))) = self.lock.events.next() {
            match event {
                HoldEvent::Observed { state, .. } => {
                    self.counts.lost += usize::from(matches!(state, LeaseState::Lost(_)));
                }
                HoldEvent::Granted { .. } if !self.waiting => {
                    self.lock.waiter = self.world.wait(&self.lock.name());
                    self.waiting = true;
                }
                _ => {}
            }
        }
        if !self.waiting {
            std::thread::sleep(INTERVAL);
        } else if self.lock.waiter.granted_within(INTERVAL).is_some() {
            self.counts.granted += 1;
            self.waiting = false;
        }
    }

    /// Waits until the holder has noticed each grant to the waiter as a loss.
    fn settle(&mut self) {
        let end = Instant::now() + SETTLE_TIMEOUT;
        loop {
            // Long enough for a renewal.
            let quiet = Instant::now() + TTL / 2;
            while Instant::now() < quiet {
                self.observe();
            }
            let settled = self.counts.granted == self.counts.lost;
            if settled || Instant::now() > end {
                return;
            }
        }
    }
}
