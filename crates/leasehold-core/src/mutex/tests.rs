//! The rule, case by case, and the properties that hold on every history.

use proptest::prelude::*;

use super::*;
use crate::id::ClientId;

const START: u64 = 1_000_000_000;

fn lease(number: u64) -> LeaseId {
    LeaseId {
        client: ClientId::from_random([7; 16]),
        number,
    }
}

fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).unwrap()
}

fn at(millis: u64) -> StoreTime {
    StoreTime::from_micros(START + millis * 1_000)
}

fn acquire(number: u64, count: u32) -> Op {
    Op::Acquire {
        lease: lease(number),
        count: NonZeroU32::new(count).unwrap(),
        ttl: ttl(1_000),
        tokens: TokenCount::MIN,
    }
}

fn release(number: u64, count: u32) -> Op {
    Op::Release {
        lease: lease(number),
        count,
        ttl: ttl(1_000),
    }
}

fn renew(number: u64) -> Op {
    Op::Renew {
        lease: lease(number),
        ttl: ttl(1_000),
    }
}

#[test]
fn a_free_lock_is_granted_and_a_held_one_refused_with_the_time_left() {
    let mut record = Record::default();
    let granted = apply(&mut record, &acquire(1, 1), at(0));
    assert!(matches!(granted, Outcome::Granted { first } if first.get() == START));
    assert_eq!(
        apply(&mut record, &acquire(2, 1), at(400)),
        Outcome::Refused {
            left: Duration::from_millis(600)
        }
    );
}

#[test]
fn a_lease_ends_exactly_at_its_ttl() {
    let mut record = Record::default();
    apply(&mut record, &acquire(1, 1), at(0));
    assert!(matches!(
        apply(&mut record.clone(), &acquire(2, 1), at(999)),
        Outcome::Refused { .. }
    ));
    assert!(matches!(
        apply(&mut record.clone(), &acquire(2, 1), at(1_000)),
        Outcome::Granted { .. }
    ));
    assert_eq!(apply(&mut record, &renew(1), at(1_000)), Outcome::Lost);
}

#[test]
fn counts_are_set_and_released_down_to_free() {
    let mut record = Record::default();
    let first = apply(&mut record, &acquire(1, 1), at(0));
    assert_eq!(apply(&mut record, &acquire(1, 2), at(1)), first);
    assert_eq!(record.hold.unwrap().count.get(), 2);
    let released = apply(&mut record, &release(1, 1), at(2));
    assert_eq!(released, Outcome::Released { count: 1 });
    assert_eq!(record.holder(at(2)).unwrap().count.get(), 1);
    apply(&mut record, &release(1, 0), at(3));
    assert_eq!(record.hold, None);
}

/// Two requests of one holder may run in the other order, or one of them much later. Whichever
/// runs last, the lease lasts as long as either promised.
#[test]
fn a_late_request_does_not_shorten_a_lease() {
    let long = Op::Acquire {
        lease: lease(1),
        count: NonZeroU32::new(2).unwrap(),
        ttl: ttl(5_000),
        tokens: TokenCount::MIN,
    };
    for late in [renew(1), acquire(1, 1), release(1, 1)] {
        let mut record = Record::default();
        apply(&mut record, &long, at(0));
        apply(&mut record, &late, at(100));
        assert_eq!(record.hold.unwrap().expires_at, at(5_000), "{late:?}");
    }
}

#[test]
fn a_stranger_changes_nothing() {
    let mut record = Record::default();
    apply(&mut record, &acquire(1, 1), at(0));
    let before = record.clone();
    assert_eq!(apply(&mut record, &release(2, 0), at(1)), Outcome::Lost);
    assert_eq!(apply(&mut record, &renew(2), at(1)), Outcome::Lost);
    assert_eq!(record, before);
}

#[test]
fn a_revoked_lease_is_named_and_gone() {
    let mut record = Record::default();
    apply(&mut record, &acquire(1, 1), at(0));
    let cut_off = Some(lease(1));
    assert_eq!(
        apply(&mut record, &Op::Revoke, at(1)),
        Outcome::Revoked { cut_off }
    );
    assert_eq!(apply(&mut record, &renew(1), at(2)), Outcome::Lost);
    assert_eq!(
        apply(&mut record, &Op::Revoke, at(3)),
        Outcome::Revoked { cut_off: None }
    );
}

#[test]
fn a_used_up_counter_grants_nothing() {
    let mut record = Record {
        hold: None,
        last_token: Some(Token::MAX),
    };
    assert_eq!(
        apply(&mut record, &acquire(1, 1), at(0)),
        Outcome::Exhausted
    );
    assert_eq!(record.hold, None);
}

fn any_op() -> impl Strategy<Value = Op> {
    (0_u64..3, 1_u32..4, 1_u64..2_000, 1_u32..5, 0_u8..10).prop_map(
        |(number, count, millis, tokens, kind)| {
            let (lease, ttl) = (lease(number), ttl(millis));
            match kind {
                0..=3 => Op::Acquire {
                    lease,
                    count: NonZeroU32::new(count).unwrap(),
                    ttl,
                    tokens: TokenCount::new(tokens).unwrap(),
                },
                4..=5 => Op::Renew { lease, ttl },
                6..=8 => Op::Release {
                    lease,
                    count: count - 1,
                    ttl,
                },
                _ => Op::Revoke,
            }
        },
    )
}

proptest! {
    /// Sending an operation twice leaves the record as sending it once, and answers alike.
    #[test]
    fn twice_is_once(history in prop::collection::vec((any_op(), 0_u64..1_500), 1..40)) {
        let mut record = Record::default();
        let mut now = 0;
        for (op, step) in history {
            now += step;
            let answer = apply(&mut record, &op, at(now));
            let mut again = record.clone();
            let repeated = apply(&mut again, &op, at(now));
            prop_assert_eq!(&again, &record);
            match op {
                // The lock is free after the first; the second finds nothing to free.
                Op::Release { count: 0, .. } => prop_assert_eq!(repeated, Outcome::Lost),
                Op::Revoke => prop_assert_eq!(repeated, Outcome::Revoked { cut_off: None }),
                _ => prop_assert_eq!(repeated, answer),
            }
        }
    }

    /// New holders get larger tokens, even if the clock jumps back or the counter is deleted.
    #[test]
    fn tokens_grow(history in prop::collection::vec((any_op(), 0_u64..5_000, any::<bool>()), 1..60)) {
        let mut record = Record::default();
        let mut largest = 0_u64;
        let mut now = 0;
        let mut holder = None;
        for (op, time, back) in history {
            // One of the two guards may fail at a time: the clock jumps back while the counter is
            // there, or the counter is deleted while the clock goes on.
            if back && record.last_token.is_some() {
                now = time;
            } else {
                now = now.max(largest.saturating_sub(START) / 1_000 + 1) + time;
                record.last_token = None;
            }
            let before = record.holder(at(now)).map(|hold| hold.lease);
            if let Outcome::Granted { first } = apply(&mut record, &op, at(now)) {
                let after = record.hold.unwrap().lease;
                if before != Some(after) || holder != Some(after) {
                    prop_assert!(first.get() > largest, "{first} after {largest}");
                }
                holder = Some(after);
                largest = largest.max(record.last_token.unwrap().get());
            }
        }
    }
}
