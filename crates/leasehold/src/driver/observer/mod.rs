//! Reads the state of a name again each time that it has changed.

mod readings;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::readings::SharedReadings;
use self::readings::Subscription;
use super::Driver;
use crate::Result;
use crate::store::{Key, Parts, View};

/// What an observer is told.
pub(crate) enum Update {
    State(Arc<View>),
    /// The store has not replied, or has failed, for a while. The last state was read this long ago.
    Silence(Duration),
}

/// Reads parts of the state of a name, at first and after each change.
///
/// It returns the newest state, not each one in between. All observers of a client share the readings of a name.
pub(crate) struct Observer {
    driver: Arc<Driver>,
    key: Key,
    parts: Parts,
    /// `None`: it has not waited yet.
    subscription: Option<Subscription>,
}

impl Observer {
    pub(crate) const fn new(driver: Arc<Driver>, key: Key, parts: Parts) -> Self {
        Self {
            driver,
            key,
            parts,
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
    pub(crate) async fn next(&mut self) -> Result<Arc<View>> {
        loop {
            if let Update::State(state) = self.next_update().await? {
                return Ok(state);
            }
        }
    }

    /// As [`Observer::next`], but also returns that the store fails for a while: once, until it replies again.
    pub(crate) async fn next_update(&mut self) -> Result<Update> {
        let Self {
            driver,
            key,
            parts,
            subscription,
        } = self;
        loop {
            // In a fork of the process, nothing would end the wait.
            driver.check_open(key)?;
            let subscribe = || driver.readings.subscribe(&driver.context, key, parts);
            let subscription = subscription.get_or_insert_with(subscribe);
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
                readings.unsubscribe(subscription, &self.key, &self.parts);
            }
            // Threads of the parent may have held its locks.
            false => std::mem::forget(subscription),
        }
    }
}
