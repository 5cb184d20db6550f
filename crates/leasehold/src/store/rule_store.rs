//! The store over any backend.

use std::fmt;
use std::sync::{Arc, Weak};

use leasehold_core::ClientId;

use super::api::private::Sealed;
use super::api::{
    BoxFuture, Capabilities, Key, Keyspace, Listener, Listening, Page, Query, Reply, Request,
    Shard, Store, WakeupMode,
};
use super::backend::{Backend, ListenChange};
use super::hub::Hub;
use super::query::RunningQuery;
use super::work::Work;
use crate::Result;

/// A store that applies the rule in this process, to the records of a backend: [`MemoryStore`](super::MemoryStore) and,
/// with the features of their names, `SqliteStore` and `PostgresStore`.
#[derive(Debug)]
pub struct RuleStore<B> {
    backend: Arc<B>,
    hub: Arc<Hub>,
}

impl<B: Backend> RuleStore<B> {
    /// A store over a backend.
    #[doc(hidden)]
    #[must_use]
    pub fn over(backend: B) -> Self {
        Self::with_hub(backend, Arc::default())
    }

    /// A store over a backend that also notifies the clients of this process itself.
    #[doc(hidden)]
    #[must_use]
    pub fn with_hub(backend: B, hub: Arc<Hub>) -> Self {
        let backend = Arc::new(backend);
        Self { backend, hub }
    }

    /// The backend.
    #[doc(hidden)]
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.backend
    }

    async fn read_page(&self, query: Query) -> Result<Page> {
        self.capabilities().kind.check_query(&query, self)?;
        let key = match &query {
            Query::Name { key, .. } => Some(key.clone()),
            _ => None,
        };
        let query = RunningQuery::new(query);
        // Before it is read, so that no change in between is missed.
        let changed = query.watched().map(|key| self.hub.observe(key));
        let read = self.backend.read(query).await;
        let mut page = read.map_err(|error| {
            let error = match &key {
                Some(key) => error.for_lock(&key.name),
                None => error,
            };
            error.at_store(self)
        })?;
        let is_notified = self.capabilities().wakeup != WakeupMode::Nothing;
        page.changed = changed.filter(|_| is_notified);
        Ok(page)
    }
}

impl<B: Backend> Sealed for RuleStore<B> {}

impl<B: Backend> Store for RuleStore<B> {
    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    fn shard(&self, _key: &Key) -> Shard {
        Shard(0)
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        let kind = self.capabilities().kind;
        Box::pin(kind.apply(batch, self, move |batch| async move {
            let count = batch.len();
            if count == 0 {
                return Vec::new();
            }
            let transacted = self.backend.transact(Work::new(&self.hub, batch)).await;
            transacted.unwrap_or_else(|error| vec![Reply::Unknown(error); count])
        }))
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<Page>> {
        Box::pin(self.read_page(query))
    }

    fn listen(&self, _space: &Keyspace, client: ClientId, to: Weak<dyn Listener>) -> Listening {
        self.hub.add(client, to);
        self.backend.listen(ListenChange::Began(client));
        let (backend, hub) = (Arc::downgrade(&self.backend), Arc::downgrade(&self.hub));
        Listening::new(move || {
            if let (Some(backend), Some(hub)) = (backend.upgrade(), hub.upgrade()) {
                hub.remove(client);
                backend.listen(ListenChange::Ended(client));
            }
        })
    }
}

impl<B: Backend> fmt::Display for RuleStore<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backend.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Op;

    use super::*;
    use crate::store::api::StoreKind;
    use crate::store::api::fixture::key;
    use crate::{Error, ErrorKind};

    /// A backend that never replies.
    #[derive(Debug)]
    struct Silent;

    impl fmt::Display for Silent {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("silent:")
        }
    }

    impl Backend for Silent {
        fn capabilities(&self) -> Capabilities {
            Capabilities::new(StoreKind::Memory, WakeupMode::Grants)
        }

        async fn transact(&self, _: Work) -> Result<Vec<Reply>> {
            Err(Error::new(ErrorKind::Unreachable, "no reply"))
        }

        async fn read(&self, _: RunningQuery) -> Result<Page> {
            Err(Error::new(ErrorKind::Unreachable, "no reply"))
        }
    }

    #[tokio::test]
    async fn a_request_without_a_reply_names_its_lock() {
        let store = RuleStore::over(Silent);
        let requests = ["a", "b"].map(|name| Request::new(key(name), Op::Serve));
        let replies = store.apply(requests.to_vec()).await;
        let [Reply::Unknown(a), Reply::Unknown(b)] = replies.as_slice() else {
            panic!("{replies:?}");
        };
        assert_eq!(a.to_string(), r#"lock "a" at silent: no reply"#);
        assert_eq!((b.lock(), b.store()), (Some("b"), Some("silent:")));
    }
}
