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

/// Everybody can be reached.
fn apply(record: &mut Record, op: &Op, now: StoreTime) -> Outcome {
    super::apply(record, op, now, |_| true)
}

fn acquire(number: u64, count: u32) -> Op {
    Op::Acquire {
        lease: lease(number),
        count: NonZeroU32::new(count).unwrap(),
        ttl: ttl(1_000),
        tokens: TokenCount::MIN,
        wait: false,
    }
}

fn wait(number: u64) -> Op {
    Op::Acquire {
        lease: lease(number),
        count: NonZeroU32::MIN,
        ttl: ttl(10_000),
        tokens: TokenCount::MIN,
        wait: true,
    }
}

fn release(number: u64, count: u32) -> Op {
    Op::Release {
        lease: lease(number),
        count,
        ttl: ttl(1_000),
    }
}

fn enter(number: u64, count: u32) -> Op {
    Op::Enter {
        lease: lease(number),
        count: NonZeroU32::new(count).unwrap(),
        ttl: ttl(1_000),
    }
}

fn fence(number: u64, first: u64, tokens: u32) -> Op {
    Op::SetToken {
        lease: lease(number),
        first: Token::new(first).unwrap(),
        tokens: TokenCount::new(tokens).unwrap(),
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
            time_left: Duration::from_millis(600),
            queue_position: None,
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
    assert_eq!(
        apply(&mut record, &renew(1), at(1_000)),
        Outcome::Lost(Loss::Gone)
    );
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

#[test]
fn a_hold_enters_what_is_held_and_takes_nothing_else() {
    let mut record = Record::default();
    apply(&mut record, &acquire(1, 1), at(0));
    let count = NonZeroU32::new(3).unwrap();
    assert_eq!(
        apply(&mut record, &enter(1, 3), at(500)),
        Outcome::Entered { count }
    );
    assert_eq!(record.hold.unwrap().expires_at, at(1_500));
    let taken = Outcome::Lost(Loss::TakenOver);
    assert_eq!(apply(&mut record, &enter(2, 1), at(600)), taken);
    apply(&mut record, &release(1, 0), at(600));
    assert_eq!(
        apply(&mut record, &enter(1, 2), at(600)),
        Outcome::Lost(Loss::Gone)
    );
    assert_eq!(record.hold, None);
}

#[test]
fn a_chosen_token_is_written_only_by_the_holder_and_only_if_it_is_larger() {
    let mut record = Record::default();
    apply(&mut record, &acquire(1, 1), at(0));
    let far = START + 5_000_000;
    assert_eq!(
        apply(&mut record, &fence(2, far, 1), at(1)),
        Outcome::Lost(Loss::TakenOver)
    );
    assert_eq!(
        apply(&mut record, &fence(1, START, 2), at(1)),
        Outcome::Outdated
    );
    assert_eq!(
        apply(&mut record, &fence(1, far, 10), at(1)),
        Outcome::Fenced
    );
    // Asked again.
    assert_eq!(
        apply(&mut record, &fence(1, far, 10), at(1)),
        Outcome::Fenced
    );
    // One of those that were given out.
    assert_eq!(
        apply(&mut record, &fence(1, far + 9, 2), at(1)),
        Outcome::Outdated
    );
    let end = Token::MAX.get();
    assert_eq!(
        apply(&mut record, &fence(1, end, 2), at(1)),
        Outcome::Exhausted
    );
    assert_eq!(record.last_token.unwrap().get(), far + 9);
    // The next grant goes on behind it.
    apply(&mut record, &release(1, 0), at(2));
    let first = Token::new(far + 10).unwrap();
    assert_eq!(
        apply(&mut record, &acquire(2, 1), at(2)),
        Outcome::Granted { first }
    );
    apply(&mut record, &release(2, 0), at(3));
    assert_eq!(
        apply(&mut record, &fence(2, end, 1), at(3)),
        Outcome::Lost(Loss::Gone)
    );
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
        wait: false,
    };
    for late in [renew(1), acquire(1, 1), enter(1, 1), release(1, 1)] {
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
    assert_eq!(
        apply(&mut record, &release(2, 0), at(1)),
        Outcome::Lost(Loss::TakenOver)
    );
    assert_eq!(
        apply(&mut record, &renew(2), at(1)),
        Outcome::Lost(Loss::TakenOver)
    );
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
    assert_eq!(
        apply(&mut record, &renew(1), at(2)),
        Outcome::Lost(Loss::Gone)
    );
    assert_eq!(
        apply(&mut record, &Op::Revoke, at(3)),
        Outcome::Revoked { cut_off: None }
    );
}

#[test]
fn a_used_up_counter_grants_nothing() {
    let mut record = Record {
        last_token: Some(Token::MAX),
        ..Record::default()
    };
    assert_eq!(
        apply(&mut record, &acquire(1, 1), at(0)),
        Outcome::Exhausted
    );
    assert_eq!(record.hold, None);
}

fn queued(record: &Record) -> Vec<u64> {
    let waiters = record.queue.waiters();
    waiters.map(|waiter| waiter.lease.number).collect()
}

/// A record that 1 holds and for which 2, 3 and 4 wait.
fn contended() -> Record {
    let mut record = Record::default();
    apply(&mut record, &acquire(1, 1), at(0));
    for (position, number) in [2, 3, 4].into_iter().enumerate() {
        let refused = apply(&mut record, &wait(number), at(1));
        let expected = Outcome::Refused {
            time_left: Duration::from_millis(999),
            queue_position: u32::try_from(position).ok(),
        };
        assert_eq!(refused, expected);
    }
    record
}

#[test]
fn who_is_refused_waits_once_and_in_order() {
    let mut record = contended();
    let again = apply(&mut record, &wait(3), at(500));
    assert!(matches!(
        again,
        Outcome::Refused {
            queue_position: Some(1),
            ..
        }
    ));
    assert_eq!(queued(&record), [2, 3, 4]);
}

#[test]
fn the_release_grants_to_the_head_and_tells_it() {
    let mut record = contended();
    let mut told = Vec::new();
    let released = super::apply(&mut record, &release(1, 0), at(10), |notice| {
        told.push(*notice);
        true
    });
    assert_eq!(released, Outcome::Released { count: 0 });
    let first = Token::new(START + 10_000).unwrap();
    assert_eq!(
        told,
        [
            Notice::Granted(Grant {
                lease: lease(2),
                ttl: ttl(queue::ACCEPTANCE_MS),
                first,
                now: at(10),
            }),
            Notice::Next {
                lease: lease(3),
                ttl: ttl(queue::ACCEPTANCE_MS),
            }
        ]
    );
    assert_eq!(
        record.hold.unwrap().expires_at,
        at(10 + queue::ACCEPTANCE_MS)
    );
    assert_eq!(queued(&record), [3, 4]);
    // The question of the new holder is answered with its grant, and gives it all its ttl.
    assert_eq!(
        apply(&mut record, &wait(2), at(20)),
        Outcome::Granted { first }
    );
    assert_eq!(record.hold.unwrap().expires_at, at(10_020));
}

#[test]
fn a_head_that_cannot_be_reached_is_passed_over() {
    let mut record = contended();
    super::apply(&mut record, &release(1, 0), at(10), |notice| {
        notice.lease().number == 4
    });
    assert_eq!(record.hold.unwrap().lease, lease(4));
    assert_eq!(queued(&record), []);
    let mut record = contended();
    super::apply(&mut record, &release(1, 0), at(10), |_| false);
    assert_eq!((record.hold, queued(&record)), (None, vec![]));
}

#[test]
fn a_grant_is_notified_to_the_first_living_waiter_behind_it() {
    let mut record = contended();
    let mut notified = Vec::new();
    super::apply(&mut record, &release(1, 0), at(10), |notice| {
        let alive = notice.lease().number != 3;
        notified.extend(alive.then_some(notice.lease().number));
        alive
    });
    assert_eq!(notified, [2, 4]);
    assert_eq!(queued(&record), [4]);
}

#[test]
fn nobody_overtakes_the_queue() {
    let expired = at(1_000);
    for op in [wait(5), acquire(5, 1), wait(4), renew(1), release(1, 0)] {
        let mut record = contended();
        let outcome = apply(&mut record, &op, expired);
        assert!(
            matches!(outcome, Outcome::Refused { .. } | Outcome::Lost(_)),
            "{op:?}: {outcome:?}"
        );
        assert_eq!(record.hold.unwrap().lease, lease(2), "{op:?}");
    }
}

#[test]
fn the_head_that_asks_is_granted_at_once_for_its_ttl() {
    let mut record = contended();
    let granted = super::apply(&mut record, &wait(2), at(1_000), |_| unreachable!());
    assert!(matches!(granted, Outcome::Granted { .. }));
    assert_eq!(record.hold.unwrap().expires_at, at(11_000));
    // Those before the asker are gone: it is the head now.
    let mut record = contended();
    let granted = super::apply(&mut record, &wait(4), at(1_000), |_| false);
    assert!(matches!(granted, Outcome::Granted { .. }));
    assert_eq!(queued(&record), []);
}

#[test]
fn a_waiter_that_leaves_is_not_granted() {
    let mut record = contended();
    assert_eq!(
        apply(&mut record, &release(2, 0), at(5)),
        Outcome::Lost(Loss::TakenOver)
    );
    assert_eq!(queued(&record), [3, 4]);
    apply(&mut record, &Op::Revoke, at(6));
    assert_eq!(record.hold.unwrap().lease, lease(3));
}

#[test]
fn a_queue_that_nobody_asks_for_is_forgotten() {
    let mut record = contended();
    let granted = apply(&mut record, &acquire(5, 1), at(21_001));
    assert!(matches!(granted, Outcome::Granted { .. }));
    assert_eq!(record.queue, Queue::default());
    let mut record = contended();
    let refused = apply(&mut record, &acquire(5, 1), at(21_000));
    assert!(matches!(refused, Outcome::Refused { .. }));
}

fn any_op() -> impl Strategy<Value = Op> {
    let fields = (0_u64..4, 1_u32..4, 1_u64..2_000, 0_u8..12, any::<bool>());
    fields.prop_map(|(number, count, millis, kind, wait)| {
        let (lease, ttl) = (lease(number), ttl(millis));
        match kind {
            0..=5 => Op::Acquire {
                lease,
                count: NonZeroU32::new(count).unwrap(),
                ttl,
                // The requests of a lease always name the same number.
                tokens: TokenCount::new(u32::try_from(number).unwrap() + 1).unwrap(),
                wait,
            },
            6..=7 => Op::Renew { lease, ttl },
            8..=10 => Op::Release {
                lease,
                count: count - 1,
                ttl,
            },
            _ => Op::Revoke,
        }
    })
}

/// One of the leases can never be reached.
fn reachable(notice: &Notice) -> bool {
    notice.lease().number != 2
}

proptest! {
    /// An operation that is sent twice has the same effect and reply as one that is sent once.
    #[test]
    fn twice_is_once(history in prop::collection::vec((any_op(), 0_u64..1_500), 1..40)) {
        let mut record = Record::default();
        let mut now = 0;
        for (op, step) in history {
            now += step;
            let answer = super::apply(&mut record, &op, at(now), reachable);
            let mut again = record.clone();
            let repeated = super::apply(&mut again, &op, at(now), reachable);
            match op {
                // It speaks of no lease, so the second one cuts off whom the first one let in.
                Op::Revoke => continue,
                // The lock is not its own after the first; the second finds nothing to free.
                Op::Release { count: 0, .. } => prop_assert!(matches!(repeated, Outcome::Lost(_))),
                _ => prop_assert_eq!(repeated, answer),
            }
            prop_assert_eq!(&again, &record);
        }
    }

    /// A waiter is not the holder, waits once, and only while the lock is held.
    #[test]
    fn a_free_lock_has_no_queue(history in prop::collection::vec((any_op(), 0_u64..1_500), 1..40)) {
        let mut record = Record::default();
        let mut now = 0;
        for (op, step) in history {
            now += step;
            super::apply(&mut record, &op, at(now), reachable);
            let mut waiting = queued(&record);
            let holder = record.hold.map(|hold| hold.lease.number);
            prop_assert!(holder.is_some() || waiting.is_empty());
            prop_assert!(holder.is_none_or(|holder| !waiting.contains(&holder)));
            let all = waiting.len();
            waiting.sort_unstable();
            waiting.dedup();
            prop_assert_eq!(waiting.len(), all);
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
            let mut grants = Vec::new();
            let outcome = super::apply(&mut record, &op, at(now), |notice| {
                if let Notice::Granted(grant) = notice {
                    grants.push((grant.lease, grant.first));
                }
                reachable(notice)
            });
            if let (Outcome::Granted { first }, Op::Acquire { lease, .. }) = (outcome, &op)
                && (before != Some(*lease) || holder != Some(*lease))
            {
                grants.push((*lease, first));
            }
            for (lease, first) in grants {
                prop_assert!(first.get() > largest, "{first} after {largest}");
                largest = first.get();
                holder = Some(lease);
            }
            largest = largest.max(record.last_token.map_or(0, Token::get));
        }
    }
}
