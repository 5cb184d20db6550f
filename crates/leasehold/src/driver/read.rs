//! Reads the state of a name again each time that it has changed, once for all observers in a client.
//!
//! The protocol is [`leasehold_core::reading`]. Here is its host: a task for each name that reads, waits and notifies
//! the observers.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use leasehold_core::Reading;
pub(crate) use leasehold_core::reading::Update;
use leasehold_core::reading::{ReadAction, ReadReply, Subscription};
use tokio::sync::{Notify, watch};

use super::Driver;
use super::context::Context;
use super::primitives::{AbortHandle, Mutex, lock, report};
use crate::store::{Changed, Key, Page, Parts, Query, View};
use crate::{Error, ErrorKind, Result};

/// The result of a reading.
type Read = Result<Arc<View>>;

/// Reads parts of the state of a name, at first and after each change.
///
/// It returns the newest state, not each one in between. All observers of a client share the readings of a name.
pub(crate) struct Observer {
    driver: Arc<Driver>,
    key: Key,
    parts: Parts,
    /// `None`: it has not waited yet.
    subscribed: Option<Subscribed>,
}

impl Observer {
    pub(crate) const fn new(driver: Arc<Driver>, key: Key, parts: Parts) -> Self {
        Self {
            driver,
            key,
            parts,
            subscribed: None,
        }
    }

    /// Returns the state immediately the first time, and then after the next change: a push of the store, or the end of
    /// the first of the leases of the holders. It may return the same state again.
    ///
    /// # Errors
    ///
    /// Those of the store that are not transient, [`ErrorKind::ShutDown`] after a shutdown of
    /// the client, and [`ErrorKind::Unsupported`] in a fork. A transient one is waited for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no change.
    pub(crate) async fn next(&mut self) -> Read {
        loop {
            if let Update::Read(state) = self.next_update().await? {
                return Ok(state);
            }
        }
    }

    /// As [`Observer::next`], but also returns that the store fails for a while: once, until it replies again.
    pub(crate) async fn next_update(&mut self) -> Result<Update<Arc<View>>> {
        let Self {
            driver,
            key,
            parts,
            subscribed,
        } = self;
        loop {
            // In a fork of the process, nothing would end the wait.
            driver.check_open(key)?;
            let subscribe = || driver.readings.subscribe(&driver.context, key, parts);
            let subscribed = subscribed.get_or_insert_with(subscribe);
            tokio::select! {
                biased;
                () = driver.closed() => {}
                update = subscribed.next(&driver.context) => return update,
            }
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let Some(subscribed) = self.subscribed.take() else {
            return;
        };
        match self.driver.context.process.is_current() {
            true => {
                let readings = &self.driver.readings;
                readings.unsubscribe(subscribed, &self.key, &self.parts);
            }
            // Threads of the parent may have held its locks.
            false => std::mem::forget(subscribed),
        }
    }
}

/// The readings of a client: of the parts of the state of each name that are observed.
#[derive(Default)]
pub(crate) struct SharedReadings(Mutex<HashMap<(Key, Parts), Weak<Readings>>>);

impl SharedReadings {
    fn subscribe(&self, context: &Context, key: &Key, parts: &Parts) -> Subscribed {
        let mut table = lock(&self.0);
        let entry = (key.clone(), parts.clone());
        let running = table.get(&entry).and_then(Weak::upgrade);
        if let Some(readings) = running.filter(|readings| !readings.have_ended()) {
            return Subscribed::new(readings);
        }
        let readings = Arc::new(Readings::start(context, key, parts));
        table.insert(entry, Arc::downgrade(&readings));
        Subscribed::new(readings)
    }

    /// Ends a subscription, and the readings of its name if it is the last one.
    fn unsubscribe(&self, subscribed: Subscribed, key: &Key, parts: &Parts) {
        let mut table = lock(&self.0);
        drop(subscribed);
        let entry = (key.clone(), parts.clone());
        if table.get(&entry).is_some_and(|it| it.strong_count() == 0) {
            table.remove(&entry);
        }
    }
}

/// The readings of one part of the state of a name, until this is dropped.
struct Readings {
    shared: Arc<Shared>,
    /// Changes when observers may have something new. Its sender ends with the task.
    progress: watch::Receiver<()>,
    task: AbortHandle,
}

/// What the task shares with the observers.
struct Shared {
    reading: Mutex<Reading<Read>>,
    /// Wakes the task.
    wakeup: Notify,
}

impl Readings {
    fn start(context: &Context, key: &Key, parts: &Parts) -> Self {
        let shared = Arc::new(Shared {
            reading: Mutex::new(Reading::new(context.clock.now())),
            wakeup: Notify::new(),
        });
        let (sender, progress) = watch::channel(());
        let task = Task {
            context: context.clone(),
            key: key.clone(),
            parts: parts.clone(),
            shared: Arc::clone(&shared),
            progress: sender,
        };
        Self {
            shared,
            progress,
            task: context.runtime.spawn(task.run()).abort_handle(),
        }
    }

    /// Whether the task has ended, with its runtime or by a panic of the store.
    fn have_ended(&self) -> bool {
        self.progress.has_changed().is_err()
    }
}

impl Drop for Readings {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observer({})", self.key.name)
    }
}

/// The share of one observer.
struct Subscribed {
    readings: Arc<Readings>,
    subscription: Subscription,
    progress: watch::Receiver<()>,
}

impl Subscribed {
    fn new(readings: Arc<Readings>) -> Self {
        let subscription = lock(&readings.shared.reading).subscribe();
        readings.shared.wakeup.notify_one();
        Self {
            subscription,
            progress: readings.progress.clone(),
            readings,
        }
    }

    /// Waits for what is new.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no reading.
    async fn next(&mut self, context: &Context) -> Result<Update<Arc<View>>> {
        let Shared { reading, wakeup } = &*self.readings.shared;
        loop {
            // Before the state is read: no change falls between.
            self.progress.mark_unchanged();
            let update = lock(reading).next(&mut self.subscription, context.clock.now());
            match update {
                Some(Update::Read(result)) => return result.map(Update::Read),
                Some(Update::Silence(time)) => return Ok(Update::Silence(time)),
                None => wakeup.notify_one(),
            }
            if self.progress.changed().await.is_err() {
                return Err(Error::new(
                    ErrorKind::ShutDown,
                    "the runtime of the client has ended, so nothing is observed",
                ));
            }
        }
    }
}

/// The task that reads a name.
struct Task {
    context: Context,
    key: Key,
    parts: Parts,
    shared: Arc<Shared>,
    progress: watch::Sender<()>,
}

impl Task {
    async fn run(self) {
        let (store, clock) = (&self.context.store, &self.context.clock);
        let (mut read, mut push) = (None, None);
        loop {
            let now = clock.now();
            let (action, next) = {
                let mut reading = lock(&self.shared.reading);
                (reading.poll(now), reading.next_timeout())
            };
            let pause = match action {
                ReadAction::Read => {
                    (read, push) = (Some(store.read(self.query())), None);
                    None
                }
                ReadAction::Pause(pause) => Some(pause),
                ReadAction::Wait => None,
            };
            tokio::select! {
                biased;
                page = output(&mut read) => {
                    read = None;
                    push = self.handle_reply(page);
                    self.progress.send_replace(());
                }
                // A store that drops the sender can no longer push, so the state may have changed.
                _ = output(&mut push) => {
                    push = None;
                    lock(&self.shared.reading).handle_push();
                }
                () = self.shared.wakeup.notified() => {}
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {
                    lock(&self.shared.reading).end_pause();
                }
                () = clock.sleep_until(next.unwrap_or(now)), if next.is_some() => {
                    self.progress.send_replace(());
                }
            }
        }
    }

    fn query(&self) -> Query {
        Query::Name {
            key: self.key.clone(),
            parts: self.parts.clone(),
            watch: true,
        }
    }

    /// Passes the reply on. Returns the next change of the state that it has.
    fn handle_reply(&self, page: Result<Page>) -> Option<Changed> {
        let page = page.map_err(|error| self.context.name_error(error, &self.key));
        let (reply, push) = match page {
            Ok(Page { views, changed, .. }) => {
                let view = views.into_iter().next();
                let view = view.unwrap_or_else(|| View::of(self.key.clone()));
                let holders = view.holder.iter().chain(&view.others);
                let state = ReadReply::State {
                    pushes: changed.is_some(),
                    time_left: holders.map(|holder| holder.time_left).min(),
                    result: Ok(Arc::new(view)),
                };
                (state, changed)
            }
            Err(error) if error.is_transient() => {
                report(|| tracing::debug!(%error, "the state of a lock could not be observed"));
                (ReadReply::Failed(error.retry_after()), None)
            }
            Err(error) => (ReadReply::Refused(Err(error)), None),
        };
        lock(&self.shared.reading).handle_reply(reply, self.context.clock.now());
        push
    }
}

/// The output of a future. Without one, it never returns.
async fn output<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
