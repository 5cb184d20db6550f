//! Reads the state of a name again each time that it has changed.

mod observed;
mod readings;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::AnnotationKind;

pub(crate) use self::observed::{LatchState, Observed};
pub(crate) use self::readings::SharedReadings;
use self::readings::Subscription;
use super::Driver;
use crate::Result;
use crate::store::Key;

/// What an observer is told.
pub(crate) enum Update<S> {
    State(Arc<S>),
    /// The store has not replied, or has failed, for a while. The last state was read this long ago.
    Silence(Duration),
}

/// Reads a part of the state of a name, at first and after each change.
///
/// It returns the newest state, not each one in between. All observers of a client share the readings of a name.
pub(crate) struct Observer<T: Observed = AnnotationKind> {
    driver: Arc<Driver>,
    key: Key,
    observed: T,
    /// Those of the driver that have this part.
    readings: fn(&Driver) -> &SharedReadings<T>,
    /// `None`: it has not waited yet.
    subscription: Option<Subscription<T::State>>,
}

impl Observer {
    /// An observer of the holder, the number of waiters and one annotation.
    pub(crate) const fn new(driver: Arc<Driver>, key: Key, kind: AnnotationKind) -> Self {
        Self {
            driver,
            key,
            observed: kind,
            readings: |driver| &driver.readings,
            subscription: None,
        }
    }
}

impl Observer<LatchState> {
    /// An observer of a latch.
    pub(crate) const fn of_latch(driver: Arc<Driver>, key: Key) -> Self {
        Self {
            driver,
            key,
            observed: LatchState,
            readings: |driver| &driver.latch_readings,
            subscription: None,
        }
    }
}

impl<T: Observed> Observer<T> {
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
    pub(crate) async fn next(&mut self) -> Result<Arc<T::State>> {
        loop {
            if let Update::State(state) = self.next_update().await? {
                return Ok(state);
            }
        }
    }

    /// As [`Observer::next`], but also returns that the store fails for a while: once, until it replies again.
    pub(crate) async fn next_update(&mut self) -> Result<Update<T::State>> {
        let Self {
            driver,
            key,
            observed,
            readings,
            ..
        } = self;
        loop {
            // In a fork of the process, nothing would end the wait.
            driver.check_open(key)?;
            let subscribe = || readings(driver).subscribe(&driver.context, key, observed);
            let subscription = self.subscription.get_or_insert_with(subscribe);
            tokio::select! {
                biased;
                () = driver.closed() => {}
                update = subscription.next(&*driver.context.clock) => return update,
            }
        }
    }
}

impl<T: Observed> Drop for Observer<T> {
    fn drop(&mut self) {
        let Some(subscription) = self.subscription.take() else {
            return;
        };
        match self.driver.context.process.is_current() {
            true => {
                let readings = (self.readings)(&self.driver);
                readings.unsubscribe(subscription, &self.key, &self.observed);
            }
            // Threads of the parent may have held its locks.
            false => std::mem::forget(subscription),
        }
    }
}
