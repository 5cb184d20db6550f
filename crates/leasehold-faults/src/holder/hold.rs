//! A hold, and the critical steps during it.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use fastrand::Rng;
use leasehold::{Guard, Mutex};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::fence::{self, Fence};
use crate::clock;
use crate::history::{HoldEvent, ObservationKind};

/// The longest critical step: long in comparison with its two events, short in comparison with a ttl.
const STEP_MAX_MS: u64 = 10;

/// A hold of this process, from its grant on.
pub(super) struct LiveHold<'a> {
    shared: &'a Shared,
    stop: &'a CancellationToken,
    pub(super) number: u64,
    pub(super) guard: &'a Guard,
    /// Whether it writes to the fenced resource.
    pub(super) fenced: bool,
}

impl<'a> LiveHold<'a> {
    /// Records the grant.
    pub(super) fn begin(
        shared: &'a Shared,
        stop: &'a CancellationToken,
        number: u64,
        guard: &'a Guard,
        ttl_ms: u64,
    ) -> Self {
        shared.record(number, super::granted(guard, ttl_ms));
        Self {
            shared,
            stop,
            number,
            guard,
            fenced: true,
        }
    }

    /// Makes critical steps for a duration, unless the lease is lost, a write is rejected or the work is to stop.
    pub(super) async fn work(&self, fence: &mut Fence, rng: &mut Rng, duration: Duration) {
        self.observe_while(self.steps(fence, rng, duration)).await;
    }

    /// Records the stream of states during some work.
    pub(super) async fn observe_while<T>(&self, work: impl Future<Output = T>) -> T {
        let mut states = self.guard.states();
        let mut work = pin!(work);
        loop {
            let mut next = pin!(states.next());
            // The state is read in the last poll, and the process may be stopped right after that.
            let mut polled = clock::now();
            let notified = poll_fn(|context| {
                polled = clock::now();
                next.as_mut().poll(context)
            });
            tokio::select! {
                biased;
                Some(state) = notified => {
                    let kind = ObservationKind::Notification;
                    self.shared.observe(self.number, polled, state, kind);
                }
                outcome = &mut work => return outcome,
            }
        }
    }

    async fn steps(&self, fence: &mut Fence, rng: &mut Rng, duration: Duration) {
        let end = tokio::time::Instant::now() + duration;
        while self.observe(true) {
            let (hold, guard) = (self.number, self.guard);
            // A stop of the process in here makes the write late.
            if rng.bool() {
                sleep_up_to(rng, STEP_MAX_MS).await;
            }
            let outcome = match self.fenced {
                true => fence.write(hold, guard.name(), guard.token()).await,
                false => "without a token".to_owned(),
            };
            if rng.bool() {
                sleep_up_to(rng, STEP_MAX_MS).await;
            }
            let rejected = outcome == fence::REJECTED;
            self.shared.record(hold, HoldEvent::Stepped(outcome));
            sleep_up_to(rng, 20).await;
            let ended = tokio::time::Instant::now() >= end || self.stop.is_cancelled();
            if rejected || ended {
                // What follows happens in the knowledge of this state.
                self.observe(false);
                return;
            }
        }
    }

    /// Records the state, and that a critical step begins if `step` is true and the lease is not lost. Returns
    /// whether it is not lost.
    fn observe(&self, step: bool) -> bool {
        let (before, state) = (clock::now(), self.guard.state());
        let kind = match step && !state.is_lost() {
            true => ObservationKind::Step,
            false => ObservationKind::Check,
        };
        self.shared.observe(self.number, before, state, kind);
        !state.is_lost()
    }

    /// If the lease is lost: a holder that does not even release leaves it to the store to pass the lock on.
    pub(super) async fn leave_to_store(&self, rng: &mut Rng) {
        if self.guard.state().is_lost() && rng.bool() {
            sleep_up_to(rng, 2 * self.shared.config.ttl_ms).await;
        }
    }

    /// Records the hold count in the store.
    pub(super) async fn count(&self, mutex: &Mutex, expected: u32) {
        let before = clock::now();
        let Ok(holder) = mutex.holder().await else {
            return;
        };
        let found = holder.map(|info| (info.lease.to_string(), info.count));
        let kind = ObservationKind::Count(expected, found);
        let state = self.guard.state();
        self.shared.observe(self.number, before, state, kind);
    }
}

/// Sleeps for a random time, at most so long.
pub(super) async fn sleep_up_to(rng: &mut Rng, max_ms: u64) {
    let micros = rng.u64(..max_ms * 1000);
    tokio::time::sleep(Duration::from_micros(micros)).await;
}
