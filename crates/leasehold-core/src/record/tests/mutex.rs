//! The rule of a mutex by example.

use super::*;
use crate::fixture::token;

const TTL: Ttl = Ttl::USER_MIN;

fn at(millis: u64) -> StoreTime {
    StoreTime::from_micros(START + millis * 1_000)
}

fn acquire(lease: u64) -> Op {
    Op::Acquire(Acquire {
        wait: true,
        ..Acquire::mutex(self::lease(lease), TTL)
    })
}

fn granted(first: u64) -> Outcome {
    Outcome::granted(token(first))
}

#[test]
fn a_request_of_the_head_is_granted_without_a_notice() {
    let mut world = World::new();
    for lease in [1, 2] {
        world.apply(&acquire(lease));
    }
    world.now = at(100);
    let applied = world.apply(&acquire(2));
    assert_eq!(applied.outcome, granted(START + 100_000));
    assert_eq!(applied.notices, []);
}

/// The state of a lock that a dead waiter stands before.
#[test]
fn a_waiter_that_is_passed_over_takes_no_tokens() {
    let mut world = World::new();
    for lease in 1..=3 {
        world.apply(&acquire(lease));
    }
    world.alive[2] = false;
    let notices = world.apply(&Op::release(lease(1))).notices;
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
