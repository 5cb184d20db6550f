//! Stores around other stores, for tests.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use leasehold_core::{Annotation, AnnotationKind, Arrival, ClientId, LatchStatus, LeaseId, Loss};

use super::api::private::Sealed;
use super::api::{
    BoxFuture, Capabilities, ClientInfo, Detail, Entry, Key, Keyspace, LatchObservation, Leftover,
    Listener, Observation, Reply, Request, Shard, Store,
};
use crate::{Durability, Result};

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

    /// As [`Store::inspect`].
    fn inspect<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>>> {
        self.inner().inspect(key)
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

    /// As [`Store::annotate`].
    fn annotate<'a>(
        &'a self,
        key: &'a Key,
        kind: &'a AnnotationKind,
        annotation: &'a Annotation,
        keep: Duration,
    ) -> BoxFuture<'a, Result<Result<(), Loss>>> {
        self.inner().annotate(key, kind, annotation, keep)
    }

    /// As [`Store::arrive`].
    fn arrive<'a>(
        &'a self,
        key: &'a Key,
        arrival: &'a Arrival,
    ) -> BoxFuture<'a, Result<LatchStatus>> {
        self.inner().arrive(key, arrival)
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

    fn check(&self, durability: Durability) -> BoxFuture<'_, Result<()>> {
        self.inner().check(durability)
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>>> {
        ForwardingStore::inspect(self, key)
    }

    fn inspect_with<'a>(
        &'a self,
        key: &'a Key,
        detail: Detail,
    ) -> BoxFuture<'a, Result<Option<Entry>>> {
        self.inner().inspect_with(key, detail)
    }

    fn list<'a>(&'a self, space: &'a Keyspace) -> BoxFuture<'a, Result<Vec<Entry>>> {
        self.inner().list(space)
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

    fn client_info<'a>(
        &'a self,
        space: &'a Keyspace,
        client: ClientId,
    ) -> BoxFuture<'a, Result<Option<ClientInfo>>> {
        self.inner().client_info(space, client)
    }

    fn annotate<'a>(
        &'a self,
        key: &'a Key,
        kind: &'a AnnotationKind,
        annotation: &'a Annotation,
        keep: Duration,
    ) -> BoxFuture<'a, Result<Result<(), Loss>>> {
        ForwardingStore::annotate(self, key, kind, annotation, keep)
    }

    fn remove_annotation<'a>(
        &'a self,
        key: &'a Key,
        kind: &'a AnnotationKind,
    ) -> BoxFuture<'a, Result<bool>> {
        self.inner().remove_annotation(key, kind)
    }

    fn completions<'a>(
        &'a self,
        space: &'a Keyspace,
    ) -> BoxFuture<'a, Result<Vec<(Key, AnnotationKind, Annotation)>>> {
        self.inner().completions(space)
    }

    fn observe<'a>(
        &'a self,
        key: &'a Key,
        kind: &'a AnnotationKind,
    ) -> BoxFuture<'a, Result<Observation>> {
        self.inner().observe(key, kind)
    }
    fn arrive<'a>(
        &'a self,
        key: &'a Key,
        arrival: &'a Arrival,
    ) -> BoxFuture<'a, Result<LatchStatus>> {
        ForwardingStore::arrive(self, key, arrival)
    }

    fn reset_latch<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<bool>> {
        self.inner().reset_latch(key)
    }

    fn observe_latch<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<LatchObservation>> {
        self.inner().observe_latch(key)
    }
}
