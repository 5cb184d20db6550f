//! The rule by example. The checker in `leasehold-sim` observes it on random histories.

use super::*;
use crate::id::ClientId;

const START: u64 = 1_000_000_000;

/// Tokens ahead of the clock, and the last one.
const FAR: u64 = START + 5_000_000;
const END: u64 = Token::MAX.get();

const TTL: Ttl = Ttl::USER_MIN;

fn lease(number: u64) -> LeaseId {
    LeaseId {
        client: ClientId::from_random([7; 16]),
        number,
    }
}

fn at(millis: u64) -> StoreTime {
    StoreTime::from_micros(START + millis * 1_000)
}

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn acquire(lease: u64, count: u32, wait: bool) -> Op {
    Op::Acquire {
        lease: self::lease(lease),
        count: number(count),
        ttl: TTL,
        tokens: TokenCount::MIN,
        proposal: None,
        wait,
    }
}

fn enter(lease: u64, count: u32) -> Op {
    Op::Renew {
        lease: self::lease(lease),
        ttl: TTL,
        count: Some(number(count)),
    }
}

fn renew(lease: u64) -> Op {
    Op::Renew {
        lease: self::lease(lease),
        ttl: TTL,
        count: None,
    }
}

fn release(lease: u64) -> Op {
    Op::Release {
        lease: self::lease(lease),
        rest: None,
    }
}

fn release_after(lease: u64, rest: u64) -> Op {
    Op::Release {
        lease: self::lease(lease),
        rest: Ttl::from_millis(rest),
    }
}

fn set_token(lease: u64, first: u64, tokens: u32) -> Op {
    Op::SetToken {
        lease: self::lease(lease),
        first: token(first),
        tokens: number(tokens),
    }
}

fn granted(first: u64) -> Outcome {
    Outcome::Granted {
        first: token(first),
    }
}

fn refused(millis: u64, queue_position: Option<u32>) -> Outcome {
    Outcome::Refused {
        time_left: Duration::from_millis(millis),
        queue_position,
    }
}

fn revoked(lease: Option<u64>) -> Outcome {
    let lease = lease.map(self::lease);
    Outcome::Revoked { lease }
}

/// Every client can be reached. Times are milliseconds.
#[test]
fn each_operation_has_its_reply() {
    const TAKEN_OVER: Outcome = Outcome::Lost(Loss::TakenOver);
    const FREE: Outcome = Outcome::Lost(Loss::Free);
    let history = [
        (0, acquire(1, 1, false), granted(START)),
        // The same grant, with another count.
        (0, acquire(1, 2, false), granted(START)),
        (10, acquire(2, 1, false), refused(90, None)),
        // Other leases change nothing.
        (20, renew(2), TAKEN_OVER),
        (20, release(2), TAKEN_OVER),
        (20, enter(2, 1), TAKEN_OVER),
        (20, set_token(2, FAR, 1), TAKEN_OVER),
        (20, acquire(2, 1, false), refused(80, None)),
        (30, enter(1, 1), Outcome::Kept),
        (40, enter(1, 3), Outcome::Kept),
        (40, set_token(1, START, 2), Outcome::Outdated),
        (40, set_token(1, FAR, 10), Outcome::Stored),
        (40, set_token(1, FAR, 10), Outcome::Stored),
        (40, set_token(1, FAR + 9, 2), Outcome::Outdated),
        (40, set_token(1, END, 2), Outcome::Exhausted),
        (50, acquire(2, 1, true), refused(90, Some(0))),
        (50, acquire(3, 1, true), refused(90, Some(1))),
        (50, acquire(2, 1, true), refused(90, Some(0))),
        // A waiter leaves the queue.
        (60, release(3), TAKEN_OVER),
        (60, acquire(4, 1, true), refused(80, Some(1))),
        (70, release(1), Outcome::Released),
        (70, renew(1), TAKEN_OVER),
        // The release has granted it the lock.
        (80, acquire(2, 1, true), granted(FAR + 10)),
        (90, Op::Revoke, revoked(Some(2))),
        (100, Op::Revoke, revoked(Some(4))),
        (110, Op::Revoke, revoked(None)),
        (110, renew(4), FREE),
        (110, acquire(5, 1, false), granted(FAR + 12)),
        // Exactly at the end of its ttl.
        (210, renew(5), FREE),
        (210, enter(5, 1), FREE),
        (210, acquire(6, 1, false), granted(FAR + 13)),
        (220, set_token(6, END, 1), Outcome::Stored),
        (230, release(6), Outcome::Released),
        (230, enter(6, 1), FREE),
        (230, acquire(7, 1, false), Outcome::Exhausted),
    ];
    let mut record = Record::default();
    for (now, op, reply) in history {
        let outcome = apply(&mut record, &op, at(now), |_| true);
        assert_eq!(outcome, reply, "{op:?} at {now} ms");
    }
}

/// Every client can be reached. Times are milliseconds.
#[test]
fn a_minimum_hold_is_ended_by_time_or_by_an_operator_only() {
    const TAKEN: Outcome = Outcome::Lost(Loss::TakenOver);
    const FREE: Outcome = Outcome::Lost(Loss::Free);
    let history = [
        (0, acquire(1, 2, false), granted(START)),
        (10, release_after(2, 50), TAKEN),
        // Shorter than the lease, and whatever the hold count.
        (20, release_after(1, 50), Outcome::Released),
        // No late request of the lease that has ended changes it.
        (30, release_after(1, 90), TAKEN),
        (30, renew(1), TAKEN),
        (30, enter(1, 3), TAKEN),
        (30, release(1), TAKEN),
        (30, set_token(1, FAR, 1), TAKEN),
        (30, acquire(1, 1, false), refused(40, None)),
        (40, acquire(2, 1, true), refused(30, Some(0))),
        (69, acquire(3, 1, true), refused(1, Some(1))),
        // Exactly at its end, the queue is served.
        (70, acquire(3, 1, true), refused(100, Some(0))),
        (80, release_after(2, 1_000), Outcome::Released),
        (90, acquire(3, 1, true), refused(990, Some(0))),
        (90, Op::Revoke, revoked(Some(0))),
        (100, release_after(3, 500), Outcome::Released),
        (599, acquire(4, 1, false), refused(1, None)),
        (600, release_after(3, 500), FREE),
        (600, acquire(4, 1, false), granted(START + 600_000)),
    ];
    let mut record = Record::default();
    let mut notices = Vec::new();
    for (now, op, reply) in history {
        let outcome = apply(&mut record, &op, at(now), |notice| {
            notices.push((now, *notice));
            true
        });
        assert_eq!(outcome, reply, "{op:?} at {now} ms");
    }
    let next = notices
        .into_iter()
        .filter_map(|(now, notice)| match notice {
            Notice::Next { lease, ttl } => Some((now, lease.number, ttl.as_millis())),
            _ => None,
        });
    let expected = [(70, 3, 100), (80, 3, 1_000)];
    assert_eq!(next.collect::<Vec<_>>(), expected);
}

#[test]
fn the_first_living_waiter_behind_a_minimum_hold_is_notified() {
    let mut record = Record::default();
    for lease in 1..=4 {
        apply(&mut record, &acquire(lease, 1, lease > 1), at(0), |_| true);
    }
    let mut notified = Vec::new();
    apply(&mut record, &release_after(1, 70), at(10), |notice| {
        notified.push(notice.lease().number);
        notice.lease() == lease(3)
    });
    assert_eq!(notified, [2, 3]);
    let waiters = record.queue.waiters().map(|waiter| waiter.lease.number);
    assert_eq!(waiters.collect::<Vec<_>>(), [3, 4]);
}

#[test]
fn a_request_of_the_head_is_granted_without_a_notice() {
    let mut record = Record::default();
    apply(&mut record, &acquire(1, 1, false), at(0), |_| true);
    apply(&mut record, &acquire(2, 1, true), at(0), |_| true);
    let outcome = apply(
        &mut record,
        &acquire(2, 1, true),
        at(100),
        |_| unreachable!(),
    );
    assert_eq!(outcome, granted(START + 100_000));
}

#[test]
fn a_proposal_that_is_behind_the_clock_or_the_counter_is_not_taken() {
    let now = StoreTime::from_micros(1_000);
    for (last, proposal, first) in [
        (None, 1_000, 1_000),
        (None, 2_000, 2_000),
        (None, 999, 1_000),
        (Some(500), 600, 1_000),
        (Some(3_000), 3_000, 3_001),
        (Some(3_000), 3_001, 3_001),
    ] {
        let mut record = Record {
            last_token: last.map(token),
            ..Record::default()
        };
        let mut op = acquire(1, 1, false);
        if let Op::Acquire { proposal: own, .. } = &mut op {
            *own = Some(token(proposal));
        }
        let granted = apply(&mut record, &op, now, |_| true);
        let first = token(first);
        assert_eq!(granted, Outcome::Granted { first }, "{last:?}, {proposal}");
    }
}
