//! A cycle of acquisitions and releases, in all ways of the library.

mod jobs;
mod shares;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use leasehold::{Client, Error, Guard, LeaseOptions, Mutex, Owner};
use leasehold_testkit::helper::Commands;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub(crate) use self::jobs::NAMES as JOBS;
pub(crate) use self::shares::NAMES as SHARED_NAMES;
use super::fence::Fence;
use super::hold::{LiveHold, sleep_up_to};
use super::{SHUTDOWN_TIMEOUT, Shared, stalls};
use crate::history::{Event, HoldEvent};

/// What the tasks of a process do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CycleConfig {
    pub(crate) names: Vec<String>,
    /// The port of the fenced resource on 127.0.0.1.
    pub(crate) fence: u16,
    pub(crate) seed: u64,
    /// Whether tasks wait for short times only.
    pub(crate) impatient: bool,
    pub(crate) tasks: u64,
    /// The longest time between two turns of a task.
    pub(crate) idle_ms: u64,
    /// Whether they also share locks, and run jobs.
    pub(crate) shares_and_jobs: bool,
}

/// A task of a holder process.
struct Cycle {
    shared: Arc<Shared>,
    config: Arc<CycleConfig>,
    client: Client,
    stop: CancellationToken,
    /// Whether the process ends, and does not only rest.
    end: CancellationToken,
    fence: Fence,
    rng: Rng,
}

/// The ttl of an acquisition, and whether it is fixed.
#[derive(Clone, Copy)]
struct LeaseLength {
    ttl_ms: u64,
    fixed: bool,
}

/// A way to acquire a lock.
#[derive(Clone, Copy)]
enum Method {
    Lock,
    TryLock,
    Timeout(Duration),
    /// The future is dropped after this time.
    Cancelled(Duration),
}

/// Runs all tasks until the commands end, and releases all that is held then.
pub(super) async fn run(shared: &Arc<Shared>, config: CycleConfig, commands: Commands) {
    let Some((client, stop)) = shared.begin(commands, |_| ()).await else {
        return;
    };
    stalls::detect(shared);
    let config = Arc::new(config);
    let run = async |part: CancellationToken| {
        let seed = config.seed ^ shared.holds.load(Ordering::Relaxed);
        let tasks = (0..config.tasks).map(|task| {
            let cycle = Cycle {
                shared: Arc::clone(shared),
                config: Arc::clone(&config),
                client: client.clone(),
                stop: part.clone(),
                end: stop.clone(),
                fence: Fence::new(config.fence, &shared.config.process),
                rng: Rng::with_seed(seed ^ task.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            };
            tokio::spawn(cycle.run())
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    };
    shared.run_in_parts(&stop, run).await;
    let released = client.shutdown(SHUTDOWN_TIMEOUT).await.is_ok();
    shared.journal.record(&Event::Ended { released });
}

impl Cycle {
    async fn run(mut self) {
        while !self.stop.is_cancelled() {
            if self.turn().await.is_err() {
                // The server may be away: use no processor time meanwhile.
                sleep_up_to(&mut self.rng, 20).await;
            }
            sleep_up_to(&mut self.rng, self.config.idle_ms).await;
        }
    }

    async fn turn(&mut self) -> Result<(), Error> {
        if self.config.shares_and_jobs {
            match self.rng.u8(..6) {
                0 | 1 => return self.share().await,
                2 => return self.run_job().await,
                _ => {}
            }
        }
        let names = &self.config.names;
        let name = &names[self.rng.usize(..names.len())];
        let mutex = self.client.mutex(name)?;
        let options = self.lease_options();
        let mutex = with_options(&mutex, options)?;
        match self.rng.u8(..10) {
            0 => self.run_inside(&mutex, options).await,
            1 | 2 => {
                let owner = Owner::new();
                self.hold(
                    &mutex.with(LeaseOptions::new().owner(&owner))?,
                    options,
                    true,
                )
                .await
            }
            _ => self.hold(&mutex, options, false).await,
        }
    }

    /// Acquires the lock, holds it, perhaps re-enters it, and releases it.
    async fn hold(
        &mut self,
        mutex: &Mutex,
        options: LeaseLength,
        reenter: bool,
    ) -> Result<(), Error> {
        let (shared, stop) = (Arc::clone(&self.shared), self.stop.clone());
        let hold = self.shared.request(mutex.name(), options.fixed, None);
        let method = self.method();
        let Some(guard) = self.acquire(mutex, method, hold).await? else {
            return Ok(());
        };
        let outer = LiveHold::begin(&shared, &stop, hold, &guard, options.ttl_ms);
        let half = self.duration() / 2;
        outer.work(&mut self.fence, &mut self.rng, half).await;
        let reentered = match reenter {
            true => outer.observe_while(self.reenter(mutex, &outer)).await,
            false => Ok(()),
        };
        outer.work(&mut self.fence, &mut self.rng, half).await;
        outer.leave_to_store(&mut self.rng).await;
        self.release(hold, guard).await;
        reentered
    }

    /// Re-enters a lock that its owner holds, and releases that hold.
    async fn reenter(&mut self, mutex: &Mutex, outer: &LiveHold<'_>) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let options = self.lease_options();
        let mutex = with_options(mutex, options)?;
        let hold = self
            .shared
            .request(mutex.name(), options.fixed, Some(outer.number));
        let Some(guard) = self.acquire(&mutex, Method::Lock, hold).await? else {
            return Ok(());
        };
        let stop = self.stop.clone();
        let inner = LiveHold::begin(&shared, &stop, hold, &guard, options.ttl_ms);
        // It is a lease of its own if the outer one was lost meanwhile.
        let same_lease = guard.lease_id() == outer.guard.lease_id();
        if same_lease {
            inner.count(&mutex, 2).await;
        }
        let half = self.duration() / 2;
        inner.work(&mut self.fence, &mut self.rng, half).await;
        let released = self.release(hold, guard).await;
        if same_lease && released {
            outer.count(&mutex, 1).await;
        }
        Ok(())
    }

    /// Holds the lock by [`Mutex::run`].
    async fn run_inside(&mut self, mutex: &Mutex, options: LeaseLength) -> Result<(), Error> {
        let hold = self.shared.request(mutex.name(), options.fixed, None);
        let duration = self.duration();
        let (shared, stop) = (Arc::clone(&self.shared), self.stop.clone());
        let (fence, rng) = (&mut self.fence, &mut self.rng);
        let work = mutex.run(async |guard| {
            let _releasing = RecordsReleasing(&shared, hold);
            let inside = LiveHold::begin(&shared, &stop, hold, guard, options.ttl_ms);
            inside.work(fence, rng, duration).await;
        });
        let outcome = tokio::select! {
            outcome = work => outcome,
            // The work itself stops soon, but the wait for the lock does not.
            () = stopped_for_long(&stop) => return Ok(()),
        };
        // Not "ok": a failed release is no error of `Mutex::run`. It is repeated, and the record may stay for a ttl.
        let outcome = match outcome {
            Ok(()) => "ran".to_owned(),
            failed => super::outcome(&failed),
        };
        self.shared.record(hold, HoldEvent::Released { outcome });
        Ok(())
    }

    async fn acquire(
        &mut self,
        mutex: &Mutex,
        method: Method,
        hold: u64,
    ) -> Result<Option<Guard>, Error> {
        let acquire = async {
            match method {
                Method::Lock => mutex.lock().await.map(Some),
                Method::TryLock => mutex.try_lock().await,
                Method::Timeout(timeout) => mutex.lock_timeout(timeout).await,
                Method::Cancelled(after) => tokio::time::timeout(after, mutex.lock())
                    .await
                    .map_or(Ok(None), |guard| guard.map(Some)),
            }
        };
        self.granted(hold, acquire).await
    }

    /// What an acquisition returns, unless the task is to stop. Records that there was no grant.
    async fn granted<G>(
        &self,
        hold: u64,
        acquire: impl Future<Output = Result<Option<G>, Error>>,
    ) -> Result<Option<G>, Error> {
        let outcome = tokio::select! {
            outcome = acquire => outcome,
            () = self.stop.cancelled() => Ok(None),
        };
        let reason = match &outcome {
            Ok(Some(_)) => return outcome,
            Ok(None) => "not free".to_owned(),
            Err(error) => error.to_string(),
        };
        self.shared.record(hold, HoldEvent::NotGranted { reason });
        outcome
    }

    /// Ends a hold. Returns whether the store confirmed it.
    async fn release(&mut self, hold: u64, guard: Guard) -> bool {
        self.shared.record(hold, HoldEvent::Releasing);
        let outcome = match self.rng.u8(..10) {
            0 => {
                drop(guard);
                "dropped".to_owned()
            }
            // A guard that is kept to the end of the process is released by the shutdown.
            1..6 if self.end.is_cancelled() => {
                std::mem::forget(guard);
                "kept".to_owned()
            }
            _ => super::outcome(&guard.release().await),
        };
        let released = outcome == "ok";
        self.shared.record(hold, HoldEvent::Released { outcome });
        released
    }

    fn lease_options(&mut self) -> LeaseLength {
        let ttl = self.shared.config.ttl_ms;
        let fixed = self.rng.u8(..4) == 0;
        let shortest = if fixed { 100 } else { ttl.div_ceil(2).max(200) };
        LeaseLength {
            ttl_ms: self.rng.u64(shortest..=ttl),
            fixed,
        }
    }

    fn method(&mut self) -> Method {
        let ttl = self.shared.config.ttl_ms;
        if self.config.impatient && self.rng.u8(..4) > 0 {
            return Method::Timeout(Duration::from_millis(self.rng.u64(20..400)));
        }
        match self.rng.u8(..10) {
            0..5 => Method::Lock,
            5 | 6 => Method::TryLock,
            7 | 8 => Method::Timeout(Duration::from_millis(self.rng.u64(1..2 * ttl))),
            _ => Method::Cancelled(Duration::from_millis(self.rng.u64(1..ttl))),
        }
    }

    /// How long to hold a lock: mostly short, at times for several renewals.
    fn duration(&mut self) -> Duration {
        let ttl = self.shared.config.ttl_ms;
        Duration::from_millis(match self.rng.u8(..10) {
            0..7 => self.rng.u64(1..40),
            7 | 8 => self.rng.u64(ttl / 4..ttl),
            _ => self.rng.u64(ttl..3 * ttl),
        })
    }
}

fn with_options(mutex: &Mutex, options: LeaseLength) -> Result<Mutex, Error> {
    let ttl = Duration::from_millis(options.ttl_ms);
    mutex.with(match options.fixed {
        true => LeaseOptions::new().fixed(ttl),
        false => LeaseOptions::new().ttl(ttl),
    })
}

/// Records that a hold ends, however its work does: the work is dropped when the lease is lost.
struct RecordsReleasing<'a>(&'a Shared, u64);

impl Drop for RecordsReleasing<'_> {
    fn drop(&mut self) {
        self.0.record(self.1, HoldEvent::Releasing);
    }
}

/// Some time after the end of the commands: long enough for any work to have stopped.
async fn stopped_for_long(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
}
