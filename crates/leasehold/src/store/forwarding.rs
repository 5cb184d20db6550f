//! Stores around other stores, for tests.

use std::fmt;
use std::sync::Weak;

use leasehold_core::ClientId;

use super::api::private::Sealed;
use super::api::{
    BoxFuture, Capabilities, Key, Keyspace, Listener, Listening, Page, Query, Reply, Request,
    Shard, Store,
};
use crate::Result;

/// A store around another one: a method forwards to it unless it is overridden here. Every such type is a
/// [`Store`]. For tests only; this is not part of the public API.
pub trait ForwardingStore: fmt::Display + fmt::Debug + Send + Sync + 'static {
    /// The store that is wrapped.
    fn inner(&self) -> &dyn Store;

    /// As [`Store::capabilities`].
    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }

    /// As [`Store::shard`].
    fn shard(&self, key: &Key) -> Shard {
        self.inner().shard(key)
    }

    /// As [`Store::apply`].
    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        self.inner().apply(batch)
    }

    /// As [`Store::read`].
    fn read(&self, query: Query) -> BoxFuture<'_, Result<Page>> {
        self.inner().read(query)
    }

    /// As [`Store::listen`].
    fn listen(&self, space: &Keyspace, client: ClientId, to: Weak<dyn Listener>) -> Listening {
        self.inner().listen(space, client, to)
    }
}

impl<W: ForwardingStore> Sealed for W {}

#[doc(hidden)]
impl<W: ForwardingStore> Store for W {
    fn capabilities(&self) -> Capabilities {
        ForwardingStore::capabilities(self)
    }

    fn shard(&self, key: &Key) -> Shard {
        ForwardingStore::shard(self, key)
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        ForwardingStore::apply(self, batch)
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<Page>> {
        ForwardingStore::read(self, query)
    }

    fn listen(&self, space: &Keyspace, client: ClientId, to: Weak<dyn Listener>) -> Listening {
        ForwardingStore::listen(self, space, client, to)
    }
}
