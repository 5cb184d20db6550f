//! Reads the state of a name again each time that it has changed.

mod readings;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::AnnotationKind;

pub(crate) use self::readings::SharedReadings;
use self::readings::Subscription;
use super::Driver;
use crate::Result;
use crate::store::{Key, Observation};

/// What an observer is told.
pub(crate) enum Update {
    State(Arc<Observation>),
    /// The store has not replied, or has failed, for a while. The last state was read this long ago.
    Silence(Duration),
}

/// Reads the holder, the number of waiters and one annotation of a name, at first and after each change.
///
/// It returns the newest state, not each one in between. All observers of a client share the readings of a name.
pub(crate) struct Observer {
    driver: Arc<Driver>,
    key: Key,
    kind: AnnotationKind,
    /// `None`: it has not waited yet.
    subscription: Option<Subscription>,
}

impl Observer {
    pub(crate) const fn new(driver: Arc<Driver>, key: Key, kind: AnnotationKind) -> Self {
        Self {
            driver,
            key,
            kind,
            subscription: None,
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
    pub(crate) async fn next(&mut self) -> Result<Arc<Observation>> {
        loop {
            if let Update::State(observation) = self.next_update().await? {
                return Ok(observation);
            }
        }
    }

    /// As [`Observer::next`], but also returns that the store fails for a while: once, until it replies again.
    pub(crate) async fn next_update(&mut self) -> Result<Update> {
        let Self {
            driver, key, kind, ..
        } = self;
        loop {
            // In a fork of the process, nothing would end the wait.
            driver.check_open(key)?;
            let subscribe = || driver.readings.subscribe(&driver.context, key, kind);
            let subscription = self.subscription.get_or_insert_with(subscribe);
            tokio::select! {
                biased;
                () = driver.closed() => {}
                update = subscription.next(&*driver.context.clock) => return update,
            }
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let Some(subscription) = self.subscription.take() else {
            return;
        };
        match self.driver.context.process.is_current() {
            true => {
                let readings = &self.driver.readings;
                readings.unsubscribe(subscription, &self.key, &self.kind);
            }
            // Threads of the parent may have held its locks.
            false => std::mem::forget(subscription),
        }
    }
}
