//! The owners of locks, for re-entry.

use std::future::Future;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::OwnerId;

/// An owner of locks, which can enter a lock that it already holds.
///
/// Async tasks have no identity of their own, so ownership is explicit:
/// everything inside [`Owner::scope`] acts as this owner, or
/// [`LeaseOptions::owner`](crate::LeaseOptions::owner) binds a mutex to it. Without an owner, acquisitions exclude each
/// other, even in the same task. In the blocking API each thread is an owner.
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
    #[allow(clippy::new_without_default, reason = "no owner is the default")]
    #[must_use]
    pub fn new() -> Self {
        Self(fresh())
    }

    /// Runs a future as this owner. Tasks spawned inside do not inherit it.
    ///
    /// # Cancel safety
    ///
    /// As `work`.
    pub async fn scope<F: Future>(&self, work: F) -> F::Output {
        CURRENT.scope(self.0, work).await
    }

    pub(crate) fn id(&self) -> OwnerId {
        self.0
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
