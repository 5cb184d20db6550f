//! Reads the state of a name again each time that it has changed.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{AnnotationKind, Instant, contention, time};

use super::Driver;
use super::clock::Clock;
use super::primitives::report;
use crate::Result;
use crate::store::{Changed, Key, Observation};

/// How often the state is read where the store cannot push a change.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is read at least: a push can be lost with a connection whose end is not noticed.
const READ_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// The shortest time between two readings. A lock that is passed on thousands of times a second does not occupy the
/// store with its observers.
const READ_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// How long the store may fail before that is reported: longer than it takes to connect again.
const SILENCE_MIN: Duration = Duration::from_secs(3);

/// The result of [`Observer::next_reading`].
pub(crate) enum Reading {
    State(Observation),
    /// The store has not replied, or has failed, for a while. The last state was read this long ago.
    Silence(Duration),
}

/// Reads the holder, the number of waiters and one annotation of a name, at first and after each change.
///
/// It returns the newest state, not each one in between.
pub(crate) struct Observer {
    driver: Arc<Driver>,
    key: Key,
    kind: AnnotationKind,
    /// When the state was read last.
    read_at: Option<tokio::time::Instant>,
    /// What comes before the next reading. `None`: it is due.
    pending: Option<Pending>,
    /// When the last state was known.
    known_at: Option<Instant>,
    /// Since when the store fails.
    failing: Option<Instant>,
    /// Whether that was reported.
    silent: bool,
}

/// The end of a wait: whichever comes first.
struct Pending {
    changed: Option<Changed>,
    until: Instant,
}

impl Observer {
    pub(crate) const fn new(driver: Arc<Driver>, key: Key, kind: AnnotationKind) -> Self {
        Self {
            driver,
            key,
            kind,
            read_at: None,
            pending: None,
            known_at: None,
            failing: None,
            silent: false,
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
    pub(crate) async fn next(&mut self) -> Result<Observation> {
        loop {
            if let Reading::State(observation) = self.next_reading().await? {
                return Ok(observation);
            }
        }
    }

    /// As [`Observer::next`], but also returns once that the store fails for a while.
    pub(crate) async fn next_reading(&mut self) -> Result<Reading> {
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
            let asked_at = clock.now();
            let silent_at = self.failing.unwrap_or(asked_at).after(SILENCE_MIN);
            let read = tokio::select! {
                biased;
                read = driver.context.store.observe(&self.key, &self.kind) => read,
                () = clock.sleep_until(silent_at), if !self.silent => {
                    return Ok(self.silence(asked_at, clock.now()));
                }
            };
            let now = clock.now();
            match read {
                Ok(mut observation) => {
                    (self.known_at, self.failing, self.silent) = (Some(now), None, false);
                    self.pending = Some(Pending::until_change(&mut observation, now));
                    return Ok(Reading::State(observation));
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
                    if !self.silent && silent_at <= now {
                        return Ok(self.silence(since, now));
                    }
                }
                Err(error) => return Err(driver.context.name_error(error, &self.key)),
            }
        }
    }

    /// Reports that the store has failed since an instant, or before.
    fn silence(&mut self, since: Instant, now: Instant) -> Reading {
        self.silent = true;
        let failing = *self.failing.get_or_insert(since);
        Reading::Silence(now.since(self.known_at.unwrap_or(failing)))
    }
}

impl Pending {
    /// The next change of what was read by `now`.
    fn until_change(observation: &mut Observation, now: Instant) -> Self {
        let changed = observation.changed.take();
        let poll = match changed {
            Some(_) => READ_INTERVAL_MAX,
            None => POLL_INTERVAL,
        };
        // The end of a lease is no push. A lease that was read an instant too early is read again.
        let left = observation.holder.map(|(_, left)| left + time::DRIFT_MIN);
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
