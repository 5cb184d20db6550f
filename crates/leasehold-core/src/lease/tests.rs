//! The life of a lease, told in seconds.

use super::*;

mod watched;

fn at(seconds: f64) -> Instant {
    Instant::from_nanos((seconds * 1e9) as u64)
}

fn ttl(seconds: u64) -> Ttl {
    Ttl::from_millis(seconds * 1_000).unwrap()
}

fn renewed() -> Lease {
    Lease::granted(Policy::of(ttl(30)), ttl(30), Term::Renewed, at(0.0)).0
}

#[test]
fn a_renewed_lease_is_held_as_long_as_renewals_succeed() {
    let mut lease = renewed();
    let mut now = 0.0;
    for _ in 0..10 {
        let due = lease.next_event(at(now + 0.1)).unwrap().as_nanos() as f64 / 1e9;
        assert!((now + 8.7..=now + 10.0).contains(&due), "{due} after {now}");
        now = due;
        assert_eq!(lease.poll(at(now - 0.001)), Action::Wait);
        assert_eq!(lease.poll(at(now)), Action::Renew(ttl(30)));
        assert_eq!(lease.poll(at(now + 0.001)), Action::Wait);
        lease.renewed(at(now), ttl(30), at(now + 0.01));
        assert!(lease.state(at(now + 0.02)).is_held());
    }
}

#[test]
fn two_failed_renewals_in_a_row_are_lost_with_a_third_of_the_ttl_left() {
    let mut lease = renewed();
    let mut now = at(10.0);
    let mut failures = 0;
    while let Action::Renew(_) = lease.poll(now) {
        lease.renewal_failed(now, Cause::Unreachable);
        failures += 1;
        match lease.state(now) {
            State::Jeopardy { cause, .. } => assert_eq!(cause, Cause::Unreachable),
            other => panic!("{other:?}"),
        }
        now = lease.next_event(now).unwrap();
    }
    assert!(failures >= 2);
    assert_eq!(lease.state(now), State::Lost(Cause::Unreachable));
    // 30 s, less the drift allowance, less the margin of 10 s.
    let left = now.until(at(30.0)).as_secs_f64();
    assert!((10.0..10.5).contains(&left), "{left} s left");
    assert_eq!(lease.next_event(now), None);
}

#[test]
fn one_failed_renewal_is_jeopardy_and_a_success_ends_it() {
    let mut lease = renewed();
    lease.poll(at(10.0));
    lease.renewal_failed(at(10.5), Cause::Unreachable);
    assert!(matches!(lease.state(at(10.6)), State::Jeopardy { .. }));
    assert_eq!(lease.next_event(at(10.6)), Some(at(11.5)));
    assert!(matches!(lease.poll(at(11.5)), Action::Renew(_)));
    lease.renewed(at(11.5), ttl(30), at(11.6));
    assert!(lease.state(at(11.7)).is_held());
}

#[test]
fn a_renewal_without_a_reply_is_jeopardy_when_overdue() {
    let mut lease = renewed();
    lease.poll(at(10.0));
    assert!(lease.state(at(14.9)).is_held());
    assert_eq!(lease.next_event(at(10.0)), Some(at(15.0)));
    assert!(matches!(
        lease.state(at(15.0)),
        State::Jeopardy {
            cause: Cause::Unreachable,
            ..
        }
    ));
}

#[test]
fn a_process_that_was_stopped_reads_lost_and_no_reply_revives_it() {
    let mut lease = renewed();
    assert_eq!(lease.state(at(40.0)), State::Lost(Cause::Paused));
    lease.confirmed(at(0.1), ttl(30), at(40.0));
    lease.renewed(at(39.9), ttl(30), at(40.0));
    assert_eq!(lease.state(at(40.0)), State::Lost(Cause::Paused));
    assert_eq!(lease.poll(at(40.0)), Action::Wait);
}

#[test]
fn a_reply_to_a_renewal_after_the_margin_is_too_late() {
    let mut lease = renewed();
    lease.poll(at(10.0));
    lease.renewed(at(10.0), ttl(30), at(19.9));
    assert!(lease.state(at(19.9)).is_lost());
}

#[test]
fn a_renewal_keeps_a_lease_until_the_margin() {
    let lease = renewed();
    let until = at(0.0).after(lease.longest_renewal());
    assert_eq!(lease.state(at(0.0)), State::Held { until });
}

#[test]
fn a_fixed_lease_is_never_renewed_and_expires_at_its_deadline() {
    let until = time::deadline(at(0.0), ttl(10));
    let (mut lease, hold) =
        Lease::granted(Policy::of(ttl(30)), ttl(10), Term::Fixed(until), at(0.0));
    assert_eq!(lease.next_event(at(0.0)), Some(until));
    assert_eq!(lease.poll(at(9.0)), Action::Wait);
    assert!(lease.hold_state(hold, at(9.8)).is_held());
    assert_eq!(lease.hold_state(hold, until), State::Lost(Cause::Expired));
    assert!(until < at(10.0));
}

#[test]
fn a_fixed_hold_inside_a_renewed_one_ends_alone() {
    let mut lease = renewed();
    let inner = lease.holds_mut().enter(Term::Fixed(at(5.0)));
    assert_eq!(
        lease.hold_state(inner, at(5.0)),
        State::Lost(Cause::Expired)
    );
    assert!(lease.state(at(5.0)).is_held());
    lease.holds_mut().leave(inner);
    assert!(matches!(lease.poll(at(10.0)), Action::Renew(_)));
}

/// What a fixed hold was promised stands, whatever becomes of the renewals of another; and these are
/// lost for good, though the lease goes on.
#[test]
fn a_fixed_hold_outlives_renewals_that_fail_inside_of_it() {
    let until = time::deadline(at(0.0), ttl(60));
    let (mut lease, outer) =
        Lease::granted(Policy::of(ttl(30)), ttl(60), Term::Fixed(until), at(0.0));
    let inner = lease.enter(Term::Renewed, at(25.0));
    let given_up = until.before(seconds(10.0));
    let mut now = at(25.0);
    while let Some(next) = lease.next_hold_change(inner, now) {
        if let Action::Renew(_) = lease.poll(now) {
            lease.renewal_failed(now, Cause::Unreachable);
        }
        now = lease.next_event(now).map_or(next, |event| event.min(next));
        assert!(now <= given_up);
    }
    assert_eq!(now, given_up);
    assert!(lease.hold_state(inner, now).is_lost());
    assert!(!lease.hold_state(outer, now).is_lost());
    // A late reply helps the lease, and does not revive the hold.
    lease.confirmed(at(49.0), ttl(60), at(50.0));
    assert!(lease.hold_state(inner, at(50.0)).is_lost());
    assert!(lease.hold_state(outer, at(50.0)).is_held());
    assert_eq!(lease.poll(at(55.0)), Action::Wait);
    lease.leave(inner, at(56.0));
    assert!(lease.hold_state(outer, at(59.0)).is_held());
    assert_eq!(lease.hold_state(outer, until), State::Lost(Cause::Expired));
}

#[test]
fn leaving_a_renewed_hold_does_not_revive_a_lease() {
    let mut lease = renewed();
    let inner = lease.enter(Term::Fixed(at(15.0)), at(1.0));
    assert!(lease.state(at(25.0)).is_lost());
    lease.leave(inner, at(25.0));
    assert!(lease.state(at(25.0)).is_lost());
}

#[test]
fn a_renewed_hold_inside_a_fixed_one_renews_only_while_it_lasts() {
    let until = time::deadline(at(0.0), ttl(60));
    let (mut lease, outer) =
        Lease::granted(Policy::of(ttl(30)), ttl(60), Term::Fixed(until), at(0.0));
    let inner = lease.holds_mut().enter(Term::Renewed);
    let wanted = lease.ttl(at(1.0));
    assert!(wanted >= ttl(59), "the outer hold keeps its time");
    lease.confirmed(at(1.0), wanted, at(1.1));
    assert!(matches!(lease.poll(at(11.0)), Action::Renew(_)));
    lease.renewed(at(11.0), lease.ttl(at(11.0)), at(11.1));
    lease.holds_mut().leave(inner);
    assert_eq!(lease.poll(at(30.0)), Action::Wait);
    assert!(lease.hold_state(outer, at(59.0)).is_held());
    assert!(lease.hold_state(outer, until).is_lost());
}

fn seconds(span: f64) -> std::time::Duration {
    std::time::Duration::from_secs_f64(span)
}

#[test]
fn a_lease_granted_by_message_lives_at_the_pace_of_its_acceptance() {
    let waited = seconds(20.0);
    let times = time::granted(at(0.0), waited, at(20.5), ttl(3));
    let (lease, _) = Lease::accepted(Policy::of(ttl(30)), ttl(3), Term::Renewed, times);
    // 23 s, less the drift over all of them.
    let deadline = 23.0 - 0.23 - 0.002;
    assert!((times.1.since(at(0.0)).as_secs_f64() - deadline).abs() < 1e-6);
    assert_eq!(
        lease.state(at(20.5)),
        State::Held {
            until: times.1.before(seconds(1.0))
        }
    );
    let due = lease.next_event(at(20.5)).unwrap();
    assert!((at(20.86)..=at(21.0)).contains(&due), "{due:?}");
    let mut lease = lease;
    assert_eq!(lease.poll(at(21.0)), Action::Renew(ttl(30)));
    lease.renewed(at(21.0), ttl(30), at(21.1));
    let due = lease.next_event(at(21.1)).unwrap();
    assert!((at(29.7)..=at(31.0)).contains(&due), "{due:?}");
}

#[test]
fn a_grant_is_not_later_than_its_message() {
    let (granted, _) = time::granted(at(0.0), seconds(90.0), at(20.0), ttl(3));
    assert_eq!(granted, at(20.0));
}

#[test]
fn a_hint_asks_the_store_at_once_but_not_over_and_over() {
    let mut lease = renewed();
    lease.check(at(2.0));
    assert!(lease.state(at(2.0)).is_held());
    assert!(matches!(lease.poll(at(2.0)), Action::Renew(_)));
    lease.renewed(at(2.0), ttl(30), at(2.1));
    lease.check(at(2.2));
    assert_eq!(lease.next_event(at(2.2)), Some(at(3.0)));
    lease.check(at(2.3));
    lease.poll(at(4.0));
    lease.lose(Cause::Deleted);
    assert!(lease.state(at(4.0)).is_lost());
}

/// The reply to a renewal that was sent before the hint proves nothing about what it hinted at.
#[test]
fn an_earlier_reply_does_not_end_a_doubt() {
    let mut lease = renewed();
    lease.poll(at(10.0));
    lease.check(at(10.1));
    lease.renewed(at(10.0), ttl(30), at(10.2));
    assert!(matches!(lease.poll(at(10.2)), Action::Renew(_)));
    lease.renewed(at(10.2), ttl(30), at(10.3));
    assert_eq!(lease.poll(at(10.4)), Action::Wait);
}

#[test]
fn an_interrupted_connection_is_jeopardy_until_the_store_confirms() {
    let (mut lease, _) =
        Lease::granted(Policy::of(ttl(30)), ttl(30), Term::Fixed(at(29.0)), at(0.0));
    assert_eq!(lease.poll(at(20.0)), Action::Wait);
    lease.interrupted(at(20.0));
    assert!(matches!(lease.state(at(20.0)), State::Jeopardy { .. }));
    assert!(matches!(lease.poll(at(20.0)), Action::Renew(_)));
    lease.renewed(at(20.0), ttl(9), at(20.1));
    assert!(lease.state(at(20.1)).is_held());
    assert_eq!(lease.next_event(at(20.1)), Some(at(29.0)));
}

#[test]
fn an_interruption_is_followed_by_a_renewal_after_a_pause_if_one_has_failed() {
    let mut lease = renewed();
    assert!(matches!(lease.poll(at(10.0)), Action::Renew(_)));
    lease.interrupted(at(10.1));
    lease.renewal_failed(at(10.1), Cause::Unreachable);
    lease.interrupted(at(10.1));
    assert_eq!(lease.poll(at(10.1)), Action::Wait);
    let retry = lease.next_event(at(10.1)).unwrap();
    assert!(retry < at(10.2), "far sooner than without an interruption");
    assert!(matches!(lease.poll(retry), Action::Renew(_)));
    lease.renewed(retry, ttl(30), retry);
    lease.interrupted(retry);
    assert!(matches!(lease.poll(retry), Action::Renew(_)));
}

#[test]
fn a_lease_held_too_long_is_in_jeopardy_and_then_lost() {
    let policy = Policy {
        max_hold: Some(seconds(60.0)),
        ..Policy::of(ttl(30))
    };
    let (mut lease, _) = Lease::granted(policy, ttl(30), Term::Renewed, at(0.0));
    let mut now = at(0.0);
    let mut jeopardy = None;
    while let Some(next) = lease.next_event(now) {
        now = next;
        if let Action::Renew(ttl) = lease.poll(now) {
            assert!(now < at(60.0));
            lease.renewed(now, ttl, now);
        }
        if let State::Jeopardy { cause, until } = lease.state(now) {
            assert_eq!(cause, Cause::HeldTooLong);
            jeopardy.get_or_insert((now, until));
        }
    }
    assert_eq!(lease.state(now), State::Lost(Cause::HeldTooLong));
    assert_eq!(jeopardy, Some((at(60.0), now)));
    assert!(now < at(60.0 + 20.0));
}

#[test]
fn no_check_makes_a_lease_longer_that_was_held_too_long() {
    let policy = Policy {
        max_hold: Some(seconds(30.0)),
        ..Policy::of(ttl(30))
    };
    let (mut lease, _) = Lease::granted(policy, ttl(30), Term::Renewed, at(0.0));
    for now in [10.0, 25.0] {
        lease.poll(at(now));
        lease.renewed(at(now), ttl(30), at(now + 0.1));
    }
    lease.interrupted(at(35.0));
    let before = lease.deadline();
    let Action::Renew(ttl) = lease.poll(at(35.0)) else {
        panic!("it does not ask");
    };
    lease.renewed(at(35.0), ttl, at(35.1));
    assert_eq!(lease.deadline(), before);
    assert!(matches!(
        lease.state(at(35.2)),
        State::Jeopardy {
            cause: Cause::HeldTooLong,
            ..
        }
    ));
    assert_eq!(lease.poll(at(36.0)), Action::Wait);
}
