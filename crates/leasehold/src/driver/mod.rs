//! The driver of a client: acquires its locks, and keeps and releases its leases.
//!
//! ```text
//! Mutex::lock -> acquire::acquire -> Batcher::submit -> Store::apply       one way down, one reply back
//!                   ^          |            ^               |
//!                   |   ActiveLease <--- Renewer            |              a lease, renewed until its release
//!                   +--- handed off             events <----+              grants and changes, notified
//! ```

pub(crate) mod acquire;
mod active_lease;
pub(crate) mod batcher;
mod complete;
pub(crate) mod context;
mod convert;
mod events;
mod flush;
pub(crate) mod hold;
pub(crate) mod local_queue;
pub(crate) mod metrics;
mod presence;
mod primitives;
pub(crate) mod read;
mod reentry;
mod release;
mod renew;
mod request;
mod shares;
pub(crate) mod shutdown;
pub(crate) mod value;
#[cfg_attr(not(feature = "watchdog"), path = "watchdog_disabled.rs")]
pub(crate) mod watchdog;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::contention::Backoff;
use leasehold_core::record::LeaseKind;
use leasehold_core::{ClientId, Handoff, Instant, LeaseId, Slot};
use tokio::sync::{Notify, watch};

use self::acquire::Contender;
use self::acquire::wakeup::{LastReply, SharedAcquisition};
use self::active_lease::{ActiveLease, LostLeases};
use self::batcher::Batcher;
use self::context::AcquireOptions;
pub(crate) use self::context::Context;
use self::hold::Hold;
use self::local_queue::{Head, LocalQueues, QueueKind};
use self::presence::Presence;
use self::primitives::{Mutex, lock};
pub(crate) use self::primitives::{Runtime, has_timers, report};
use self::read::SharedReadings;
use self::reentry::ReentrySlots;
use self::release::Releases;
use self::renew::Renewer;
use self::shares::Shares;
use self::watchdog::WatchdogClient;
use crate::store::{ClientInfo, Event, Key, Keyspace, Listener, Listening};
use crate::{Error, ErrorKind, Result};

/// Of how many locks a client keeps the backoff. More are forgotten: a backoff is learned anew.
const BACKOFFS_MAX: usize = 4_096;

/// The driver of one client. It lives as long as the client or any of its guards.
pub(crate) struct Driver {
    pub(crate) context: Context,
    pub(crate) batcher: Batcher,
    pub(crate) renewer: Renewer,
    pub(crate) releases: Releases,
    pub(crate) presence: Presence,
    /// The readings of its observers.
    readings: SharedReadings,
    /// Keeps the leases alive while this process cannot.
    pub(crate) watchdog: WatchdogClient,
    pub(crate) reentry_slots: ReentrySlots,
    pub(crate) queues: Queues,
    pub(crate) shares: Shares,
    lost: Arc<LostLeases>,
    pub(crate) handoff: Handoff,
    /// How far requests for a lock are spread among those of other clients, where they are.
    backoffs: Mutex<HashMap<Key, Backoff>>,
    /// Whether the client was shut down, and no longer acquires locks.
    closed: AtomicBool,
    /// Wakes the observers when the client is shut down.
    closing: Notify,
    /// Changes when a connection of the store has broken, or a record has moved to another server: the last writes may
    /// be lost.
    interruptions: watch::Sender<()>,
    pub(crate) client: ClientId,
    leases: AtomicU64,
    this: Weak<Self>,
    /// `None` while this is dropped.
    listening: Option<Listening>,
}

/// The kind of the queues for leases.
pub(crate) struct LeaseQueues;

impl QueueKind for LeaseQueues {
    type Key = Key;
    type Info = AcquireOptions;
    type HeadState = HeadState;
    type Turn = Turn;
}

/// The state of the head of a queue.
#[derive(Clone)]
pub(crate) enum HeadState {
    Acquiring(Arc<SharedAcquisition>),
    Holding(Weak<ActiveLease>),
}

/// The turn of a waiting task.
pub(crate) enum Turn {
    /// It acquires the lock from now on: the lease before it was lost, or is one of several on the lock.
    Head(Head<LeaseQueues>),
    /// It goes on with an acquisition.
    Contend(Box<Contender>),
    /// It holds the lock: the lease was handed off.
    Hold(Hold),
    /// It has left the queue. It asks the store whether its run is complete.
    Ask,
}

/// The queues for each kind of lock: a name is used as one of them, and the store refuses the others.
#[derive(Default)]
pub(crate) struct Queues {
    mutexes: LocalQueues<LeaseQueues>,
    semaphores: LocalQueues<LeaseQueues>,
    rw_locks: LocalQueues<LeaseQueues>,
}

impl Queues {
    /// The queues for a kind of lock.
    pub(crate) const fn of(&self, kind: LeaseKind) -> &LocalQueues<LeaseQueues> {
        match kind {
            LeaseKind::Mutex => &self.mutexes,
            LeaseKind::Semaphore => &self.semaphores,
            LeaseKind::RwLock => &self.rw_locks,
        }
    }

    fn all(&self) -> [&LocalQueues<LeaseQueues>; 3] {
        [&self.mutexes, &self.semaphores, &self.rw_locks]
    }

    /// The states of the heads of all queues whose names `concerns` selects.
    fn head_states(&self, concerns: impl Fn(&Key) -> bool) -> Vec<HeadState> {
        let states = self.all().map(|queues| queues.head_states(&concerns));
        states.into_iter().flatten().collect()
    }

    /// The states of the heads of the queues for a name.
    pub(crate) fn heads(&self, key: &Key) -> impl Iterator<Item = HeadState> {
        let states = self.all().map(|queues| queues.head_state(key));
        states.into_iter().flatten()
    }

    /// The acquisitions of the heads of all queues.
    fn all_acquiring(&self) -> impl Iterator<Item = (Key, Arc<SharedAcquisition>)> {
        let heads = self.all().map(LocalQueues::all_heads);
        heads
            .into_iter()
            .flatten()
            .filter_map(|(key, head)| match head {
                HeadState::Acquiring(acquisition) => Some((key, acquisition)),
                HeadState::Holding(_) => None,
            })
    }

    /// The acquisition with this lease.
    pub(crate) fn acquiring(&self, key: &Key, lease: LeaseId) -> Option<Arc<SharedAcquisition>> {
        self.heads(key).find_map(|head| match head {
            HeadState::Acquiring(acquisition) => {
                let is_its = acquisition.lock().machine.lease() == Some(lease);
                is_its.then_some(acquisition)
            }
            HeadState::Holding(_) => None,
        })
    }
}

/// Shows the number of queues, which tests check.
impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues: usize = self.all().iter().map(|queues| queues.count()).sum();
        f.debug_struct("LocalQueues")
            .field("queues", &queues)
            .finish()
    }
}

impl HeadState {
    /// The last reply of the store. A lock that the head holds counts as a refusal.
    pub(crate) fn last_reply(&self) -> Option<LastReply> {
        match self {
            Self::Acquiring(acquisition) => acquisition.last_reply(),
            Self::Holding(_) => Some(LastReply::Refused),
        }
    }
}

impl Driver {
    pub(crate) fn start(
        context: Context,
        (client, space, info): (ClientId, Keyspace, ClientInfo),
        handoff: Handoff,
        watchdog: WatchdogClient,
    ) -> Arc<Self> {
        metrics::register();
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            batcher: Batcher::new(&context),
            renewer: Renewer::start(&context, &watchdog),
            releases: Releases::default(),
            presence: Presence::new(space.clone(), client, info),
            readings: SharedReadings::default(),
            watchdog,
            reentry_slots: ReentrySlots::default(),
            queues: Queues::default(),
            shares: Shares::default(),
            lost: Arc::default(),
            handoff,
            backoffs: Mutex::default(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            interruptions: watch::Sender::new(()),
            client,
            leases: AtomicU64::new(1),
            this: Weak::clone(this),
            listening: Some(context.store.listen(&space, client, this.clone())),
            context,
        })
    }

    /// Checks that locks can be acquired.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ShutDown`] after the client was shut down, [`ErrorKind::Unsupported`] in a fork of its
    /// process.
    pub(crate) fn check_open(&self, key: &Key) -> Result<()> {
        let checked = self.context.process.check();
        checked.map_err(|error| self.context.name_error(error, key))?;
        self.check_shutdown(key)
    }

    /// The same without the system call that detects a fork.
    pub(crate) fn check_shutdown(&self, key: &Key) -> Result<()> {
        match self.closed.load(Ordering::SeqCst) {
            false => Ok(()),
            true => {
                let error = Error::new(ErrorKind::ShutDown, "the client was shut down");
                Err(self.context.name_error(error, key))
            }
        }
    }

    /// From now on locks cannot be acquired, and the tasks in the queues get no turn.
    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
        for queues in self.queues.all() {
            queues.close();
        }
    }

    /// Waits until the client is shut down.
    pub(crate) async fn closed(&self) {
        // Subscribed before the flag is read: no shutdown falls between.
        let closing = self.closing.notified();
        if !self.closed.load(Ordering::SeqCst) {
            closing.await;
        }
    }

    /// A run of this slot was completed. The tasks that wait for one ask the store, together.
    pub(crate) fn notify_completed(&self, key: &Key, slot: &Slot) {
        let waits = |options: &AcquireOptions| {
            let run = options.run.as_ref();
            run.is_some_and(|run| run.unless.slot() == *slot)
        };
        for waiter in self.queues.mutexes.remove_if(key, waits) {
            // A task that was cancelled meanwhile needs no turn.
            drop(waiter.wake(Turn::Ask));
        }
    }

    /// The output of a future. `None`: this time passes before.
    pub(crate) async fn within<F: Future>(
        &self,
        timeout: Duration,
        future: F,
    ) -> Option<F::Output> {
        let clock = &self.context.clock;
        let end = clock.now().after(timeout);
        tokio::select! {
            biased;
            output = future => Some(output),
            () = clock.sleep_until(end) => None,
        }
    }

    /// Whether this process holds the mutex, as far as it knows.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.mutex_lease(key).is_some_and(|lease| {
            let now = self.context.clock.now();
            !lease.lock().lease.state(now).is_lost()
        })
    }

    /// The lease with which this process holds a mutex.
    fn mutex_lease(&self, key: &Key) -> Option<Arc<ActiveLease>> {
        match self.queues.mutexes.head_state(key)? {
            HeadState::Holding(lease) => lease.upgrade(),
            HeadState::Acquiring(_) => None,
        }
    }

    /// The last reply of the store to the head of a queue.
    pub(crate) fn last_reply(&self, kind: LeaseKind, key: &Key) -> Option<LastReply> {
        self.queues.of(kind).head_state(key)?.last_reply()
    }

    /// The error that the store replied last to those that wait for a lock, and when they give up unless it replies
    /// before.
    pub(crate) fn wait_status(&self, key: &Key) -> Option<(Error, Option<Instant>)> {
        self.queues.heads(key).find_map(|state| {
            let LastReply::Failed(error) = state.last_reply()? else {
                return None;
            };
            let gives_up_at = match state {
                HeadState::Acquiring(acquisition) => acquisition.lock().machine.gives_up_at(),
                HeadState::Holding(_) => None,
            };
            Some((error, gives_up_at))
        })
    }

    /// The backoff of earlier acquisitions of a lock.
    pub(crate) fn backoff(&self, key: &Key) -> Backoff {
        match self.context.idempotent {
            true => Backoff::default(),
            false => lock(&self.backoffs).get(key).copied().unwrap_or_default(),
        }
    }

    pub(crate) fn set_backoff(&self, key: &Key, backoff: Backoff) {
        let mut backoffs = lock(&self.backoffs);
        if backoff == Backoff::default() {
            backoffs.remove(key);
        } else if backoffs.get(key) != Some(&backoff) {
            if backoffs.len() >= BACKOFFS_MAX {
                backoffs.clear();
            }
            backoffs.insert(key.clone(), backoff);
        }
    }

    /// Notes that a lock is being released.
    pub(crate) fn note_release(&self, key: &Key) {
        if !self.context.idempotent {
            let mut backoff = self.backoff(key);
            backoff.released(self.context.clock.now());
            self.set_backoff(key, backoff);
        }
    }

    pub(crate) fn next_lease(&self) -> LeaseId {
        LeaseId {
            client: self.client,
            number: self.leases.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Leaks what this copy of the driver shares: its connections and tasks belong to the other process.
    fn detach(&mut self) {
        self.renewer.detach();
        self.presence.detach();
        let listening = self.listening.take();
        std::mem::forget((self.context.clone(), self.watchdog.clone(), listening));
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("client", &self.client)
            .field("queues", &self.queues)
            .field("shares", &self.shares)
            .finish_non_exhaustive()
    }
}

impl From<Head<LeaseQueues>> for Turn {
    fn from(head: Head<LeaseQueues>) -> Self {
        Self::Head(head)
    }
}

impl Listener for Driver {
    fn notify(&self, event: Event) {
        if let Some(driver) = self.this.upgrade() {
            events::dispatch(&driver, event);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.context.process.is_current() {
            return self.detach();
        }
        self.watchdog.close();
        drop(self.listening.take());
        flush::flush_releases(&self.context, self.releases.unconfirmed());
    }
}

#[cfg(test)]
mod tests;
