//! Operations below the driver: repeated after a lost reply, and more grants than the rule makes in one step.

use std::num::NonZeroU32;

use leasehold::__private::store::{Event, Request, Store};
use leasehold_core::{Notice, Op, Outcome};

use crate::fixture::{Fixture, fresh_name};
use crate::store_client::{
    FREE, StoreClient, TTL, acquire, enter, granted, key, lasting, outcome, permits, release,
    renew, space, wait,
};
use crate::store_ext::StoreExt as _;

/// An acquisition for so many holds.
fn acquire_times(name: &str, number: u64, holds: u32) -> Request {
    let mut request = acquire(name, number);
    if let Op::Acquire(acquire) = &mut request.op {
        acquire.count = NonZeroU32::new(holds).unwrap();
    }
    request
}

async fn apply<const N: usize>(store: &dyn Store, batch: [Request; N]) -> [Outcome; N] {
    let replies = store.apply(batch.into()).await;
    let outcomes: Vec<_> = replies.iter().filter_map(outcome).collect();
    outcomes
        .try_into()
        .unwrap_or_else(|_| panic!("{replies:?}"))
}

pub(super) async fn the_same_operation_twice_equals_once(fixture: Fixture) {
    let (store, name) = (fixture.store().await, fresh_name("op"));
    let twice = async |request: Request| apply(&*store, [request.clone(), request]).await;
    let count = async || {
        let entry = store.inspect(&key(&name)).await.unwrap();
        entry.map(|entry| entry.count)
    };
    let [first, second] = twice(acquire(&name, 1)).await;
    assert!(matches!(first, Outcome::Granted { .. }));
    assert_eq!(first, second, "the same grant, the same token");
    assert_eq!(count().await, Some(1));
    twice(acquire_times(&name, 1, 2)).await;
    assert_eq!(count().await, Some(2));
    assert_eq!(twice(renew(&name, 1)).await, [Outcome::Kept, Outcome::Kept]);
    assert_eq!(
        twice(enter(&name, 1, 1)).await,
        [Outcome::Kept, Outcome::Kept]
    );
    assert_eq!(count().await, Some(1));
    assert_eq!(twice(release(&name, 1)).await, [Outcome::Released, FREE]);
    assert_eq!(count().await, None);
}

/// The store goes on by itself. The waiters have the store handle of the holder, or
/// another one.
pub(super) async fn a_release_of_all_permits_serves_all_waiters(fixture: Fixture) {
    const WAITERS: u32 = 200;
    let (one, other) = (fixture.store().await, fixture.store().await);
    let [holder, near, far] =
        [&one, &one, &other].map(|store| StoreClient::unique(store).subscribed(&space()));
    for waiter in [near, far] {
        let name = fresh_name("permits");
        let all = permits(acquire(&name, 1), WAITERS, WAITERS);
        let all = lasting(all, TTL * 10);
        granted(&*holder.store, holder.own(all)).await;
        for number in 0..WAITERS {
            let request = permits(wait(&name, number.into()), 1, WAITERS);
            assert_eq!(waiter.join(request).await, number);
        }
        holder.release(&name, 1).await;
        let events = waiter.next_events(usize::try_from(WAITERS).unwrap()).await;
        for (number, event) in (0..).zip(events) {
            let lease = waiter.lease(number);
            let is_granted =
                matches!(&event, Event::Notice(_, Notice::Granted(grant)) if grant.lease == lease);
            assert!(is_granted, "{number}: {event:?}");
        }
    }
}
