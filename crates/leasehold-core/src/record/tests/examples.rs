//! Single cases, which random histories reach seldom.

use std::time::Duration;

use super::*;
use crate::latch::{ArrivalId, LatchCount};
use crate::token::Token;

pub(super) fn arrival(number: u32, count: u32) -> Op {
    Op::Arrive {
        id: ArrivalId::parse(&number.to_string()).unwrap(),
        count: LatchCount::new(count).unwrap(),
        keep: Duration::from_secs(1),
    }
}

fn release(number: u64) -> Op {
    Op::Release {
        lease: lease(number),
        rest: None,
        note: None,
    }
}

/// A semaphore whose permits are all held by lease 0, and so many waiters for one of them.
fn waited_for(limit: u32, waiters: u64) -> World {
    let mut world = World::new();
    let whole = Op::Acquire(acquire(lease(0), permits(limit, limit), 100, false));
    world.apply(&whole);
    for number in 1..=waiters {
        world.apply(&Op::Acquire(acquire(
            lease(number),
            permits(1, limit),
            10_000,
            true,
        )));
    }
    world
}

#[test]
fn a_run_grants_to_64_waiters_and_the_next_one_goes_on() {
    let mut world = waited_for(200, 150);
    let mut granted = Vec::new();
    for (expected, unfinished) in [(64, true), (64, true), (22, false), (0, false)] {
        let applied = world.apply(&release(0));
        assert_eq!(
            (applied.notices.len(), applied.unfinished),
            (expected, unfinished)
        );
        granted.extend(applied.notices.iter().map(|notice| notice.lease().number));
    }
    assert!(granted.into_iter().eq(1..=150));
}

#[test]
fn a_run_drops_1024_dead_waiters_and_the_next_one_goes_on() {
    let mut world = waited_for(1, 2_000);
    world.alive = [false; 4];
    for (left, unfinished) in [(976, true), (0, false)] {
        let applied = world.apply(&release(0));
        assert_eq!(
            (world.waiters().len(), applied.unfinished),
            (left, unfinished)
        );
        assert_eq!(applied.notices, []);
    }
}

/// A request of a lease for the run with the key `v1`.
fn run_request(number: u64, ttl: u64) -> Op {
    let unless = Some(Unless::Key {
        key: key("v1"),
        asked: Duration::ZERO,
    });
    let request = acquire(lease(number), Claim::Mutex, ttl, true);
    Op::Acquire(Acquire { unless, ..request })
}

/// A lock that lease 0 holds for a run, for which the other leases wait, and the release that completes it.
fn waited_for_a_run(leases: u64, ttl: u64, rest: Option<Ttl>) -> (World, Op) {
    let mut world = World::new();
    for number in 0..leases {
        world.apply(&run_request(number, ttl));
    }
    let note = NewNote {
        slot: Slot::Key(key("v1")),
        token: Token::MAX,
        number: 1,
        text: "complete".into(),
        keep: Duration::from_secs(60),
    };
    let release = Op::Release {
        lease: lease(0),
        rest,
        note: Some(note),
    };
    (world, release)
}

/// Applies an operation, and goes on until it is finished. Returns all notices.
fn finish(world: &mut World, op: &Op) -> Vec<Notice> {
    let mut applied = world.apply(op);
    let mut notices = applied.notices;
    while applied.unfinished {
        applied = world.apply(&Op::Serve);
        notices.append(&mut applied.notices);
    }
    notices
}

#[test]
fn the_next_waiter_behind_more_dead_ones_than_a_run_drops_is_notified() {
    let mut world = World::new();
    let mutex = |number| Op::Acquire(acquire(lease(number), Claim::Mutex, 60_000, true));
    for number in [0, 2] {
        world.apply(&mutex(number));
    }
    for dead in 1..=1_100 {
        world.apply(&mutex(4 * dead + 1));
    }
    world.apply(&mutex(3));
    world.alive[1] = false;
    let notices = finish(&mut world, &release(0));
    assert!(
        matches!(&notices[..], [Notice::Granted(_), Notice::Next { lease, .. }] if lease.number == 3)
    );
}

#[test]
fn more_waiters_for_a_completion_than_a_run_drops_are_notified() {
    for rest in [None, Some(millis(5_000))] {
        let (mut world, release) = waited_for_a_run(2_000, 60_000, rest);
        assert_eq!(finish(&mut world, &release).len(), 1_999, "{rest:?}");
    }
}

/// Something else has deleted them.
#[test]
fn waiters_whose_rows_are_lost_keep_nobody_back() {
    let mut world = waited_for(1, 3);
    world.rows.store(Changes {
        head: None,
        rows: vec![Change::Clear(Class::Waiters)],
    });
    assert_eq!(world.apply(&release(0)).outcome, Outcome::Released);
    let request = acquire(lease(9), permits(1, 1), 100, false);
    let outcome = world.apply(&Op::Acquire(request)).outcome;
    assert!(matches!(outcome, Outcome::Granted { .. }), "{outcome:?}");
}

#[test]
fn a_counter_at_its_end_exhausts_a_request_behind_a_waiter() {
    let mut world = World::new();
    let request = |number| Op::Acquire(acquire(lease(number), Claim::Mutex, 100, true));
    world.apply(&request(1));
    world.apply(&request(2));
    for (tokens, outcome) in [(2, Outcome::Exhausted), (1, Outcome::Stored)] {
        let set = Op::SetToken {
            lease: lease(1),
            first: Token::MAX,
            tokens: number(tokens),
        };
        assert_eq!(world.apply(&set).outcome, outcome);
    }
    assert_eq!(world.apply(&release(1)).outcome, Outcome::Released);
    for number in 2..5 {
        assert_eq!(world.apply(&request(number)).outcome, Outcome::Exhausted);
    }
}

#[test]
fn a_request_for_fewer_tokens_does_not_overtake_a_waiter_for_whom_there_are_none() {
    let mut world = World::new();
    // They need two tokens, three and one.
    let request = |number| Op::Acquire(acquire(lease(number), Claim::Mutex, 100, true));
    for number in [1, 2] {
        world.apply(&request(number));
    }
    world.rows.raise_counter(Token::new(Token::MAX.get() - 1));
    assert_eq!(world.apply(&release(1)).outcome, Outcome::Released);
    for number in [3, 2] {
        assert_eq!(world.apply(&request(number)).outcome, Outcome::Exhausted);
    }
    assert_eq!(world.waiters().len(), 1);
}

/// Another hold of the lease has written one with the same number.
#[test]
fn a_late_release_is_confirmed_by_its_own_note_only() {
    for text in ["complete", "of another hold"] {
        let (mut world, release) = waited_for_a_run(1, 100, None);
        let note = NewNote {
            text: text.into(),
            ..note_of(&release)
        };
        let lease = lease(0);
        world.apply(&Op::WriteNote { lease, note });
        world.apply(&Op::Revoke(Whom::All));
        let expected = match text {
            "complete" => Outcome::Released,
            _ => Outcome::Lost(Loss::Free),
        };
        assert_eq!(world.apply(&release).outcome, expected, "{text}");
    }
}

fn note_of(release: &Op) -> NewNote {
    match release {
        Op::Release {
            note: Some(note), ..
        } => note.clone(),
        other => panic!("{other:?}"),
    }
}

/// The next one behind the new holder watches it, and a lease that leaves does not.
#[test]
fn a_waiter_whose_run_is_complete_leaves_before_the_others_are_served() {
    let mutex = |number, ttl| Op::Acquire(acquire(lease(number), Claim::Mutex, ttl, true));
    let (mut world, release) = waited_for_a_run(0, 100, None);
    world.apply(&mutex(0, 50));
    for op in [mutex(1, 60_000), run_request(2, 60_000), mutex(3, 60_000)] {
        world.apply(&op);
    }
    let note = note_of(&release);
    world.apply(&Op::WriteNote {
        lease: lease(0),
        note,
    });
    world.now = world.now.after(millis(60));
    let applied = world.apply(&run_request(2, 60_000));
    assert!(matches!(applied.outcome, Outcome::Complete(_)));
    let [Notice::Granted(grant), Notice::Next { lease: next, .. }] = &applied.notices[..] else {
        panic!("{:?}", applied.notices);
    };
    assert_eq!((grant.lease, *next), (lease(1), lease(3)));
}

/// A completion reaches the waiters immediately, even during a minimum hold.
#[test]
fn all_waiters_for_a_completion_are_notified_in_the_step_that_writes_it() {
    for rest in [None, Some(millis(50))] {
        let (mut world, release) = waited_for_a_run(100, 100, rest);
        let applied = world.apply(&release);
        let is_complete = |notice: &Notice| matches!(notice, Notice::Complete { .. });
        assert_eq!(applied.notices.len(), 99);
        assert!(applied.notices.iter().all(is_complete));
        let repeated = world.apply(&release);
        assert_eq!(
            (repeated.outcome, repeated.is_visible),
            (Outcome::Released, false)
        );
        let outcome = world.apply(&run_request(0, 100)).outcome;
        match rest {
            None => assert!(matches!(outcome, Outcome::Complete(_))),
            Some(_) => assert!(matches!(outcome, Outcome::Refused { .. })),
        }
    }
}

/// Its reader reports the error.
#[test]
fn a_completion_that_cannot_be_read_counts() {
    let mut world = World::new();
    let request = acquire(lease(1), Claim::Mutex, 100, true);
    world.apply(&Op::Acquire(request.clone()));
    let note = NewNote {
        slot: Slot::Period,
        token: Token::MAX,
        number: 1,
        text: "2 newer".into(),
        keep: Duration::from_secs(60),
    };
    world.apply(&Op::Release {
        lease: lease(1),
        rest: None,
        note: Some(note),
    });
    let schedule = crate::job::JobSchedule {
        period: crate::job::Period::checked(Duration::from_secs(1)).unwrap(),
        anchor: None,
    };
    let unless = Some(Unless::Period {
        schedule,
        asked: Duration::ZERO,
    });
    let outcome = world
        .apply(&Op::Acquire(Acquire { unless, ..request }))
        .outcome;
    assert!(matches!(outcome, Outcome::Complete(note) if &*note.text == "2 newer"));
}

#[test]
fn a_lease_that_has_ended_is_not_revoked() {
    let mut world = World::new();
    for (number, ttl) in [(1, 100), (2, 10)] {
        world.apply(&Op::Acquire(acquire(
            lease(number),
            permits(1, 2),
            ttl,
            true,
        )));
    }
    world.now = world.now.after(millis(10));
    let applied = world.apply(&Op::Revoke(Whom::All));
    assert_eq!(applied.outcome, Outcome::Revoked(vec![lease(1)]));
    assert_eq!(applied.notices, [Notice::Revoked { lease: lease(1) }]);
    assert_eq!(world.rows.head().body, Body::Free);
}
