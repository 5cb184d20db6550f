//! Single operations, below the driver.

use std::num::NonZeroU32;

use leasehold::__private::store::{Request, Store};
use leasehold_core::{Op, Outcome};

use crate::fixture::{Fixture, fresh_name};
use crate::readings::Readings as _;
use crate::store_client::{
    FREE, TAKEN_OVER, TTL, acquire, enter, key, lease, outcome, release, renew, revoke, words,
};

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

/// Through the same store handle, and through another one.
pub(super) async fn another_lease_changes_nothing(fixture: Fixture) {
    let (store, name) = (fixture.store().await, fresh_name("op"));
    let [granted] = apply(&*store, [acquire_times(&name, 1, 2)]).await;
    for other in [&store, &fixture.store().await] {
        let batch = [
            acquire(&name, 2),
            renew(&name, 2),
            release(&name, 2),
            enter(&name, 2, 1),
        ];
        let [refused, lost @ ..] = apply(&**other, batch).await;
        let Outcome::Refused {
            time_left: Some(time_left),
            ..
        } = refused
        else {
            panic!("{refused:?}");
        };
        assert!(time_left <= TTL && time_left > TTL / 2, "{time_left:?}");
        assert_eq!(lost, [TAKEN_OVER; 3]);
        let entry = other.inspect(&key(&name)).await.unwrap().unwrap();
        assert_eq!((entry.lease, entry.count), (lease(1), 2));
        let first = entry.token.unwrap();
        assert_eq!(granted, Outcome::Granted { first, run: None });
    }
}

pub(super) async fn the_replies_to_a_batch_are_in_its_order(fixture: Fixture) {
    let store = fixture.store().await;
    let names: Vec<_> = (0..300).map(|_| fresh_name("op")).collect();
    let batch = names.iter().flat_map(|name| {
        [
            acquire(name, 1),
            acquire(name, 2),
            release(name, 1),
            revoke(name),
        ]
    });
    let replies = store.apply(batch.collect()).await;
    assert_eq!(replies.len(), 4 * names.len());
    for replies in replies.chunks(4) {
        assert_eq!(words(replies), "granted refused released revoked");
    }
}

pub(super) async fn tokens_grow_over_ten_thousand_grants_and_restarts_of_the_client(
    fixture: Fixture,
) {
    let name = fresh_name("op");
    let (mut last, mut last_time) = (None, None);
    for _ in 0..10 {
        let store = fixture.store().await;
        for _ in 0..5 {
            let rounds = (0..200).flat_map(|n| [acquire(&name, n), release(&name, n)]);
            for reply in store.apply(rounds.collect()).await {
                let leasehold::__private::store::Reply::Applied { outcome, now } = reply else {
                    panic!("{reply:?}");
                };
                if now.is_some() {
                    assert!(now >= last_time, "{now:?} after {last_time:?}");
                    last_time = now;
                }
                if let Outcome::Granted { first, .. } = outcome {
                    assert!(Some(first) > last, "{first} after {last:?}");
                    last = Some(first);
                } else {
                    assert_eq!(outcome, Outcome::Released);
                }
            }
        }
    }
}
