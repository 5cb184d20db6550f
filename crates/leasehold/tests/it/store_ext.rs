//! What tests read and write in a store beside its locks.

use std::time::Duration;

use leasehold::__private::store::{
    ArrivalId, Changed, ClientInfo, Key, Keyspace, LatchCount, Loss, NewNote, Op, Outcome, Page,
    Parts, Query, Removal, Reply, Request, Store, View, WaiterInfo,
};
use leasehold::{Error, LeaseId};
use leasehold_core::{Annotation, LatchStatus, Slot, StoreTime, Token};

use crate::store_client::{TTL, lease};

/// How long annotations are kept, unless a test says otherwise.
pub(crate) const KEEP: Duration = Duration::from_secs(3_600);

/// How long a change may take to be noticed. Observers read again after a longer time anyway.
pub(crate) const NOTICED_MAX: Duration = Duration::from_secs(8);

/// A lock that is held, and its waiters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldLock {
    pub(crate) key: Key,
    pub(crate) lease: LeaseId,
    pub(crate) is_reserved: bool,
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
            is_reserved: holder.is_reserved,
            count: holder.count,
            time_left: holder.time_left,
            token: view.token,
            client: holder.client,
            waiters: view.waiters,
        })
    }
}

/// The state of one name.
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

/// An annotation by a lease of the client in the requests.
pub(crate) fn annotation(number: u64, text: &str) -> Annotation {
    Annotation {
        lease: lease(number),
        token: Token::new(number).unwrap(),
        text: text.into(),
    }
}

/// Waits for a change that the store notifies, or until it drops the observer, which reads again then.
#[track_caller]
pub(crate) fn noticed(observation: Observation) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let changed = observation.changed.expect("changes are notified");
        let changed = tokio::time::timeout(NOTICED_MAX, changed).await;
        assert!(changed.is_ok(), "no change was noticed, {caller}");
    }
}

pub(crate) fn write_note(slot: Slot, annotation: &Annotation, keep: Duration) -> Op {
    let note = NewNote {
        slot,
        token: annotation.token,
        number: 0,
        text: annotation.text.clone(),
        keep,
    };
    let lease = annotation.lease;
    Op::WriteNote { lease, note }
}

/// Readings of a store in one piece each, and operations on what a name has beside its lock.
pub(crate) trait StoreExt: Store {
    async fn inspect(&self, key: &Key) -> Result<Option<HeldLock>, Error> {
        self.inspect_with(key, Parts::Waiters).await
    }

    async fn inspect_with(&self, key: &Key, parts: Parts) -> Result<Option<HeldLock>, Error> {
        let (view, _) = name(self, key, parts, false).await?;
        Ok(HeldLock::of(view))
    }

    async fn held(&self, space: &Keyspace) -> Result<Vec<HeldLock>, Error> {
        let page = self.read(Query::Names(space.clone())).await?;
        let held = page.views.into_iter().map(HeldLock::of);
        Ok(held.map(|held| held.expect("it is held")).collect())
    }

    async fn observe(&self, key: &Key, kind: &Slot) -> Result<Observation, Error> {
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

    async fn completions(&self, space: &Keyspace) -> Result<Vec<(Key, Slot, Annotation)>, Error> {
        let page = self.read(Query::Completions(space.clone())).await?;
        let views = page.views.into_iter().flat_map(|view| {
            let key = view.key;
            let annotations = view.annotations.into_iter();
            annotations.map(move |(kind, annotation)| (key.clone(), kind, annotation))
        });
        Ok(views.collect())
    }

    async fn outcome(&self, key: &Key, op: Op) -> Result<Outcome, Error> {
        let request = Request::new(key.clone(), op);
        match self.apply(vec![request]).await.remove(0) {
            Reply::Applied { outcome, .. } => Ok(outcome),
            Reply::Rejected(error) | Reply::Unknown(error) => Err(error),
        }
    }

    /// The inner error is the state of the lock if the lease does not hold it.
    async fn annotate(
        &self,
        key: &Key,
        slot: &Slot,
        annotation: &Annotation,
        keep: Duration,
    ) -> Result<Result<(), Loss>, Error> {
        let op = write_note(slot.clone(), annotation, keep);
        match self.outcome(key, op).await? {
            Outcome::Stored => Ok(Ok(())),
            Outcome::Lost(loss) => Ok(Err(loss)),
            other => panic!("{other:?}"),
        }
    }

    /// Writes the value of a leader.
    async fn write_value(
        &self,
        key: &Key,
        number: u64,
        text: &str,
    ) -> Result<Result<(), Loss>, Error> {
        let annotation = annotation(number, text);
        self.annotate(key, &Slot::Value, &annotation, KEEP).await
    }

    async fn remove_annotation(&self, key: &Key, slot: &Slot) -> Result<bool, Error> {
        let removal = Op::Remove(Removal::Note(slot.clone()));
        let removed = self.outcome(key, removal).await?;
        Ok(removed == Outcome::Removed(true))
    }

    /// Arrives at a latch, which is kept for [`TTL`].
    async fn arrive(&self, key: &Key, id: &str, count: u32) -> Result<LatchStatus, Error> {
        let arrival = Op::Arrive {
            id: ArrivalId::parse(id).unwrap(),
            count: LatchCount::new(count).unwrap(),
            keep: TTL,
        };
        match self.outcome(key, arrival).await? {
            Outcome::Arrived(status) => Ok(status),
            other => panic!("{other:?}"),
        }
    }

    async fn reset_latch(&self, key: &Key) -> Result<bool, Error> {
        let removed = self.outcome(key, Op::Remove(Removal::Latch)).await?;
        Ok(removed == Outcome::Removed(true))
    }
}

impl<S: Store + ?Sized> StoreExt for S {}
