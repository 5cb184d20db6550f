//! Single operations, below every client.

use std::num::NonZeroU32;

use leasehold::store::{Key, Keyspace, Reply, Request, Store};
use leasehold_core::{
    ClientId, LeaseId, Loss, Name, Op, Outcome, ScopeName, StoreTime, Token, TokenCount, Ttl,
};

use crate::fixture::{Fixture, fresh_name};

fn key() -> Key {
    let scope = |text| ScopeName::parse(text).unwrap();
    let name = Name::parse(&fresh_name("op")).unwrap();
    Keyspace::new(scope("leasehold"), scope("default")).key(name)
}

fn lease(number: u64) -> LeaseId {
    LeaseId {
        client: ClientId::from_random([3; 16]),
        number,
    }
}

fn ttl() -> Ttl {
    Ttl::from_millis(20_000).unwrap()
}

fn acquire(number: u64, count: u32) -> Op {
    Op::Acquire {
        lease: lease(number),
        count: NonZeroU32::new(count).unwrap(),
        ttl: ttl(),
        tokens: TokenCount::MIN,
        wait: false,
    }
}

fn release(number: u64, count: u32) -> Op {
    Op::Release {
        lease: lease(number),
        count,
        ttl: ttl(),
    }
}

fn renew(number: u64) -> Op {
    Op::Renew {
        lease: lease(number),
        ttl: ttl(),
    }
}

async fn apply(store: &dyn Store, key: &Key, ops: &[Op]) -> Vec<Outcome> {
    let batch = ops.iter().map(|op| Request::new(key.clone(), *op));
    let replies = store.apply(batch.collect()).await;
    assert_eq!(replies.len(), ops.len());
    let mut times = Vec::new();
    let outcomes = replies.into_iter().map(|reply| match reply {
        Reply::Applied { outcome, now } => {
            times.push(now);
            outcome
        }
        other => panic!("{other:?}"),
    });
    let outcomes = outcomes.collect();
    assert!(times.is_sorted() && times.iter().all(|now| *now > StoreTime::default()));
    outcomes
}

fn first_token(outcome: Outcome) -> Token {
    match outcome {
        Outcome::Granted { first } => first,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn the_same_operation_twice_equals_once(fixture: Fixture) {
    let (store, key) = (fixture.store().await, key());
    let count = async || {
        let entry = store.inspect(&key).await.unwrap();
        entry.map(|entry| entry.count)
    };
    let granted = apply(&*store, &key, &[acquire(1, 1), acquire(1, 1)]).await;
    assert_eq!(granted[0], granted[1], "the same grant, the same token");
    assert_eq!(count().await, Some(1));
    apply(&*store, &key, &[acquire(1, 2), acquire(1, 2)]).await;
    assert_eq!(count().await, Some(2));
    let renewed = apply(&*store, &key, &[renew(1), renew(1)]).await;
    assert_eq!(renewed, [Outcome::Renewed; 2]);
    let released = apply(&*store, &key, &[release(1, 1), release(1, 1)]).await;
    assert_eq!(released, [Outcome::Released { count: 1 }; 2]);
    assert_eq!(count().await, Some(1));
    let freed = apply(&*store, &key, &[release(1, 0), release(1, 0)]).await;
    assert_eq!(
        freed,
        [Outcome::Released { count: 0 }, Outcome::Lost(Loss::Gone)]
    );
    assert_eq!(count().await, None);
}

pub(super) async fn a_stranger_changes_nothing(fixture: Fixture) {
    let (store, key) = (fixture.store().await, key());
    apply(&*store, &key, &[acquire(1, 2)]).await;
    let strange = [acquire(2, 1), renew(2), release(2, 0), release(2, 1)];
    let answers = apply(&*store, &key, &strange).await;
    let Outcome::Refused {
        time_left: left, ..
    } = answers[0]
    else {
        panic!("{answers:?}");
    };
    assert!(left <= ttl().as_duration() && left.as_secs() >= 15);
    assert_eq!(answers[1..], [Outcome::Lost(Loss::TakenOver); 3]);
    let entry = store.inspect(&key).await.unwrap().unwrap();
    assert_eq!((entry.lease, entry.count), (lease(1), 2));
}

pub(super) async fn a_batch_is_answered_in_its_order(fixture: Fixture) {
    let store = fixture.store().await;
    let keys: Vec<_> = (0..300).map(|_| key()).collect();
    let batch = keys.iter().flat_map(|key| {
        [acquire(1, 1), acquire(2, 1), release(1, 0), Op::Revoke]
            .map(|op| Request::new(key.clone(), op))
    });
    let replies = store.apply(batch.collect()).await;
    assert_eq!(replies.len(), 1_200);
    for (at, reply) in replies.into_iter().enumerate() {
        let Reply::Applied { outcome, .. } = reply else {
            panic!("{reply:?}");
        };
        let expected = match at % 4 {
            0 => matches!(outcome, Outcome::Granted { .. }),
            1 => matches!(outcome, Outcome::Refused { .. }),
            2 => outcome == Outcome::Released { count: 0 },
            _ => outcome == Outcome::Revoked { cut_off: None },
        };
        assert!(expected, "{at}: {outcome:?}");
    }
}

pub(super) async fn tokens_grow_over_ten_thousand_grants_and_restarts_of_the_client(
    fixture: Fixture,
) {
    let key = key();
    let mut last = None;
    for restart in 0..10 {
        let store = fixture.store().await;
        for round in 0..10 {
            let numbers = (0..100).map(|number| restart * 1_000 + round * 100 + number);
            let ops: Vec<_> = numbers
                .flat_map(|number| [acquire(number, 1), release(number, 0)])
                .collect();
            let outcomes = apply(&*store, &key, &ops).await;
            for outcome in outcomes.into_iter().step_by(2) {
                let token = first_token(outcome);
                assert!(Some(token) > last, "{token} after {last:?}");
                last = Some(token);
            }
        }
    }
}
