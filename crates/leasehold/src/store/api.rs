//! The interface that every store implements. This file imports no store.

use std::fmt;
use std::pin::Pin;
use std::sync::Weak;

use leasehold_core::{ClientId, LeaseId, Loss, NewNote, Op, Outcome};

pub use super::capabilities::{Capabilities, Feature, StoreKind};
pub use super::event::{Event, EventScope, Listener, Listening, WakeupMode};
#[cfg(any(test, all(feature = "__fuzz", feature = "redis")))]
pub(crate) use super::key::fixture;
pub use super::key::{Key, Keyspace, Shard};
pub use super::request::{Reply, Request};
pub(crate) use super::request::{mismatch, unexpected};
pub use super::view::{
    Changed, ClientInfo, HolderInfo, Page, Parts, Query, Usage, View, WaiterInfo,
};
use crate::Result;

/// A boxed future. An allocation is cheap beside a round trip, and the store is chosen at run time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub(super) mod private {
    /// Keeps [`Store`](super::Store) from being implemented outside of this crate.
    pub trait Sealed {}
}

/// An open store, which several clients can share: see [`open`](super::open()), which has an example. Its `Display` is its
/// URL without a password.
///
/// This trait is sealed, and its methods are not a part of the public API.
// It applies batches of operations, each atomically and by the rule of `leasehold_core::record`, and returns a reply to
// each. It never waits for a lock, never renews and never retries: the client does that in the same way for every store.
pub trait Store: private::Sealed + fmt::Display + fmt::Debug + Send + Sync + 'static {
    /// What this store can do at this moment.
    #[doc(hidden)]
    fn capabilities(&self) -> Capabilities;

    /// The shard that keeps a record. Shards fail independently: renewals of different shards never
    /// share a batch and never wait for each other.
    #[doc(hidden)]
    fn shard(&self, key: &Key) -> Shard;

    /// Applies a batch in order, in as few round trips as possible. Returns one reply per request, in the
    /// same order, within the response timeout.
    ///
    /// A batch of only renewals contains each record at most once, and may be applied in any order. What the
    /// [kind of the store](Capabilities::kind) refuses is rejected.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not be applied, now or later. Treat it as [`Reply::Unknown`].
    #[doc(hidden)]
    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>>;

    /// Reads the state of names or clients. With `watch` in the query, the reader is registered before it is read, so that
    /// no change is missed. Otherwise nothing is changed.
    ///
    /// # Errors
    ///
    /// The store's error; [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for what this store does not keep,
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) for a name that is used otherwise.
    #[doc(hidden)]
    fn read(&self, query: Query) -> BoxFuture<'_, Result<Page>>;

    /// Subscribes a client to its events, for as long as the listener and the returned value live. A client has one
    /// subscription at a time. Only the leases of a client with a listener can wait in queues; other waiters are
    /// skipped.
    ///
    /// Does no I/O: the subscription travels with the next batch.
    #[doc(hidden)]
    fn listen(&self, space: &Keyspace, client: ClientId, listener: Weak<dyn Listener>)
    -> Listening;
}

#[doc(hidden)]
impl dyn Store {
    /// Applies one operation to a name.
    ///
    /// # Errors
    ///
    /// As the store replies. Without a reply it may have been applied, or may still be.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be applied, now or later.
    pub async fn request(&self, key: &Key, op: Op) -> Result<Outcome> {
        let request = Request::new(key.clone(), op);
        match self.apply(vec![request]).await.pop() {
            Some(Reply::Applied { outcome, .. }) => Ok(outcome),
            Some(Reply::Rejected(error) | Reply::Unknown(error)) => Err(error),
            None => Err(unexpected("no reply")),
        }
    }

    /// Writes a note. The inner error is the state of the lock if the lease does not hold it; nothing is written then.
    ///
    /// # Errors
    ///
    /// As [`request`](#method.request).
    ///
    /// # Cancel safety
    ///
    /// As [`request`](#method.request).
    pub async fn write_note(
        &self,
        key: &Key,
        lease: LeaseId,
        note: NewNote,
    ) -> Result<Result<(), Loss>> {
        match self.request(key, Op::WriteNote { lease, note }).await? {
            Outcome::Stored | Outcome::Outdated => Ok(Ok(())),
            Outcome::Lost(loss) => Ok(Err(loss)),
            other => Err(unexpected(&format!("{other:?}"))),
        }
    }

    /// Reads parts of the state of a name once.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn view(&self, key: &Key, parts: Parts) -> Result<View> {
        let query = Query::Name {
            key: key.clone(),
            parts,
            watch: false,
        };
        let page = self.read(query).await?;
        let view = page.views.into_iter().next();
        Ok(view.unwrap_or_else(|| View::of(key.clone())))
    }
}
