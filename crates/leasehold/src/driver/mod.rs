//! What keeps a client's leases alive: the only place that spawns and sleeps.
//!
//! ```text
//! Mutex::lock -> line -> contender -> batcher -> store     one way down, one reply back up
//!                  ^         |            ^          |
//!                  |       held <---- renewer        |       a lease, looked after until its release
//!                  +---- handed off          listener       grants and changes come by themselves
//! ```

mod acquisition;
pub(crate) mod active_lease;
pub(crate) mod batcher;
pub mod clock;
pub(crate) mod contender;
mod events;
mod flush;
mod handoff;
pub(crate) mod hold;
pub(crate) mod local_queue;
pub(crate) mod reentry;
mod release;
mod renewer;
mod sync;
mod wakeup;
#[cfg_attr(not(feature = "watchdog"), path = "watchdog_disabled.rs")]
pub(crate) mod watchdog;

mod presence;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::contention::Backoff;
use leasehold_core::{ClientId, Handoff, LeaseId};

pub(crate) use self::acquisition::Terms;
use self::batcher::Batcher;
use self::clock::Clock;
use self::contender::MutexQueues;
use self::local_queue::LocalQueues;
use self::presence::Presence;
use self::reentry::Reentries;
use self::release::PendingReleases;
use self::renewer::Renewer;
use self::sync::Mutex;
pub(crate) use self::sync::{Runtime, report};
use self::watchdog::WatchdogClient;
use crate::process::Process;
use crate::store::{ClientInfo, EventScope, Key, Keyspace, Shard, Store};
use crate::{Durability, Error, ErrorKind, Result};

/// One client's machinery. Lives as long as its client or any of its guards.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Runtime,
    pub(crate) batcher: Batcher,
    pub(crate) renewer: Renewer,
    pub(crate) presence: Presence,
    /// Who looks after the leases while this process cannot.
    pub(crate) watch: WatchdogClient,
    pub(crate) reentries: Reentries,
    pub(crate) queues: LocalQueues<MutexQueues>,
    pub(crate) handoff: Handoff,
    me: Weak<Self>,
    pub(crate) pending: PendingReleases,
    /// How far requests for a lock are spread among those of other clients, if at all.
    backoffs: Mutex<HashMap<Key, Backoff>>,
    /// Whether the client was shut down: nobody takes a lock any more.
    closed: AtomicBool,
    client: ClientId,
    leases: AtomicU64,
    pub(crate) process: Process,
}

impl Driver {
    pub(crate) fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        runtime: Runtime,
        (client, space, about): (ClientId, Keyspace, ClientInfo),
        handoff: Handoff,
        watch: WatchdogClient,
    ) -> Arc<Self> {
        let driver = Arc::new_cyclic(|me: &Weak<Self>| Self {
            batcher: Batcher::new(Arc::clone(&store), runtime.clone()),
            renewer: Renewer::start(
                Arc::clone(&store),
                Arc::clone(&clock),
                &runtime,
                watch.clone(),
            ),
            watch,
            presence: Presence::new(space.clone(), client, about),
            reentries: Reentries::default(),
            queues: LocalQueues::default(),
            handoff,
            me: Weak::clone(me),
            pending: PendingReleases::default(),
            backoffs: Mutex::default(),
            closed: AtomicBool::new(false),
            leases: AtomicU64::new(1),
            store,
            clock,
            runtime,
            client,
            process: Process::current(),
        });
        let listener: Weak<Self> = Arc::downgrade(&driver);
        driver.store.listen(&space, client, listener);
        driver
    }

    /// Whether anything may still be begun.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ShutDown`] after the client was shut down, [`ErrorKind::Unsupported`] in a fork of its
    /// process.
    pub(crate) fn open(&self, key: &Key) -> Result<()> {
        self.process
            .check()
            .map_err(|error| self.name_error(error, key))?;
        match self.closed.load(Ordering::SeqCst) {
            false => Ok(()),
            true => {
                let error = Error::new(ErrorKind::ShutDown, "the client was shut down");
                Err(self.name_error(error, key))
            }
        }
    }

    /// Lets nothing end with this copy of the driver: its connections and tasks belong to the other process.
    fn keep_all(&mut self) {
        self.renewer.keep();
        self.presence.keep();
        let shared = (
            Arc::clone(&self.store),
            self.watch.clone(),
            self.runtime.clone(),
        );
        std::mem::forget(shared);
    }

    fn next_lease(&self) -> LeaseId {
        LeaseId {
            client: self.client,
            number: self.leases.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Between half of `span` and the whole of it, so that waiters do not march in step.
    fn part_of(&self, span: Duration) -> Duration {
        span.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// A random part of `span`.
    fn random_part_of(&self, span: Duration) -> Duration {
        span.mul_f64(fastrand::f64())
    }

    /// Adds to an error which lock and which store it is about.
    pub(crate) fn name_error(&self, error: Error, key: &Key) -> Error {
        error.for_lock(&key.name).at_store(&self.store)
    }
}

/// Which way operations go to the store. What is waited for on one does not delay the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Route {
    shard: Shard,
    /// Whether replicas are waited for.
    replicated: bool,
}

impl Route {
    /// Where most operations of most stores go.
    const FIRST: Self = Self {
        shard: Shard(0),
        replicated: false,
    };

    fn of(store: &Arc<dyn Store>, key: &Key, durability: Durability) -> Self {
        Self {
            shard: shard_of(store, key),
            replicated: durability.is_replicated(),
        }
    }
}

/// Whether an event of this reach concerns a record.
fn concerns(store: &Arc<dyn Store>, reach: &EventScope, key: &Key) -> bool {
    match reach {
        EventScope::Store => true,
        EventScope::Shard(shard) => shard_of(store, key) == *shard,
        EventScope::Record(record) => key == record,
    }
}

/// The shard of a record. Should the store panic there, it may do so again when it is asked for more.
fn shard_of(store: &Arc<dyn Store>, key: &Key) -> Shard {
    catch_unwind(AssertUnwindSafe(|| store.shard(key))).unwrap_or(Shard(0))
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return self.keep_all();
        }
        self.watch.close();
        self.store.forget(self.client);
        let left = self.pending.left().into_iter();
        flush::say(&self.store, left.map(|(release, _)| release).collect());
    }
}
