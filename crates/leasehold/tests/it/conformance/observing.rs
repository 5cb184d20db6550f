//! Observing: the state of a name, and its next change.

use std::sync::Arc;
use std::time::Instant;

use leasehold::__private::store::Store;
use leasehold_core::{LeaseId, Outcome, Slot};
use leasehold_testkit::eventually_async;

use crate::fixture::{Fixture, fresh_name};
use crate::store_client::{
    StoreClient, TTL, acquire, applied, granted, is_refused, key, lease, release, renew, revoke,
    send, space, wait,
};
use crate::store_ext::{NOTICED_MAX, Observation, StoreExt as _, noticed};
use crate::waiters::SOON;

const KIND: Slot = Slot::Value;

/// What an observer reads: the holder, the number of waiters, and the text.
type Seen = (Option<LeaseId>, usize, Option<String>);

/// An observer of one name.
struct Observer {
    store: Arc<dyn Store>,
    name: String,
}

impl Observer {
    async fn new(fixture: &Fixture) -> Self {
        Self {
            store: fixture.store().await,
            name: fresh_name("observed"),
        }
    }

    async fn read(&self) -> (Seen, Observation) {
        let asked = Instant::now();
        let observation = self.store.observe(&key(&self.name), &KIND).await.unwrap();
        assert!(observation.changed.is_some());
        let time_left = observation.holder.map(|(_, time_left)| time_left);
        // The time may be that before a renewal that is read.
        let most = TTL + asked.elapsed();
        assert!(time_left.is_none_or(|time_left| time_left <= most));
        let text = observation.annotation.as_ref();
        let seen = (
            observation.holder.map(|(lease, _)| lease),
            observation.waiters,
            text.map(|annotation| annotation.text.to_string()),
        );
        (seen, observation)
    }

    /// Checks that a change is noticed, and that the name is read as expected after it.
    async fn notices(&self, change: impl AsyncFnOnce(), expected: Seen) {
        let (before, observation) = self.read().await;
        assert_ne!(before, expected);
        change().await;
        let mut changed = observation.changed.unwrap();
        let begun = Instant::now();
        loop {
            let noticed = tokio::time::timeout(NOTICED_MAX, changed).await;
            assert!(noticed.is_ok(), "{before:?} became {expected:?} unnoticed");
            let (seen, observation) = self.read().await;
            if seen == expected {
                return;
            }
            assert!(begun.elapsed() < NOTICED_MAX, "{seen:?}, not {expected:?}");
            changed = observation.changed.unwrap();
        }
    }
}

/// Made through the same store handle, and through another one.
pub(super) async fn each_change_of_holder_and_annotation_is_noticed(fixture: Fixture) {
    let mut observer = Observer::new(&fixture).await;
    for writer in [Arc::clone(&observer.store), fixture.store().await] {
        observer.name = fresh_name("observed");
        let (writer, name) = (&*writer, observer.name.as_str());
        let key = key(name);
        let write = async |number: u64, text: &str| {
            let written = writer.write_value(&key, number, text).await;
            assert_eq!(written.unwrap(), Ok(()));
        };
        let seen = |number: Option<u64>, text: Option<&str>| {
            (number.map(lease), 0, text.map(ToOwned::to_owned))
        };
        assert_eq!(observer.read().await.0, seen(None, None));
        let acquired = async || {
            granted(writer, acquire(name, 1)).await;
        };
        observer.notices(acquired, seen(Some(1), None)).await;
        let written = async || write(1, "one").await;
        observer.notices(written, seen(Some(1), Some("one"))).await;
        let written = async || write(1, "two").await;
        observer.notices(written, seen(Some(1), Some("two"))).await;
        let released = async || {
            applied(writer, release(name, 1)).await;
        };
        observer.notices(released, seen(None, Some("two"))).await;
        let removed = async || assert!(writer.remove_annotation(&key, &KIND).await.unwrap());
        observer.notices(removed, seen(None, None)).await;
        let acquired = async || {
            granted(writer, acquire(name, 2)).await;
        };
        observer.notices(acquired, seen(Some(2), None)).await;
        assert_eq!(observer.read().await.1.revoked, None);
        let revoked = async || {
            applied(writer, revoke(name)).await;
        };
        observer.notices(revoked, seen(None, None)).await;
        assert_eq!(observer.read().await.1.revoked, Some(lease(2)));
    }
}

pub(super) async fn each_change_of_the_queue_is_noticed(fixture: Fixture) {
    let mut observer = Observer::new(&fixture).await;
    for writer in [Arc::clone(&observer.store), fixture.store().await] {
        observer.name = fresh_name("observed");
        let name = observer.name.as_str();
        let waiter = StoreClient::unique(&writer).subscribed(&space());
        granted(&*writer, acquire(name, 1)).await;
        let holder = Some(lease(1));
        let joined = async || assert_eq!(waiter.wait(name, 7).await, 0);
        observer.notices(joined, (holder, 1, None)).await;
        let joined = async || assert!(is_refused(&send(&*writer, wait(name, 2)).await));
        observer.notices(joined, (holder, 2, None)).await;
        let left = async || {
            applied(&*writer, release(name, 2)).await;
        };
        observer.notices(left, (holder, 1, None)).await;
        let (_, observation) = observer.read().await;
        applied(&*writer, release(name, 1)).await;
        noticed(observation).await;
        // A grant that is not renewed expires after three seconds.
        assert_eq!(waiter.apply(renew(name, 7)).await, Outcome::Kept);
        let seen = (Some(waiter.lease(7)), 0, None);
        eventually_async(SOON, async || observer.read().await.0 == seen).await;
        waiter.granted(name, 7).await;
        let released = async || waiter.release(name, 7).await;
        observer.notices(released, (None, 0, None)).await;
    }
}

/// An observer that always reads again ends with the last change.
pub(super) async fn no_change_is_lost_in_a_storm(fixture: Fixture) {
    const CHANGES: u64 = 500;
    let (observer, writer) = (Observer::new(&fixture).await, fixture.store().await);
    let key = key(&observer.name);
    granted(&*writer, acquire(&observer.name, 1)).await;
    let writing = async {
        for number in 1..=CHANGES {
            // So many commits may take longer than a ttl on a slow disk.
            if number % 50 == 0 {
                applied(&*writer, renew(&observer.name, 1)).await;
            }
            let written = writer.write_value(&key, 1, &number.to_string()).await;
            assert_eq!(written.unwrap(), Ok(()));
        }
    };
    let observing = async {
        let mut last = 0;
        while last < CHANGES {
            let ((.., text), observation) = observer.read().await;
            let number = text.map_or(0, |text| text.parse().unwrap());
            assert!(number >= last, "{number} after {last}");
            last = number;
            if last < CHANGES {
                noticed(observation).await;
            }
        }
    };
    tokio::join!(writing, observing);
}

/// Each of many observers is notified, those of the same store handle and those of others.
pub(super) async fn every_observer_is_notified(fixture: Fixture) {
    let first = Observer::new(&fixture).await;
    let stores = [fixture.store().await, fixture.store().await];
    let (key, mut observations) = (key(&first.name), Vec::new());
    for nth in 0..60 {
        let observed = stores[nth % stores.len()].observe(&key, &KIND);
        observations.push(observed.await.unwrap());
    }
    granted(&*first.store, acquire(&first.name, 1)).await;
    for observation in observations {
        noticed(observation).await;
    }
}
