//! Reads the state of a name again each time that it has changed.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{AnnotationKind, Instant, contention, time};

use super::Driver;
use super::clock::Clock;
use super::primitives::report;
use crate::Result;
use crate::store::{BoxFuture, Changed, Key, LatchObservation, Observation, Store};

/// How often the state is read where the store cannot push a change.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is read at least: a push can be lost with a connection whose end is not noticed.
const READ_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// The shortest time between two readings. A lock that is passed on thousands of times a second does not occupy the
/// store with its observers.
const READ_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// The part of the state of a name that an observer reads.
pub(crate) trait Observed {
    /// What it reads.
    type State;

    /// Reads it, and has its next change notified.
    fn read<'a>(&'a self, store: &'a dyn Store, key: &'a Key)
    -> BoxFuture<'a, Result<Self::State>>;

    /// Takes the next change out of a state. Also returns the time until a lease in it ends, which is no push.
    fn until_change(state: &mut Self::State) -> (Option<Changed>, Option<Duration>);
}

/// The holder, the number of waiters and the annotation of this kind.
impl Observed for AnnotationKind {
    type State = Observation;

    fn read<'a>(
        &'a self,
        store: &'a dyn Store,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Observation>> {
        store.observe(key, self)
    }

    fn until_change(state: &mut Observation) -> (Option<Changed>, Option<Duration>) {
        let time_left = state.holder.map(|(_, left)| left);
        (state.changed.take(), time_left)
    }
}

/// The status of a latch.
pub(crate) struct LatchState;

impl Observed for LatchState {
    type State = LatchObservation;

    fn read<'a>(
        &'a self,
        store: &'a dyn Store,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<LatchObservation>> {
        store.observe_latch(key)
    }

    fn until_change(state: &mut LatchObservation) -> (Option<Changed>, Option<Duration>) {
        (state.changed.take(), None)
    }
}

/// Reads a part of the state of a name, at first and after each change.
///
/// It returns the newest state, not each one in between.
pub(crate) struct Observer<T = AnnotationKind> {
    driver: Arc<Driver>,
    key: Key,
    observed: T,
    /// When the state was read last.
    read_at: Option<tokio::time::Instant>,
    /// What comes before the next reading. `None`: it is due.
    pending: Option<Pending>,
    /// Since when the store fails.
    failing: Option<Instant>,
}

/// The end of a wait: whichever comes first.
struct Pending {
    changed: Option<Changed>,
    until: Instant,
}

impl<T: Observed> Observer<T> {
    pub(crate) const fn new(driver: Arc<Driver>, key: Key, observed: T) -> Self {
        Self {
            driver,
            key,
            observed,
            read_at: None,
            pending: None,
            failing: None,
        }
    }

    /// Returns the state at once the first time, and then after the next change: a push of the store, or the end of
    /// the lease that was the holder's. It may return the same state again.
    ///
    /// # Errors
    ///
    /// Those of the store that are not transient, [`ErrorKind::ShutDown`](crate::ErrorKind::ShutDown) after a shutdown of
    /// the client, and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in a fork. A transient one is waited for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no change.
    pub(crate) async fn next(&mut self) -> Result<T::State> {
        let driver = Arc::clone(&self.driver);
        let clock = &*driver.context.clock;
        loop {
            // In a fork of the process, nothing would end the wait.
            driver.check_open(&self.key)?;
            if let Some(pending) = &mut self.pending {
                tokio::select! {
                    biased;
                    () = driver.closed() => {}
                    () = pending.wait(clock) => {}
                }
                self.pending = None;
                driver.check_open(&self.key)?;
            }
            if let Some(read_at) = self.read_at {
                // Not a time of a lease: a clock that a test has stopped does not stop it.
                tokio::time::sleep_until(read_at + READ_INTERVAL_MIN).await;
            }
            self.read_at = Some(tokio::time::Instant::now());
            let read = self.observed.read(&*driver.context.store, &self.key).await;
            let now = clock.now();
            match read {
                Ok(mut state) => {
                    self.failing = None;
                    self.pending = Some(Pending::until_change(T::until_change(&mut state), now));
                    return Ok(state);
                }
                Err(error) if error.is_transient() => {
                    let error = driver.context.name_error(error, &self.key);
                    report(|| tracing::debug!(%error, "the state of a lock could not be observed"));
                    let since = *self.failing.get_or_insert(now);
                    let retry = contention::retry_after(now.since(since));
                    let retry = error.retry_after().map_or(retry, |after| after.max(retry));
                    self.pending = Some(Pending {
                        changed: None,
                        until: now.after(retry),
                    });
                }
                Err(error) => return Err(driver.context.name_error(error, &self.key)),
            }
        }
    }
}

impl Pending {
    /// The next change of what was read by `now`.
    fn until_change(
        (changed, time_left): (Option<Changed>, Option<Duration>),
        now: Instant,
    ) -> Self {
        let poll = match changed {
            Some(_) => READ_INTERVAL_MAX,
            None => POLL_INTERVAL,
        };
        // The end of a lease is no push. A lease that was read an instant too early is read again.
        let left = time_left.map(|left| left + time::DRIFT_MIN);
        Self {
            changed,
            until: now.after(left.map_or(poll, |left| left.min(poll))),
        }
    }

    async fn wait(&mut self, clock: &dyn Clock) {
        match &mut self.changed {
            Some(changed) => tokio::select! {
                biased;
                // A store that drops the sender cannot push any more, so the state may have changed.
                _ = changed => {}
                () = clock.sleep_until(self.until) => {}
            },
            None => clock.sleep_until(self.until).await,
        }
    }
}
