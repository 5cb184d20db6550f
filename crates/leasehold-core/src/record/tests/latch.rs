//! The rule of a latch by example.

use std::time::Duration;

use super::*;
use crate::latch::{ArrivalId, LatchCount};

fn arrive(id: &str, count: u32, micros: u64) -> Op {
    Op::Arrive {
        id: ArrivalId::parse(id).unwrap(),
        count: LatchCount::new(count).unwrap(),
        keep: Duration::from_micros(micros),
    }
}

fn at(micros: u64) -> StoreTime {
    StoreTime::from_micros(START + micros)
}

/// How many have arrived after an arrival, and whether the latch is open.
fn arrived(world: &mut World, op: &Op) -> (u32, bool) {
    match world.apply(op).outcome {
        Outcome::Arrived(status) => (status.arrived, status.is_open()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_an_arrival_that_counts_lengthens_the_time_and_none_shortens_it() {
    let mut world = World::new();
    for (now, id, keep, until) in [
        (0, "a", 10, 10),
        (5, "a", 10, 10),
        (6, "b", 10, 16),
        (7, "c", 1, 16),
        // It is open.
        (8, "d", 10, 16),
        (15, "a", 10, 16),
    ] {
        world.now = at(now);
        arrived(&mut world, &arrive(id, 3, keep));
        let latch = world.rows.latch(&world.environment()).unwrap();
        assert_eq!(latch.until, at(until), "{id}");
    }
    // Then it is made anew, with whatever count.
    world.now = at(16);
    assert_eq!(arrived(&mut world, &arrive("e", 2, 10)), (1, false));
}

#[test]
fn an_operation_that_does_not_match_serves_the_queue() {
    let semaphore = Op::Acquire(acquire(lease(3), permits(1, 2), 10, true));
    for op in [arrive("a", 1, 10), Op::Remove(Removal::Latch), semaphore] {
        let mut world = waited_for();
        let applied = world.apply(&op);
        assert!(matches!(applied.outcome, Outcome::Mismatch(_)), "{op:?}");
        let granted =
            |notice: &Notice| matches!(notice, Notice::Granted(grant) if grant.lease == lease(2));
        assert!(applied.notices.iter().any(granted), "{op:?}");
        assert!(
            world
                .holders()
                .iter()
                .any(|holder| holder.lease == lease(2))
        );
    }
}

#[test]
fn dead_waiters_keep_a_free_name_from_no_other_kind() {
    let semaphore = Op::Acquire(acquire(lease(3), permits(1, 2), 10, true));
    for op in [arrive("a", 1, 10), Op::Remove(Removal::Latch), semaphore] {
        let mut world = waited_for();
        world.alive[2] = false;
        let outcome = world.apply(&op).outcome;
        assert!(!matches!(outcome, Outcome::Mismatch(_)), "{op:?}");
        assert_eq!(world.waiters(), []);
    }
}

/// A mutex whose holder has ended and for which lease 2 waits.
fn waited_for() -> World {
    let mut world = World::new();
    for number in 1..=2 {
        world.apply(&Op::Acquire(acquire(lease(number), Claim::Mutex, 10, true)));
    }
    world.now = world.now.after(millis(10));
    world
}

#[test]
fn a_removal_finds_what_has_not_ended() {
    let mut world = World::new();
    let reset = Op::Remove(Removal::Latch);
    assert_eq!(world.apply(&reset).outcome, Outcome::Removed(false));
    for (after, existed) in [(9, true), (10, false)] {
        arrived(&mut world, &arrive("a", 2, 10));
        world.now = StoreTime::from_micros(world.now.as_micros() + after);
        assert_eq!(world.apply(&reset).outcome, Outcome::Removed(existed));
        assert_eq!(world.rows.latch(&world.environment()), None);
    }
}
