//! The readings of a name: one task reads it for all observers in a client.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::{Instant, contention, time};
use tokio::sync::{Notify, watch};

use super::Update;
use crate::clock::Clock;
use crate::driver::context::Context;
use crate::driver::primitives::{AbortHandle, Mutex, lock, report};
use crate::store::{Changed, Key, Parts, Query, View};
use crate::{Error, ErrorKind, Result};

/// How often the state is read where the store cannot push a change.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is read at least: a push can be lost with a connection whose end is not noticed.
const READ_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// The time between two readings of a name that changes all the time. A lock that is passed on thousands of times a
/// second does not occupy the store with its observers.
const READ_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// How many readings may follow each other at once after a while without any: that of a new holder, and that of the
/// value which it writes a moment later.
const READ_BURST: u32 = 3;

/// How long the store may fail before that is reported: longer than it takes to connect again.
const SILENCE_MIN: Duration = Duration::from_secs(3);

/// The readings of a client: of the parts of the state of each name that are observed.
#[derive(Default)]
pub(crate) struct SharedReadings(Mutex<HashMap<(Key, Parts), Weak<Readings>>>);

impl SharedReadings {
    /// Subscribes an observer, whose first reading begins from now on.
    pub(super) fn subscribe(&self, context: &Context, key: &Key, parts: &Parts) -> Subscription {
        let mut table = lock(&self.0);
        let entry = (key.clone(), parts.clone());
        let running = table.get(&entry).and_then(Weak::upgrade);
        if let Some(readings) = running.filter(|readings| !readings.have_ended()) {
            let after = readings.requests.begun.load(Ordering::SeqCst);
            readings.requests.at_once.notify_one();
            return Subscription::new(readings, after);
        }
        let readings = Arc::new(Readings::start(context, key, parts));
        table.insert(entry, Arc::downgrade(&readings));
        Subscription::new(readings, 0)
    }

    /// Ends a subscription, and the readings of its name if it is the last one.
    pub(super) fn unsubscribe(&self, subscription: Subscription, key: &Key, parts: &Parts) {
        let mut table = lock(&self.0);
        drop(subscription);
        let entry = (key.clone(), parts.clone());
        if table.get(&entry).is_some_and(|it| it.strong_count() == 0) {
            table.remove(&entry);
        }
    }
}

/// The readings of one part of the state of a name, until this is dropped.
struct Readings {
    newest: watch::Receiver<Option<Reading>>,
    /// Since when there is no reading, while the store fails for a while.
    silence: watch::Receiver<Option<Instant>>,
    requests: Arc<Requests>,
    task: AbortHandle,
}

#[derive(Clone)]
struct Reading {
    number: u64,
    result: Result<Arc<View>>,
}

/// What observers request of the task.
#[derive(Default)]
struct Requests {
    /// The number of the last reading that was begun.
    begun: AtomicU64,
    /// An observer waits for the next change. Without one, nothing is read.
    next: Notify,
    /// A new observer needs a reading that begins after its subscription.
    at_once: Notify,
}

impl Readings {
    fn start(context: &Context, key: &Key, parts: &Parts) -> Self {
        let (sender, newest) = watch::channel(None);
        let (silent, silence) = watch::channel(None);
        let requests = Arc::<Requests>::default();
        let task = Task {
            context: context.clone(),
            key: key.clone(),
            parts: parts.clone(),
            requests: Arc::clone(&requests),
            newest: sender,
            silence: silent,
            pace: Pace::new(),
            known_at: None,
        };
        Self {
            newest,
            silence,
            requests,
            task: context.runtime.spawn(task.run()).abort_handle(),
        }
    }

    /// Whether the task has ended, with its runtime or by a panic of the store.
    fn have_ended(&self) -> bool {
        self.newest.has_changed().is_err()
    }
}

impl Drop for Readings {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The share of one observer.
pub(super) struct Subscription {
    readings: Arc<Readings>,
    newest: watch::Receiver<Option<Reading>>,
    /// The number of the last reading that does not count for it.
    after: u64,
    silence: watch::Receiver<Option<Instant>>,
    /// Whether it has returned that the store fails, since the last reading.
    silent: bool,
}

impl Subscription {
    fn new(readings: Arc<Readings>, after: u64) -> Self {
        Self {
            newest: readings.newest.clone(),
            silence: readings.silence.clone(),
            readings,
            after,
            silent: false,
        }
    }

    /// The newest reading, once it is another than the last one; or once the silence of the store.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no reading.
    pub(super) async fn next(&mut self, clock: &dyn Clock) -> Result<Update> {
        loop {
            let newest = self.newest.borrow_and_update().clone();
            if let Some(reading) = newest.filter(|reading| reading.number > self.after) {
                (self.after, self.silent) = (reading.number, false);
                return reading.result.map(Update::State);
            }
            let silent_since = *self.silence.borrow_and_update();
            if let Some(since) = silent_since.filter(|_| !self.silent) {
                self.silent = true;
                return Ok(Update::Silence(clock.now().since(since)));
            }
            self.readings.requests.next.notify_one();
            let changed = tokio::select! {
                biased;
                changed = self.newest.changed() => changed,
                changed = self.silence.changed() => changed,
            };
            if changed.is_err() {
                return Err(Error::new(
                    ErrorKind::ShutDown,
                    "the runtime of the client has ended, so nothing is observed any more",
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
    requests: Arc<Requests>,
    newest: watch::Sender<Option<Reading>>,
    silence: watch::Sender<Option<Instant>>,
    pace: Pace,
    /// When the last state was known.
    known_at: Option<Instant>,
}

impl Task {
    async fn run(mut self) {
        loop {
            let (reading, change) = self.read().await;
            self.newest.send_replace(Some(reading));
            self.next_request(change).await;
        }
    }

    /// Reads the name until the store replies. Returns the result, and the next change of it.
    async fn read(&mut self) -> (Reading, Option<NextChange>) {
        let context = &self.context;
        // Since when the store fails.
        let mut failing = None;
        loop {
            self.pace.count();
            let number = self.requests.begun.fetch_add(1, Ordering::SeqCst) + 1;
            let since = failing.unwrap_or_else(|| context.clock.now());
            let mut read = context.store.read(Query::Name {
                key: self.key.clone(),
                parts: self.parts.clone(),
                watch: true,
            });
            let read = tokio::select! {
                biased;
                read = &mut read => read,
                () = context.clock.sleep_until(since.after(SILENCE_MIN)) => {
                    self.report_silence(since);
                    read.await
                }
            };
            let now = context.clock.now();
            match read {
                Ok(page) => {
                    self.known_at = Some(now);
                    self.silence.send_replace(None);
                    let view = page.views.into_iter().next();
                    let view = view.unwrap_or_else(|| View::of(self.key.clone()));
                    let change = NextChange::of(page.changed, &view, now);
                    let result = Ok(Arc::new(view));
                    return (Reading { number, result }, Some(change));
                }
                Err(error) if error.is_transient() => {
                    let error = context.name_error(error, &self.key);
                    report(|| tracing::debug!(%error, "the state of a lock could not be observed"));
                    if now.since(since) >= SILENCE_MIN {
                        self.report_silence(since);
                    }
                    let since = *failing.get_or_insert(now);
                    let retry = contention::retry_after(now.since(since));
                    let retry = error.retry_after().map_or(retry, |after| after.max(retry));
                    context.clock.sleep_until(now.after(retry)).await;
                }
                Err(error) => {
                    let result = Err(context.name_error(error, &self.key));
                    return (Reading { number, result }, None);
                }
            }
        }
    }

    /// Reports that the store has failed since an instant, or for longer.
    fn report_silence(&self, since: Instant) {
        let since = self.known_at.unwrap_or(since);
        self.silence
            .send_if_modified(|silence| silence.replace(since) != Some(since));
    }

    /// Waits until the state has changed and an observer waits for that, or until a new one needs a reading.
    async fn next_request(&self, change: Option<NextChange>) {
        let changed = async {
            if let Some(change) = change {
                change.wait(&*self.context.clock).await;
            }
            self.requests.next.notified().await;
            self.pace.wait().await;
        };
        tokio::select! {
            biased;
            () = self.requests.at_once.notified() => {}
            () = changed => {}
        }
    }
}

/// Limits how often a name is read, by the generic cell rate algorithm.
///
/// A clock that a test has stopped does not stop it.
struct Pace {
    /// When the next reading would be due if all were [`READ_INTERVAL_MIN`] apart.
    due: tokio::time::Instant,
}

impl Pace {
    fn new() -> Self {
        let due = tokio::time::Instant::now();
        Self { due }
    }

    /// Counts a reading that begins now.
    fn count(&mut self) {
        let now = tokio::time::Instant::now();
        let due = self.due.max(now) + READ_INTERVAL_MIN;
        // New observers do not delay the next change for longer.
        self.due = due.min(now + READ_INTERVAL_MIN * READ_BURST);
    }

    /// Waits until the next reading may begin.
    async fn wait(&self) {
        let ahead = READ_INTERVAL_MIN * (READ_BURST - 1);
        if let Some(next) = self.due.checked_sub(ahead) {
            tokio::time::sleep_until(next).await;
        }
    }
}

/// The next change of a state that was read: whichever comes first.
struct NextChange {
    changed: Option<Changed>,
    until: Instant,
}

impl NextChange {
    fn of(changed: Option<Changed>, view: &View, now: Instant) -> Self {
        let poll = match changed {
            Some(_) => READ_INTERVAL_MAX,
            None => POLL_INTERVAL,
        };
        // The end of a lease is no push. A lease that was read an instant too early is read again.
        let left = view.holder.as_ref().map(|holder| holder.time_left);
        let left = left.map(|left| left + time::DRIFT_MIN);
        Self {
            changed,
            until: now.after(left.map_or(poll, |left| left.min(poll))),
        }
    }

    async fn wait(self, clock: &dyn Clock) {
        match self.changed {
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

#[cfg(all(test, not(feature = "__shuttle")))]
mod tests {
    use futures_util::FutureExt as _;
    use leasehold_core::LockEvent;

    use super::*;
    use crate::Client;
    use crate::clock::ManualClock;
    use crate::store::MemoryStore;

    const TTL: Duration = Duration::from_secs(30);

    /// The store does not push the end of a lease, and the clock of the client stands still.
    #[tokio::test]
    async fn a_new_observer_reads_at_once_for_all() {
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(Arc::new(clock.clone()));
        let builder = Client::builder()
            .ttl(TTL)
            .clock(Arc::new(ManualClock::new()));
        let client = builder.build(Arc::new(store)).unwrap();
        let mutex = client.mutex("a").unwrap();
        let guard = mutex.lock().await.unwrap();
        let lease = guard.lease_id();
        let mut first = mutex.events();
        assert_eq!(first.next().await.unwrap(), LockEvent::Held(lease));
        clock.advance(TTL);
        assert!(first.next().now_or_never().is_none());
        assert_eq!(mutex.events().next().await.unwrap(), LockEvent::Free);
        assert_eq!(first.next().await.unwrap(), LockEvent::Expired(lease));
    }
}
