//! The owners of locks, for re-entry.

use std::future::Future;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::OwnerId;

/// An owner of locks, which may enter a lock again that it holds.
///
/// Tasks move between threads and have no identity of their own, so in async code ownership is explicit:
/// everything inside [`Owner::scope`] acts as this owner, or a mutex is bound to it with
/// [`LeaseOptions::owner`](crate::LeaseOptions::owner). Without an owner, acquisitions exclude each other, even in the
/// same task. The blocking API uses threads as owners.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use leasehold::{Client, Owner};
///
/// let client = Client::connect("memory:").await?;
/// let mutex = client.mutex("ledger")?;
/// Owner::new()
///     .scope(async {
///         let outer = mutex.lock().await?;
///         let inner = mutex.lock().await?; // the same lease, entered twice
///         assert_eq!(inner.lease_id(), outer.lease_id());
///         assert_eq!(mutex.inspect().await?.unwrap().count, 2);
///         inner.release().await?;
///         outer.release().await
///     })
///     .await?;
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(OwnerId);

tokio::task_local! {
    static CURRENT: OwnerId;
}

impl Owner {
    /// A new owner, different from every other.
    #[must_use]
    pub fn new() -> Self {
        Self(fresh())
    }

    /// Runs a future as this owner. Tasks spawned inside do not inherit it.
    ///
    /// # Cancel safety
    ///
    /// As the future itself.
    pub async fn scope<F: Future>(&self, work: F) -> F::Output {
        CURRENT.scope(self.0, work).await
    }

    pub(crate) fn id(&self) -> OwnerId {
        self.0
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self::new()
    }
}

/// The owner of the current scope.
pub(crate) fn current() -> Option<OwnerId> {
    CURRENT.try_with(|owner| *owner).ok()
}

fn fresh() -> OwnerId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    OwnerId(NonZeroU64::new(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap_or(NonZeroU64::MIN))
}
