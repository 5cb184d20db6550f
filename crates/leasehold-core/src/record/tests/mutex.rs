//! The rule of a mutex by example.

use std::time::Duration;

use super::*;
use crate::token::Token;

/// Tokens ahead of the clock, and the last one.
const FAR: u64 = START + 5_000_000;
const END: u64 = Token::MAX.get();

const TTL: Ttl = Ttl::USER_MIN;

fn at(millis: u64) -> StoreTime {
    StoreTime::from_micros(START + millis * 1_000)
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn acquire(lease: u64, count: u32, wait: bool) -> Op {
    Op::Acquire(Acquire {
        count: number(count),
        wait,
        ..Acquire::mutex(self::lease(lease), TTL)
    })
}

fn enter(lease: u64, count: u32) -> Op {
    Op::Renew {
        lease: self::lease(lease),
        ttl: TTL,
        count: Some(number(count)),
    }
}

fn renew(lease: u64) -> Op {
    Op::renew(self::lease(lease), TTL)
}

fn release(lease: u64) -> Op {
    Op::release(self::lease(lease))
}

fn release_after(lease: u64, rest: u64) -> Op {
    Op::Release {
        lease: self::lease(lease),
        rest: Ttl::from_millis(rest),
        note: None,
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
    Outcome::granted(token(first))
}

fn refused(millis: u64, queue_position: Option<u32>) -> Outcome {
    Outcome::Refused {
        time_left: Some(Duration::from_millis(millis)),
        queue_position,
    }
}

fn revoked(lease: Option<u64>) -> Outcome {
    Outcome::Revoked(lease.map(self::lease).into_iter().collect())
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
        (90, Op::Revoke(Whom::All), revoked(Some(2))),
        (100, Op::Revoke(Whom::All), revoked(Some(4))),
        (110, Op::Revoke(Whom::All), revoked(None)),
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
    let mut world = World::new();
    for (now, op, reply) in history {
        world.now = at(now);
        assert_eq!(world.apply(&op).outcome, reply, "{op:?} at {now} ms");
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
        (90, Op::Revoke(Whom::All), revoked(Some(2))),
        (100, release_after(3, 500), Outcome::Released),
        (599, acquire(4, 1, false), refused(1, None)),
        (600, release_after(3, 500), FREE),
        (600, acquire(4, 1, false), granted(START + 600_000)),
    ];
    let mut world = World::new();
    let mut notices = Vec::new();
    for (now, op, reply) in history {
        world.now = at(now);
        let applied = world.apply(&op);
        assert_eq!(applied.outcome, reply, "{op:?} at {now} ms");
        notices.extend(applied.notices.into_iter().map(|notice| (now, notice)));
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
    let mut world = World::new();
    for lease in 1..=4 {
        world.apply(&acquire(lease, 1, lease > 1));
    }
    world.alive[2] = false;
    let (next, ttl) = (lease(3), millis(70));
    let notices = world.apply(&release_after(1, 70)).notices;
    assert_eq!(notices, [Notice::Next { lease: next, ttl }]);
    let waiters = world.waiters();
    let waiters = waiters.iter().map(|waiter| waiter.lease.number);
    assert!(waiters.eq([3, 4]));
}

#[test]
fn a_request_of_the_head_is_granted_without_a_notice() {
    let mut world = World::new();
    world.apply(&acquire(1, 1, false));
    world.apply(&acquire(2, 1, true));
    world.now = at(100);
    let applied = world.apply(&acquire(2, 1, true));
    assert_eq!(applied.outcome, granted(START + 100_000));
    assert_eq!(applied.notices, []);
}

/// The state of a lock that a dead waiter stands before.
#[test]
fn a_waiter_that_is_passed_over_takes_no_tokens() {
    let mut world = World::new();
    for lease in 1..=3 {
        world.apply(&acquire(lease, 1, true));
    }
    world.alive[2] = false;
    let notices = world.apply(&release(1)).notices;
    assert!(matches!(&*notices, [Notice::Granted(grant)] if grant.first == token(START + 1)));
}

#[test]
fn a_proposal_that_is_behind_the_clock_or_the_counter_is_not_taken() {
    for (last, proposal, first) in [
        (None, 1_000, 1_000),
        (None, 2_000, 2_000),
        (None, 999, 1_000),
        (Some(500), 600, 1_000),
        (Some(3_000), 3_000, 3_001),
        (Some(3_000), 3_001, 3_001),
    ] {
        let mut world = World::new();
        world.now = StoreTime::from_micros(1_000);
        world.rows.raise_counter(last.map(token));
        let request = Op::Acquire(Acquire {
            proposal: Some(token(proposal)),
            ..Acquire::mutex(lease(1), TTL)
        });
        assert_eq!(
            world.apply(&request).outcome,
            granted(first),
            "{last:?}, {proposal}"
        );
    }
}
