//! Readings of a store in one piece each.

use std::time::Duration;

use leasehold::store::{
    Changed, ClientInfo, Key, Keyspace, Page, Parts, Query, Store, View, WaiterInfo,
};
use leasehold::{Error, LeaseId};
use leasehold_core::{Annotation, AnnotationKind, LatchStatus, StoreTime, Token};

/// A lock that is held, and its waiters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeldLock {
    pub(crate) key: Key,
    pub(crate) lease: LeaseId,
    pub(crate) count: u32,
    pub(crate) time_left: Duration,
    pub(crate) token: Option<Token>,
    pub(crate) client: Option<ClientInfo>,
    pub(crate) waiters: Vec<WaiterInfo>,
}

/// What an observer of a name reads.
#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) now: StoreTime,
    pub(crate) holder: Option<(LeaseId, Duration)>,
    pub(crate) revoked: Option<LeaseId>,
    pub(crate) waiters: usize,
    pub(crate) annotation: Option<Annotation>,
    pub(crate) changed: Option<Changed>,
}

impl HeldLock {
    fn of(view: View) -> Option<Self> {
        let holder = view.holder?;
        Some(Self {
            key: view.key,
            lease: holder.lease,
            count: holder.count,
            time_left: holder.time_left,
            token: view.token,
            client: holder.client,
            waiters: view.waiters,
        })
    }
}

/// Readings of a store.
pub(crate) trait Readings {
    async fn inspect(&self, key: &Key) -> Result<Option<HeldLock>, Error> {
        self.inspect_with(key, Parts::Waiters).await
    }

    async fn inspect_with(&self, key: &Key, parts: Parts) -> Result<Option<HeldLock>, Error>;

    async fn held(&self, space: &Keyspace) -> Result<Vec<HeldLock>, Error>;

    async fn observe(&self, key: &Key, kind: &AnnotationKind) -> Result<Observation, Error>;

    async fn watch_latch(&self, key: &Key) -> Result<Option<LatchStatus>, Error>;

    async fn completions(
        &self,
        space: &Keyspace,
    ) -> Result<Vec<(Key, AnnotationKind, Annotation)>, Error>;
}

async fn name(
    store: &(impl Store + ?Sized),
    key: &Key,
    parts: Parts,
    watch: bool,
) -> Result<(View, Option<Changed>), Error> {
    let key = key.clone();
    let Page { views, changed, .. } = store.read(Query::Name { key, parts, watch }).await?;
    let [view] = <[View; 1]>::try_from(views).expect("a name has one view");
    Ok((view, changed))
}

impl<S: Store + ?Sized> Readings for S {
    async fn inspect_with(&self, key: &Key, parts: Parts) -> Result<Option<HeldLock>, Error> {
        let (view, _) = name(self, key, parts, false).await?;
        Ok(HeldLock::of(view))
    }

    async fn held(&self, space: &Keyspace) -> Result<Vec<HeldLock>, Error> {
        let page = self.read(Query::Names(space.clone())).await?;
        let held = page.views.into_iter().map(HeldLock::of);
        Ok(held.map(|held| held.expect("it is held")).collect())
    }

    async fn observe(&self, key: &Key, kind: &AnnotationKind) -> Result<Observation, Error> {
        let (view, changed) = name(self, key, Parts::State(kind.clone()), true).await?;
        Ok(Observation {
            now: view.now.expect("it was read"),
            holder: view.lease(),
            revoked: view.revoked,
            waiters: view.queue_length,
            annotation: view.annotation().cloned(),
            changed,
        })
    }

    async fn watch_latch(&self, key: &Key) -> Result<Option<LatchStatus>, Error> {
        let (view, _) = name(self, key, Parts::Latch, true).await?;
        Ok(view.latch)
    }

    async fn completions(
        &self,
        space: &Keyspace,
    ) -> Result<Vec<(Key, AnnotationKind, Annotation)>, Error> {
        let page = self.read(Query::Completions(space.clone())).await?;
        let views = page.views.into_iter().flat_map(|view| {
            let key = view.key;
            let annotations = view.annotations.into_iter();
            annotations.map(move |(kind, annotation)| (key.clone(), kind, annotation))
        });
        Ok(views.collect())
    }
}
