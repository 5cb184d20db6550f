//! Leases that a watchdog keeps alive while this process cannot.

use super::*;

fn watched() -> Lease {
    let mut lease = renewed();
    lease.watch(true, at(0.0));
    lease
}

fn is_open(lease: &Lease, now: Instant) -> bool {
    matches!(lease.state(now), State::Jeopardy { cause: Cause::Paused, until } if until >= now)
}

/// Polled much later than it was due.
fn wake(lease: &mut Lease, now: Instant) {
    let planned = lease.next_event(now).unwrap();
    assert!(now.since(planned) >= lease.late(), "{planned:?}");
    lease.wake(now);
}

#[test]
fn after_a_pause_only_the_store_says_whether_it_is_held() {
    let mut lease = watched();
    // Before anything else runs, and however late that is.
    assert!(is_open(&lease, at(95.0)));
    wake(&mut lease, at(95.0));
    assert!(is_open(&lease, at(95.1)));
    assert_eq!(lease.poll(at(95.1)), Action::Renew(ttl(30)));
    assert!(lease.reply_deadline(at(95.1)) > at(120.0));
    assert_eq!(lease.poll(at(95.2)), Action::Wait);
    lease.renewed(at(95.1), ttl(30), at(95.3));
    assert!(lease.state(at(95.4)).is_held());

    let mut lease = watched();
    wake(&mut lease, at(95.0));
    lease.poll(at(95.0));
    lease.lose(Cause::TakenOver);
    assert_eq!(lease.state(at(95.1)), State::Lost(Cause::TakenOver));
}

#[test]
fn nobody_watched_is_lost_after_a_pause() {
    let mut lease = renewed();
    lease.wake(at(95.0));
    assert_eq!(lease.state(at(95.0)), State::Lost(Cause::Paused));
    lease.poll(at(95.0));
    lease.watch(true, at(95.0));
    assert_eq!(lease.state(at(95.0)), State::Lost(Cause::Paused));
}

/// The node has acknowledged the lease during the pause.
#[test]
fn a_watch_that_begins_after_the_loss_revives_nothing() {
    let mut lease = renewed();
    let lost = State::Lost(Cause::Paused);
    assert_eq!(lease.state(at(95.0)), lost);
    lease.watch(true, at(95.0));
    assert_eq!(lease.state(at(95.0)), lost);
    lease.wake(at(95.0));
    assert_eq!(lease.state(at(95.0)), lost);
}

#[test]
fn a_reply_to_a_request_before_the_pause_proves_nothing() {
    let mut lease = watched();
    assert!(matches!(lease.poll(at(10.0)), Action::Renew(_)));
    wake(&mut lease, at(95.0));
    assert_eq!(lease.poll(at(95.0)), Action::Wait);
    lease.renewed(at(10.0), ttl(30), at(95.1));
    assert!(is_open(&lease, at(95.1)));
    assert!(matches!(lease.poll(at(95.1)), Action::Renew(_)));
    lease.renewed(at(95.1), ttl(30), at(95.2));
    assert!(lease.state(at(95.2)).is_held());
}

/// The pause was short: the store keeps the lease for long enough.
#[test]
fn a_reply_to_a_request_before_a_short_pause_shows_until_when_it_is_kept() {
    let mut lease = watched();
    assert!(matches!(lease.poll(at(10.0)), Action::Renew(_)));
    wake(&mut lease, at(23.0));
    assert!(is_open(&lease, at(23.0)));
    lease.renewed(at(10.0), ttl(30), at(23.1));
    let State::Jeopardy { until, .. } = lease.state(at(23.1)) else {
        panic!("{:?}", lease.state(at(23.1)));
    };
    let mut now = at(23.1);
    while !lease.state(now).is_lost() {
        if let Action::Renew(_) = lease.poll(now) {
            lease.renewal_failed(now, Cause::Unreachable);
        }
        match lease.next_event(now) {
            Some(next) => now = next,
            None => break,
        }
    }
    assert_eq!(now, until);
}

#[test]
fn nor_does_its_failure() {
    let mut lease = watched();
    assert!(matches!(lease.poll(at(10.0)), Action::Renew(_)));
    wake(&mut lease, at(95.0));
    lease.renewal_failed(at(95.1), Cause::Unreachable);
    assert!(is_open(&lease, at(95.1)));
    assert!(matches!(lease.poll(at(95.1)), Action::Renew(_)));
    lease.renewal_failed(at(97.0), Cause::Unreachable);
    assert!(is_open(&lease, at(97.0)));
    // The renewal is repeated, like any other.
    let again = lease.next_event(at(97.0)).unwrap();
    assert_eq!(again, at(98.0));
    assert!(matches!(lease.poll(again), Action::Renew(_)));
    lease.renewed(again, ttl(30), at(98.1));
    assert!(lease.state(at(98.1)).is_held());
}

#[test]
fn a_lease_without_a_reply_for_an_interval_is_lost() {
    let mut lease = watched();
    wake(&mut lease, at(95.0));
    let mut now = at(95.0);
    while let Action::Renew(_) = lease.poll(now) {
        now = now.after(seconds(2.0));
        lease.renewal_failed(now, Cause::Unreachable);
        match lease.next_event(now) {
            Some(next) => now = next,
            None => break,
        }
    }
    assert_eq!(lease.state(now), State::Lost(Cause::Unreachable));
    assert!(now >= at(105.0) && now < at(110.0), "{now:?}");
}

/// Whatever raises a doubt after the request was sent.
#[test]
fn a_lease_that_was_confirmed_after_the_pause_is_kept_until_its_deadline() {
    let doubts: [fn(&mut Lease); 3] = [
        |lease| lease.watch(false, at(95.1)),
        |lease| lease.check(at(95.1)),
        |lease| lease.interrupted(at(95.1)),
    ];
    for doubt in doubts {
        let mut lease = watched();
        wake(&mut lease, at(95.0));
        assert_eq!(lease.poll(at(95.0)), Action::Renew(ttl(30)));
        doubt(&mut lease);
        lease.renewed(at(95.0), ttl(30), at(95.2));
        let (State::Held { until } | State::Jeopardy { until, .. }) = lease.state(at(95.2)) else {
            panic!("{:?}", lease.state(at(95.2)));
        };
        assert!(until > at(110.0), "{until:?}");
        let mut now = at(95.2);
        while now < until {
            assert!(!lease.state(now).is_lost(), "{now:?}");
            if let Action::Renew(_) = lease.poll(now) {
                lease.renewal_failed(now, Cause::Unreachable);
            }
            now = lease.next_event(now).unwrap();
        }
        lease.poll(now);
        assert!(lease.state(now).is_lost());
    }
}

#[test]
fn a_second_pause_while_it_asks_is_one_more_to_ask_about() {
    let mut lease = watched();
    wake(&mut lease, at(95.0));
    assert!(matches!(lease.poll(at(95.0)), Action::Renew(_)));
    lease.wake(at(200.0));
    lease.renewal_failed(at(200.0), Cause::Unreachable);
    assert!(is_open(&lease, at(200.0)));
    assert!(matches!(lease.poll(at(200.0)), Action::Renew(_)));
    lease.renewed(at(200.0), ttl(30), at(200.1));
    assert!(lease.state(at(200.1)).is_held());
}

#[test]
fn who_runs_and_does_not_reach_the_store_loses_it_in_time() {
    let mut lease = watched();
    let mut now = at(10.0);
    while let Action::Renew(_) = lease.poll(now) {
        lease.renewal_failed(now, Cause::Unreachable);
        now = lease.next_event(now).unwrap();
    }
    assert_eq!(lease.state(now), State::Lost(Cause::Unreachable));
    assert!(now < at(20.0));

    // The same with a renewal without a reply.
    let mut lease = watched();
    lease.poll(at(10.0));
    let mut now = at(10.0);
    while !lease.state(now).is_lost() {
        now = lease.next_event(now).unwrap();
        lease.poll(now);
    }
    assert!(now < at(20.0), "{now:?}");
}

/// Its margin has begun, and the poll that gives it up is a little late.
#[test]
fn who_runs_is_shown_no_end_behind_the_loss() {
    let mut lease = watched();
    lease.poll(at(10.0));
    lease.renewal_failed(at(12.0), Cause::Unreachable);
    for now in [at(20.0), at(20.1)] {
        let State::Jeopardy { until, .. } = lease.state(now) else {
            panic!("{:?}", lease.state(now));
        };
        assert_eq!(until, now);
    }
    lease.poll(at(20.1));
    assert_eq!(lease.state(at(20.1)), State::Lost(Cause::Unreachable));
}

#[test]
fn the_watch_may_end_before_it_has_asked() {
    let mut lease = watched();
    lease.watch(false, at(95.0));
    assert!(is_open(&lease, at(95.0)));
    assert!(matches!(lease.poll(at(95.0)), Action::Renew(_)));
    lease.renewed(at(95.0), ttl(30), at(95.1));
    // From now on it is as any other.
    assert_eq!(lease.state(at(200.0)), State::Lost(Cause::Paused));
}

#[test]
fn who_held_it_too_long_lost_it() {
    let policy = Policy {
        max_hold: Some(seconds(60.0)),
        ..Policy::of(ttl(30))
    };
    let (mut lease, _) = Lease::granted(policy, ttl(30), Term::Renewed, at(0.0));
    lease.watch(true, at(0.0));
    assert!(is_open(&lease, at(59.0)));
    assert!(lease.state(at(61.0)).is_lost());
}

#[test]
fn a_fixed_hold_ends_at_its_end() {
    let (mut lease, fixed) =
        Lease::granted(Policy::of(ttl(30)), ttl(30), Term::Fixed(at(20.0)), at(0.0));
    lease.watch(true, at(0.0));
    assert_eq!(
        lease.hold_state(fixed, at(95.0)),
        State::Lost(Cause::Expired)
    );
    assert_eq!(lease.state(at(95.0)), State::Lost(Cause::Expired));
}

#[test]
fn a_pause_that_ends_before_the_margin_does_not_shorten_the_margin() {
    // The holder runs, and has the margin to end its work: no node that may have renewed delays that.
    let mut lease = watched();
    wake(&mut lease, at(19.5));
    assert_eq!(lease.poll(at(19.5)), Action::Renew(ttl(30)));
    lease.poll(at(20.0));
    assert!(lease.state(at(20.0)).is_lost());
    // With a reply by then it is held.
    let mut lease = watched();
    wake(&mut lease, at(19.5));
    lease.poll(at(19.5));
    lease.renewed(at(19.5), ttl(30), at(19.6));
    assert!(lease.state(at(20.0)).is_held());
}
