use super::*;

mod schedules;

const TTL: Duration = Duration::from_secs(30);
const MAX_PAUSE: Duration = Duration::from_secs(300);

fn at(seconds: u64) -> Instant {
    Instant::default().after(Duration::from_secs(seconds))
}

fn ttl() -> Ttl {
    Ttl::checked(TTL).unwrap()
}

fn terms(keep_until: Instant) -> Terms {
    Terms::new(ttl(), TTL / 3, TTL / 30, keep_until)
}

fn charge(evidence: Evidence) -> Charge<()> {
    let mut charge = Charge::new(evidence, MAX_PAUSE, at(0));
    charge.register(1, terms(Terms::NO_END), (), at(0));
    charge
}

/// Polls when the charge asks for it, until an instant, and answers what was done when.
fn watch_until(charge: &mut Charge<()>, mut now: Instant, end: Instant) -> Vec<(Instant, Deed)> {
    let mut deeds = Vec::new();
    while let Some(next) = charge.next_event(now)
        && next <= end
    {
        assert!(next > now || charge.next_event(next) == Some(next), "busy");
        now = next;
        for (number, deed) in charge.poll(now) {
            deeds.push((now, deed));
            charge.done(number, deed, End::Renewed, now, now);
        }
    }
    deeds
}

#[test]
fn who_is_heard_of_renews_by_itself() {
    let mut charge = charge(Evidence::Processes);
    for second in 0..100 {
        charge.heard(at(second * 5));
        assert_eq!(charge.condition(at(second * 5 + 5)), Condition::Well);
        assert_eq!(charge.poll(at(second * 5 + 5)), []);
    }
}

#[test]
fn who_is_silent_is_renewed_in_time_until_too_much_is_too_much() {
    for evidence in [Evidence::Processes, Evidence::Connection] {
        let mut charge = charge(evidence);
        let deeds = watch_until(&mut charge, at(0), at(1_000));
        // The last renewal of its own may be an interval and a retry old.
        let mut last = Instant::default();
        let old = TTL / 3 + TTL / 30;
        for (nth, (when, deed)) in deeds.iter().enumerate() {
            assert_eq!(*deed, Deed::Renew(ttl()));
            let age = when.since(last) + if nth == 0 { old } else { Duration::ZERO };
            assert!(age < TTL * 4 / 5, "{age:?}");
            last = *when;
        }
        assert!(deeds.len() > 20);
        assert!(
            last.since(at(0)) > MAX_PAUSE - TTL && last < at(300),
            "{last:?}"
        );
        assert_eq!(charge.condition(at(301)), Condition::GivenUp);
        charge.heard(at(302));
        assert_eq!(charge.condition(at(302)), Condition::Well);
    }
}

#[test]
fn nothing_is_renewed_longer_than_it_may_be_kept() {
    let mut charge = Charge::new(Evidence::Processes, MAX_PAUSE, at(0));
    charge.register(1, terms(at(60)), (), at(0));
    charge.register(2, terms(at(0)), (), at(0));
    let deeds = watch_until(&mut charge, at(0), at(1_000));
    let last = deeds.last().unwrap().0;
    assert!(last < at(60) && last > at(40), "{last:?}");
    assert!(deeds.len() < 8);
}

#[test]
fn a_node_that_comes_late_renews_nothing_that_is_not_to_be_kept() {
    let mut charge = Charge::new(Evidence::Processes, MAX_PAUSE, at(0));
    charge.register(1, terms(at(12)), (), at(0));
    assert!(charge.next_event(at(0)).unwrap() < at(12));
    assert_eq!(charge.poll(at(12)), []);
    assert_eq!(charge.next_event(at(12)), Some(at(300)));
}

#[test]
fn the_dead_are_released_until_that_is_told() {
    let mut charge = charge(Evidence::Processes);
    charge.register(2, terms(at(0)), (), at(0));
    charge.disconnected();
    assert_eq!(charge.condition(at(1)), Condition::Well);
    charge.died(at(2));
    let release = Deed::Release(ttl());
    assert_eq!(charge.poll(at(2)), [(1, release), (2, release)]);
    assert_eq!(charge.poll(at(2)), []);
    charge.done(1, release, End::Over, at(2), at(2));
    charge.done(2, release, End::Failed, at(2), at(2));
    assert_eq!(charge.poll(at(2)), []);
    let next = charge.next_event(at(2)).unwrap();
    assert_eq!(next, at(3));
    assert_eq!(charge.poll(next), [(2, release)]);
    charge.done(2, release, End::Failed, next, next);
    // It is over by itself, whoever renewed it last.
    assert_eq!(charge.poll(at(33)), []);
    assert!(charge.is_over(at(33)));
}

#[test]
fn a_renewal_under_way_delays_no_release() {
    let mut charge = charge(Evidence::Processes);
    let renew = Deed::Renew(ttl());
    assert_eq!(charge.poll(at(10)), [(1, renew)]);
    charge.died(at(11));
    let release = Deed::Release(ttl());
    assert_eq!(charge.poll(at(11)), [(1, release)]);
    charge.done(1, renew, End::Renewed, at(10), at(12));
    assert_eq!(charge.poll(at(12)), []);
    charge.done(1, release, End::Over, at(11), at(13));
    assert!(charge.is_over(at(13)));
}

#[test]
fn a_lost_connection_proves_nothing() {
    let mut near = charge(Evidence::Processes);
    near.disconnected();
    assert_eq!(near.poll(at(10)), [(1, Deed::Renew(ttl()))]);
    assert!(!near.is_over(at(299)));
    assert!(near.is_over(at(300)));

    let mut far = charge(Evidence::Connection);
    far.died(at(1));
    assert_eq!(far.condition(at(1)), Condition::Well);
    far.disconnected();
    assert_eq!(far.condition(at(10)), Condition::Unseen);
    assert_eq!(far.poll(at(10)), []);
    assert_eq!(far.next_event(at(10)), None);
    assert!(far.is_over(at(10)));
}

#[test]
fn a_lease_that_is_over_is_forgotten() {
    let mut charge = charge(Evidence::Connection);
    let renew = Deed::Renew(ttl());
    assert_eq!(charge.poll(at(10)), [(1, renew)]);
    charge.done(1, renew, End::Over, at(10), at(10));
    assert_eq!(charge.poll(at(20)), []);
    assert_eq!(charge.condition(at(20)), Condition::Well);
}

#[test]
fn a_renewal_that_fails_is_tried_again_soon() {
    let mut charge = charge(Evidence::Processes);
    let renew = Deed::Renew(ttl());
    assert_eq!(charge.poll(at(10)), [(1, renew)]);
    assert_eq!(charge.poll(at(10)), []);
    charge.done(1, renew, End::Failed, at(10), at(12));
    assert_eq!(charge.poll(at(12)), []);
    assert_eq!(charge.next_event(at(12)), Some(at(13)));
    assert_eq!(charge.poll(at(13)), [(1, renew)]);
}

#[test]
fn what_is_kept_alive_is_renewed_once_more_before_a_node_stops() {
    let mut charge = charge(Evidence::Processes);
    assert_eq!(charge.hand_over(at(5)), []);
    let renew = Deed::Renew(ttl());
    assert_eq!(charge.poll(at(10)), [(1, renew)]);
    charge.done(1, renew, End::Renewed, at(10), at(10));
    assert_eq!(charge.hand_over(at(11)), [(1, renew)]);
}
