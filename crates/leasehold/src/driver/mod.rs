//! What keeps a client's leases alive: the only place that spawns and sleeps.
//!
//! ```text
//! Mutex::lock -> contender -> submitter -> store        one way down, one reply back up
//!                    |            ^
//!                  held <-- renewer                     a lease, looked after until it is released
//! ```

pub mod clock;
pub(crate) mod contender;
pub(crate) mod held;
pub(crate) mod hold;
pub(crate) mod owners;
mod release;
mod renewer;
pub(crate) mod submitter;

mod announcer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{ClientId, LeaseId};
use tokio::runtime::Handle;

use self::announcer::Announcer;
use self::clock::Clock;
use self::owners::Owners;
use self::release::Pending;
use self::renewer::Renewer;
use self::submitter::Submitter;
use crate::Error;
use crate::store::{About, Key, Space, Store};

/// One client's machinery. Lives as long as its client or any of its guards.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Handle,
    pub(crate) submitter: Submitter,
    pub(crate) renewer: Renewer,
    pub(crate) announcer: Announcer,
    pub(crate) owners: Owners,
    pending: Pending,
    client: ClientId,
    leases: AtomicU64,
}

impl Driver {
    pub(crate) fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        runtime: Handle,
        client: ClientId,
        space: Space,
        about: About,
    ) -> Self {
        Self {
            submitter: Submitter::new(Arc::clone(&store), runtime.clone()),
            renewer: Renewer::start(Arc::clone(&store), Arc::clone(&clock), &runtime),
            announcer: Announcer::new(space, client, about),
            owners: Owners::default(),
            pending: Pending::default(),
            leases: AtomicU64::new(1),
            store,
            clock,
            runtime,
            client,
        }
    }

    fn next_lease(&self) -> LeaseId {
        LeaseId {
            client: self.client,
            number: self.leases.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Waits between half of `span` and the whole of it, so that waiters do not march in step.
    async fn pause(&self, span: Duration) {
        let part = span.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.clock.sleep_until(self.clock.now().after(part)).await;
    }

    /// Adds to an error which lock and which store it is about.
    pub(crate) fn name_error(&self, error: Error, key: &Key) -> Error {
        error.for_lock(&key.name).at_store(&self.store)
    }
}
