//! The events of a lock, as an observer sees them.

use std::collections::VecDeque;
use std::sync::Arc;

use leasehold_core::lock_event::{self, LockEvent, LockState};
use leasehold_core::{Annotation, LeaderFilter, Slot};

use crate::Result;
use crate::driver::Driver;
use crate::driver::read::{Observer, Update};
use crate::store::{Feature, Key, Parts, View};

/// The events of a lock, one after the other. Made by [`Mutex::events`](crate::Mutex::events).
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let client = leasehold::Client::connect("memory:").await?;
/// use leasehold::LockEvent;
///
/// let mut events = client.mutex("orders/42")?.events();
/// # let _guard = client.mutex("orders/42")?.lock().await?;
/// match events.next().await? { // first the state of the lock, then each change
///     LockEvent::Held(lease) | LockEvent::Granted(lease) => println!("held by {}", lease.client),
///     LockEvent::Unobserved(time) => println!("unknown for {time:?}"),
///     event => println!("{event:?}"),
/// }
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct LockEvents {
    observer: Observer,
    /// `None`: the store keeps no completion records.
    completions: Option<Observer>,
    filter: LeaderFilter,
    state: Option<LockState>,
    /// Whether the store has failed since that state, and the last event says so.
    unobserved: bool,
    /// The last completion record. The outer `None`: it was not read yet.
    completion: Option<Option<Annotation>>,
    events: VecDeque<LockEvent>,
}

impl LockEvents {
    /// The events of a lock, with the completed runs that have this slot.
    pub(crate) fn new(driver: &Arc<Driver>, key: &Key, run: Slot) -> Self {
        let observer = |slot| Observer::new(Arc::clone(driver), key.clone(), Parts::State(slot));
        let kind = driver.context.store.capabilities().kind;
        Self {
            observer: observer(Slot::Value),
            completions: kind.has(Feature::Completions).then(|| observer(run)),
            filter: LeaderFilter::default(),
            state: None,
            unobserved: false,
            completion: None,
            events: VecDeque::new(),
        }
    }

    /// Waits for the next event. The first one is the state of the lock.
    ///
    /// Leases that come and go between two readings of the store are not reported. [`LockEvent::Unobserved`] reports a
    /// store that fails for more than three seconds, and [`LockEvent::Observed`] its next reply. While nothing changes, a
    /// failure is noticed at the next reading: after 10 s with Redis, 20 s with a file.
    ///
    /// # Errors
    ///
    /// As the store replies, and [`ErrorKind::ShutDown`](crate::ErrorKind::ShutDown) after a shutdown of the client.
    /// Transient errors are waited for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Result<LockEvent> {
        loop {
            // The first state is an event as soon as completions are observed, so that each later one is noticed.
            let observes_all = self.completions.is_none() || self.completion.is_some();
            if (observes_all || self.unobserved)
                && let Some(event) = self.events.pop_front()
            {
                return Ok(event);
            }
            let completion = async {
                match &mut self.completions {
                    Some(observer) => observer.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                update = self.observer.next_update() => match update? {
                    Update::Read(state) => self.handle_state(&state),
                    Update::Silence(time) => {
                        self.unobserved = true;
                        self.events.push_back(LockEvent::Unobserved(time));
                    }
                },
                completion = completion => {
                    let completion = completion?.annotation().cloned();
                    let event = lock_event::completed(self.completion.as_ref(), completion.as_ref());
                    self.completion = Some(completion);
                    self.events.extend(event);
                }
            }
        }
    }

    fn handle_state(&mut self, view: &View) {
        let holder = view.lease().map(|(lease, _)| lease);
        let changed = self.filter.handle(holder, view.annotation());
        let before = self.state.take();
        let last = before.as_ref().and_then(|state| state.leader.clone());
        let state = LockState {
            now: view.now.unwrap_or_default(),
            holders: view.leases().collect(),
            revoked: view.revoked,
            waiters: view.queue_length,
            leader: changed.unwrap_or(last),
        };
        if std::mem::take(&mut self.unobserved) {
            self.events.push_back(LockEvent::Observed);
        }
        self.events
            .extend(lock_event::events(before.as_ref(), &state));
        self.state = Some(state);
    }
}
