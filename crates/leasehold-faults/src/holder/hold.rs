//! A hold, and the critical steps that are made while it is believed in.

use std::pin::pin;
use std::time::Duration;

use fastrand::Rng;
use leasehold::{Guard, Mutex, State};

use super::Shared;
use super::cycle::Terms;
use super::fence::Fence;
use crate::clock;
use crate::history::{Event, Seen};

/// The longest critical step: long against its two lines, short against a ttl.
const STEP_MAX_MS: u64 = 10;

/// A hold of this process, from its grant on.
pub(super) struct Hold<'a> {
    shared: &'a Shared,
    pub(super) number: u64,
    pub(super) guard: &'a Guard,
}

impl<'a> Hold<'a> {
    /// Writes the grant down.
    pub(super) fn begin(shared: &'a Shared, number: u64, guard: &'a Guard, terms: Terms) -> Self {
        shared.log(&Event::Granted {
            hold: number,
            lease: guard.lease_id().to_string(),
            token: guard.token().get(),
            deadline: guard.deadline().as_nanos(),
            ttl_ms: u64::try_from(terms.ttl.as_millis()).unwrap_or(u64::MAX),
        });
        Self {
            shared,
            number,
            guard,
        }
    }

    /// Makes critical steps until the time is over, the lease is lost or the process is to stop.
    pub(super) async fn work(&self, fence: &mut Fence, rng: &mut Rng, span: Duration) {
        self.watched(self.steps(fence, rng, span)).await;
    }

    /// Writes down what the stream of states tells while something is done under the hold.
    pub(super) async fn watched<T>(&self, work: impl Future<Output = T>) -> T {
        let mut states = self.guard.states();
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                Some(state) = states.next() => {
                    let (hold, state) = (self.number, seen(state));
                    self.shared.log(&Event::Told { hold, state });
                }
                outcome = &mut work => return outcome,
            }
        }
    }

    async fn steps(&self, fence: &mut Fence, rng: &mut Rng, span: Duration) {
        let end = tokio::time::Instant::now() + span;
        while self.check() {
            let (hold, guard) = (self.number, self.guard);
            // A pause of the process that falls in here makes the write late.
            if rng.bool() {
                pause(rng, STEP_MAX_MS).await;
            }
            let write = fence.write(hold, guard.name(), guard.token()).await;
            if rng.bool() {
                pause(rng, STEP_MAX_MS).await;
            }
            self.shared.log(&Event::Stepped { hold, write });
            pause(rng, 20).await;
            if tokio::time::Instant::now() >= end || self.shared.stop.is_cancelled() {
                // One more look: what is left is left in the knowledge of its state.
                self.look();
                return;
            }
        }
    }

    /// Looks, and begins a critical step if the lease is not lost.
    fn check(&self) -> bool {
        let (before, state) = (clock::now(), self.guard.state());
        self.write_check(before, state, true)
    }

    fn look(&self) {
        let (before, state) = (clock::now(), self.guard.state());
        self.write_check(before, state, false);
    }

    fn write_check(&self, before: u64, state: State, step: bool) -> bool {
        self.shared.log(&Event::Checked {
            hold: self.number,
            before,
            state: seen(state),
            step,
        });
        !state.is_lost()
    }

    /// Whether the lease is lost.
    pub(super) fn lost(&self) -> bool {
        self.guard.state().is_lost()
    }

    /// Asks the store for the hold count.
    pub(super) async fn count(&self, mutex: &Mutex, expected: u32) {
        let before = clock::now();
        let Ok(holder) = mutex.holder().await else {
            return;
        };
        self.shared.log(&Event::Counted {
            hold: self.number,
            before,
            expected,
            seen: holder.map(|info| (info.lease.to_string(), info.count)),
            state: seen(self.guard.state()),
        });
    }
}

fn seen(state: State) -> Seen {
    match state {
        State::Held { until } => Seen::Held(until.as_nanos()),
        State::Jeopardy { until, cause } => Seen::Jeopardy(until.as_nanos(), format!("{cause:?}")),
        State::Lost(cause) => Seen::Lost(format!("{cause:?}")),
    }
}

async fn pause(rng: &mut Rng, most_ms: u64) {
    let micros = rng.u64(..most_ms * 1000);
    tokio::time::sleep(Duration::from_micros(micros)).await;
}
