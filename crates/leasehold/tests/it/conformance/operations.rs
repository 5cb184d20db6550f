//! Single operations, below the driver, which are repeated after a lost reply.

use std::num::NonZeroU32;

use leasehold::__private::store::{Request, Store};
use leasehold_core::{Op, Outcome};

use crate::fixture::{Fixture, fresh_name};
use crate::readings::Readings as _;
use crate::store_client::{FREE, acquire, enter, key, outcome, release, renew};

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
