//! Stores around other stores, for tests.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use leasehold_core::{ClientId, LeaseId};

use super::api::private::Sealed;
use super::api::{
    BoxFuture, Capabilities, ClientInfo, Key, Keyspace, Leftover, Listener, Page, Query, Reply,
    Request, Shard, Store,
};
use crate::Result;

/// A store around another one: a method forwards to it unless it is overridden here. Every such type is a
/// [`Store`]. For tests only; this is not part of the public API.
pub trait ForwardingStore: fmt::Display + fmt::Debug + Send + Sync + 'static {
    /// The store that is wrapped.
    fn inner(&self) -> &dyn Store;

    /// As [`Store::apply`].
    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        self.inner().apply(batch)
    }

    /// As [`Store::capabilities`].
    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }

    /// As [`Store::shard`].
    fn shard(&self, key: &Key) -> Shard {
        self.inner().shard(key)
    }

    /// As [`Store::listen`].
    fn listen(&self, space: &Keyspace, client: ClientId, listener: Weak<dyn Listener>) {
        self.inner().listen(space, client, listener);
    }

    /// As [`Store::read`].
    fn read(&self, query: Query) -> BoxFuture<'_, Result<Page>> {
        self.inner().read(query)
    }

    /// As [`Store::register_client`].
    fn register_client<'a>(
        &'a self,
        space: &'a Keyspace,
        client: ClientId,
        info: &'a ClientInfo,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        self.inner().register_client(space, client, info, ttl)
    }
}

impl<W: ForwardingStore> Sealed for W {}

/// A method that [`Store`] provides must be forwarded, too: its default would hide what the inner store
/// does.
#[deny(clippy::missing_trait_methods)]
#[doc(hidden)]
impl<W: ForwardingStore> Store for W {
    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        ForwardingStore::apply(self, batch)
    }

    fn capabilities(&self) -> Capabilities {
        ForwardingStore::capabilities(self)
    }

    fn shard(&self, key: &Key) -> Shard {
        ForwardingStore::shard(self, key)
    }

    fn leftover(&self, lease: LeaseId) -> Leftover {
        self.inner().leftover(lease)
    }

    fn listen(&self, space: &Keyspace, client: ClientId, listener: Weak<dyn Listener>) {
        ForwardingStore::listen(self, space, client, listener);
    }

    fn forget(&self, client: ClientId) {
        self.inner().forget(client);
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<Page>> {
        ForwardingStore::read(self, query)
    }

    fn register_client<'a>(
        &'a self,
        space: &'a Keyspace,
        client: ClientId,
        info: &'a ClientInfo,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        ForwardingStore::register_client(self, space, client, info, ttl)
    }
}
