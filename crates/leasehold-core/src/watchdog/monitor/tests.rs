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

fn monitor(evidence: Evidence) -> ClientMonitor<()> {
    let mut monitor = ClientMonitor::new(evidence, MAX_PAUSE, at(0));
    monitor.register(1, terms(Terms::NO_END), (), at(0));
    monitor
}

/// Polls when the monitor is due, until an instant, and returns the actions with their times.
fn watch_until(
    monitor: &mut ClientMonitor<()>,
    mut now: Instant,
    end: Instant,
) -> Vec<(Instant, WatchdogAction)> {
    let mut actions = Vec::new();
    while let Some(next) = monitor.next_event(now)
        && next <= end
    {
        assert!(next > now || monitor.next_event(next) == Some(next), "busy");
        now = next;
        for (number, action) in monitor.poll(now) {
            actions.push((now, action));
            monitor.handle_result(number, action, ActionResult::Renewed, now, now);
        }
    }
    actions
}

#[test]
fn who_is_heard_of_renews_by_itself() {
    let mut monitor = monitor(Evidence::Processes);
    for second in 0..100 {
        monitor.message_received(at(second * 5));
        assert_eq!(monitor.liveness(at(second * 5 + 5)), Liveness::Alive);
        assert_eq!(monitor.poll(at(second * 5 + 5)), []);
    }
}

#[test]
fn who_is_silent_is_renewed_in_time_until_too_much_is_too_much() {
    for evidence in [Evidence::Processes, Evidence::Connection] {
        let mut monitor = monitor(evidence);
        let actions = watch_until(&mut monitor, at(0), at(1_000));
        // The last renewal of its own may be an interval and a retry old.
        let mut last = Instant::default();
        let old = TTL / 3 + TTL / 30;
        for (nth, (when, action)) in actions.iter().enumerate() {
            assert_eq!(*action, WatchdogAction::Renew(ttl()));
            let age = when.since(last) + if nth == 0 { old } else { Duration::ZERO };
            assert!(age < TTL * 4 / 5, "{age:?}");
            last = *when;
        }
        assert!(actions.len() > 20);
        assert!(
            last.since(at(0)) > MAX_PAUSE - TTL && last < at(300),
            "{last:?}"
        );
        assert_eq!(monitor.liveness(at(301)), Liveness::Abandoned);
        monitor.message_received(at(302));
        assert_eq!(monitor.liveness(at(302)), Liveness::Alive);
    }
}

#[test]
fn nothing_is_renewed_longer_than_it_may_be_kept() {
    let mut monitor = ClientMonitor::new(Evidence::Processes, MAX_PAUSE, at(0));
    monitor.register(1, terms(at(60)), (), at(0));
    monitor.register(2, terms(at(0)), (), at(0));
    let actions = watch_until(&mut monitor, at(0), at(1_000));
    let last = actions.last().unwrap().0;
    assert!(last < at(60) && last > at(40), "{last:?}");
    assert!(actions.len() < 8);
}

#[test]
fn a_node_that_comes_late_renews_nothing_that_is_not_to_be_kept() {
    let mut monitor = ClientMonitor::new(Evidence::Processes, MAX_PAUSE, at(0));
    monitor.register(1, terms(at(12)), (), at(0));
    assert!(monitor.next_event(at(0)).unwrap() < at(12));
    assert_eq!(monitor.poll(at(12)), []);
    assert_eq!(monitor.next_event(at(12)), Some(at(300)));
}

#[test]
fn the_dead_are_released_until_that_is_told() {
    let mut monitor = monitor(Evidence::Processes);
    monitor.register(2, terms(at(0)), (), at(0));
    monitor.disconnected();
    assert_eq!(monitor.liveness(at(1)), Liveness::Alive);
    monitor.died(at(2));
    let release = WatchdogAction::Release(ttl());
    assert_eq!(monitor.poll(at(2)), [(1, release), (2, release)]);
    assert_eq!(monitor.poll(at(2)), []);
    monitor.handle_result(1, release, ActionResult::NotHeld, at(2), at(2));
    monitor.handle_result(2, release, ActionResult::Failed, at(2), at(2));
    assert_eq!(monitor.poll(at(2)), []);
    let next = monitor.next_event(at(2)).unwrap();
    assert_eq!(next, at(3));
    assert_eq!(monitor.poll(next), [(2, release)]);
    monitor.handle_result(2, release, ActionResult::Failed, next, next);
    // It has expired by itself, whichever node renewed it last.
    assert_eq!(monitor.poll(at(33)), []);
    assert!(monitor.is_finished(at(33)));
}

#[test]
fn a_renewal_under_way_delays_no_release() {
    let mut monitor = monitor(Evidence::Processes);
    let renew = WatchdogAction::Renew(ttl());
    assert_eq!(monitor.poll(at(10)), [(1, renew)]);
    monitor.died(at(11));
    let release = WatchdogAction::Release(ttl());
    assert_eq!(monitor.poll(at(11)), [(1, release)]);
    monitor.handle_result(1, renew, ActionResult::Renewed, at(10), at(12));
    assert_eq!(monitor.poll(at(12)), []);
    monitor.handle_result(1, release, ActionResult::NotHeld, at(11), at(13));
    assert!(monitor.is_finished(at(13)));
}

#[test]
fn a_lost_connection_proves_nothing() {
    let mut near = monitor(Evidence::Processes);
    near.disconnected();
    assert_eq!(near.poll(at(10)), [(1, WatchdogAction::Renew(ttl()))]);
    assert!(!near.is_finished(at(299)));
    assert!(near.is_finished(at(300)));

    let mut far = monitor(Evidence::Connection);
    far.died(at(1));
    assert_eq!(far.liveness(at(1)), Liveness::Alive);
    far.disconnected();
    assert_eq!(far.liveness(at(10)), Liveness::Unknown);
    assert_eq!(far.poll(at(10)), []);
    assert_eq!(far.next_event(at(10)), None);
    assert!(far.is_finished(at(10)));
}

#[test]
fn a_lease_that_is_over_is_forgotten() {
    let mut monitor = monitor(Evidence::Connection);
    let renew = WatchdogAction::Renew(ttl());
    assert_eq!(monitor.poll(at(10)), [(1, renew)]);
    monitor.handle_result(1, renew, ActionResult::NotHeld, at(10), at(10));
    assert_eq!(monitor.poll(at(20)), []);
    assert_eq!(monitor.liveness(at(20)), Liveness::Alive);
}

#[test]
fn a_renewal_that_fails_is_tried_again_soon() {
    let mut monitor = monitor(Evidence::Processes);
    let renew = WatchdogAction::Renew(ttl());
    assert_eq!(monitor.poll(at(10)), [(1, renew)]);
    assert_eq!(monitor.poll(at(10)), []);
    monitor.handle_result(1, renew, ActionResult::Failed, at(10), at(12));
    assert_eq!(monitor.poll(at(12)), []);
    assert_eq!(monitor.next_event(at(12)), Some(at(13)));
    assert_eq!(monitor.poll(at(13)), [(1, renew)]);
}

#[test]
fn what_is_kept_alive_is_renewed_once_more_before_a_node_stops() {
    let mut monitor = monitor(Evidence::Processes);
    assert_eq!(monitor.hand_over(at(5)), []);
    let renew = WatchdogAction::Renew(ttl());
    assert_eq!(monitor.poll(at(10)), [(1, renew)]);
    monitor.handle_result(1, renew, ActionResult::Renewed, at(10), at(10));
    assert_eq!(monitor.hand_over(at(11)), [(1, renew)]);
}
