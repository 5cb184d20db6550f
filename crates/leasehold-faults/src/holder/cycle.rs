//! What a task does over and over: take a lock in some way, hold it for a while, leave it in some
//! way.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold::{Error, Guard, Mutex, Owner};

use super::Shared;
use super::fence::Fence;
use super::hold::Hold;
use crate::history::Event;

/// A task of a holder process.
pub(super) struct Cycle {
    shared: Arc<Shared>,
    fence: Fence,
    rng: Rng,
}

/// How a lock is taken.
#[derive(Clone, Copy)]
enum Way {
    Lock,
    TryLock,
    Timeout(Duration),
    /// The future is dropped after this time.
    Cancelled(Duration),
}

/// The terms of an acquisition.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) ttl: Duration,
    pub(super) fixed: bool,
}

impl Cycle {
    pub(super) fn new(shared: &Arc<Shared>, task: u64) -> Self {
        let args = &shared.args;
        Self {
            shared: Arc::clone(shared),
            fence: Fence::new(args.fence, &args.process),
            rng: Rng::with_seed(args.seed ^ task.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        }
    }

    /// Goes on until the process is told to stop.
    pub(super) async fn run(mut self) {
        while !self.shared.stop.is_cancelled() {
            if let Err(error) = self.turn().await {
                // The server may be away: do not burn the processor meanwhile.
                let _ = error;
                self.rest(20).await;
            }
            self.rest(30).await;
        }
    }

    async fn turn(&mut self) -> Result<(), Error> {
        let names = &self.shared.args.names;
        let name = names[self.rng.usize(..names.len())].clone();
        let terms = self.terms();
        let mutex = self.with_terms(&self.shared.client.mutex(&name)?, terms)?;
        match self.rng.u8(..10) {
            0 => self.run_inside(&mutex, terms).await,
            1 | 2 => {
                let owner = Owner::new();
                self.take(&mutex.owned_by(&owner), terms, true).await
            }
            _ => self.take(&mutex, terms, false).await,
        }
    }

    /// Takes the lock, holds it, perhaps enters it again, and leaves it.
    async fn take(&mut self, mutex: &Mutex, terms: Terms, enter: bool) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let hold = self.asks(mutex, terms, None);
        let way = self.way();
        let Some(guard) = self.acquire(mutex, way, hold).await? else {
            return Ok(());
        };
        let outer = Hold::begin(&shared, hold, &guard, terms);
        let span = self.span();
        outer.work(&mut self.fence, &mut self.rng, span / 2).await;
        let entered = match enter {
            true => outer.watched(self.enter(mutex, &outer)).await,
            false => Ok(()),
        };
        outer.work(&mut self.fence, &mut self.rng, span / 2).await;
        if outer.lost() && self.rng.bool() {
            // Whoever does not even release leaves it to the store to pass the lock on.
            self.rest(2 * self.shared.args.ttl_ms).await;
        }
        self.leave(hold, guard).await;
        entered
    }

    /// Enters a lock again that its owner holds, and leaves it.
    async fn enter(&mut self, mutex: &Mutex, outer: &Hold<'_>) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let terms = self.terms();
        let mutex = self.with_terms(mutex, terms)?;
        let hold = self.asks(&mutex, terms, Some(outer.number));
        let Some(guard) = self.acquire(&mutex, Way::Lock, hold).await? else {
            return Ok(());
        };
        let inner = Hold::begin(&shared, hold, &guard, terms);
        // It is a lease of its own if the one that was to be entered was lost meanwhile.
        let entered = guard.lease_id() == outer.guard.lease_id();
        if entered {
            inner.count(&mutex, 2).await;
        }
        let span = self.span();
        inner.work(&mut self.fence, &mut self.rng, span / 2).await;
        let left_well = self.leave(hold, guard).await;
        if entered && left_well {
            outer.count(&mutex, 1).await;
        }
        Ok(())
    }

    /// Takes the lock by [`Mutex::run`].
    async fn run_inside(&mut self, mutex: &Mutex, terms: Terms) -> Result<(), Error> {
        let hold = self.asks(mutex, terms, None);
        let span = self.span();
        let shared = Arc::clone(&self.shared);
        let (fence, rng) = (&mut self.fence, &mut self.rng);
        let work = mutex.run(async |guard| {
            let _leaving = LogsLeaving(&shared, hold);
            let inside = Hold::begin(&shared, hold, guard, terms);
            inside.work(fence, rng, span).await;
        });
        let outcome = tokio::select! {
            outcome = work => outcome,
            // The work itself stops soon, but the waiting does not.
            () = stopped_for_long(&self.shared) => return Ok(()),
        };
        self.shared.log(&Event::Left {
            hold,
            how: outcome.map_or_else(|error| format!("{:?}", error.kind()), |()| "ok".into()),
        });
        Ok(())
    }

    async fn acquire(
        &mut self,
        mutex: &Mutex,
        way: Way,
        hold: u64,
    ) -> Result<Option<Guard>, Error> {
        let asking = async {
            match way {
                Way::Lock => mutex.lock().await.map(Some),
                Way::TryLock => mutex.try_lock().await,
                Way::Timeout(timeout) => mutex.lock_timeout(timeout).await,
                Way::Cancelled(after) => tokio::time::timeout(after, mutex.lock())
                    .await
                    .map_or(Ok(None), |guard| guard.map(Some)),
            }
        };
        let outcome = tokio::select! {
            outcome = asking => outcome,
            () = self.shared.stop.cancelled() => Ok(None),
        };
        let why = match &outcome {
            Ok(Some(_)) => return outcome,
            Ok(None) => "refused".to_owned(),
            Err(error) => error.to_string(),
        };
        self.shared.log(&Event::NotGranted { hold, why });
        outcome
    }

    /// Leaves a hold. Answers whether the store was told.
    async fn leave(&mut self, hold: u64, guard: Guard) -> bool {
        self.shared.log(&Event::Leaving { hold });
        let how = match self.rng.u8(..10) {
            0 => {
                drop(guard);
                "dropped".to_owned()
            }
            // What is kept when the process ends is released by the shutdown.
            1..6 if self.shared.stop.is_cancelled() => {
                std::mem::forget(guard);
                "kept".to_owned()
            }
            _ => match guard.release().await {
                Ok(()) => "ok".to_owned(),
                Err(error) => format!("{:?}", error.kind()),
            },
        };
        let well = how == "ok";
        self.shared.log(&Event::Left { hold, how });
        well
    }

    fn asks(&self, mutex: &Mutex, terms: Terms, inside: Option<u64>) -> u64 {
        let hold = self.shared.next_hold();
        self.shared.log(&Event::Asked {
            hold,
            name: mutex.name().to_owned(),
            fixed: terms.fixed,
            inside,
        });
        hold
    }

    fn with_terms(&self, mutex: &Mutex, terms: Terms) -> Result<Mutex, Error> {
        match terms.fixed {
            true => mutex.lease(terms.ttl),
            false => mutex.ttl(terms.ttl),
        }
    }

    fn terms(&mut self) -> Terms {
        let ttl = self.shared.args.ttl_ms;
        let fixed = self.rng.u8(..4) == 0;
        let millis = if fixed {
            self.rng.u64(100..=ttl)
        } else {
            self.rng.u64(ttl.div_ceil(2).max(200)..=ttl)
        };
        Terms {
            ttl: Duration::from_millis(millis),
            fixed,
        }
    }

    fn way(&mut self) -> Way {
        let ttl = self.shared.args.ttl_ms;
        if self.shared.args.impatient && self.rng.u8(..4) > 0 {
            return Way::Timeout(Duration::from_millis(self.rng.u64(20..400)));
        }
        match self.rng.u8(..10) {
            0..5 => Way::Lock,
            5 | 6 => Way::TryLock,
            7 | 8 => Way::Timeout(Duration::from_millis(self.rng.u64(1..2 * ttl))),
            _ => Way::Cancelled(Duration::from_millis(self.rng.u64(1..ttl))),
        }
    }

    /// How long to hold a lock: mostly short, at times for several renewals.
    fn span(&mut self) -> Duration {
        let ttl = self.shared.args.ttl_ms;
        Duration::from_millis(match self.rng.u8(..10) {
            0..7 => self.rng.u64(1..40),
            7 | 8 => self.rng.u64(ttl / 4..ttl),
            _ => self.rng.u64(ttl..3 * ttl),
        })
    }

    async fn rest(&mut self, most_ms: u64) {
        let pause = Duration::from_millis(self.rng.u64(..most_ms));
        tokio::time::sleep(pause).await;
    }
}

/// Writes down that a hold ends, however the work under it does: it is dropped when the lease is lost.
struct LogsLeaving<'a>(&'a Shared, u64);

impl Drop for LogsLeaving<'_> {
    fn drop(&mut self) {
        self.0.log(&Event::Leaving { hold: self.1 });
    }
}

/// Some time after the process was told to stop: long enough for any work to have noticed.
async fn stopped_for_long(shared: &Shared) {
    shared.stop.cancelled().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
}
