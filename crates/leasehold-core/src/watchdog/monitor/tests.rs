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

#[test]
fn a_client_that_sends_messages_renews_by_itself() {
    let mut monitor = monitor(Evidence::Processes);
    for second in 0..100 {
        monitor.message_received(at(second * 5));
        assert_eq!(monitor.liveness(at(second * 5 + 5)), Liveness::Alive);
        assert_eq!(monitor.poll(at(second * 5 + 5)), []);
    }
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
    // It may be killed while its lease lasts.
    assert_eq!(near.next_event(at(300)), Some(at(330)));
    assert!(!near.is_finished(at(329)));
    assert!(near.is_finished(at(330)));
    assert_eq!(near.next_event(at(330)), None);
    near.died(at(330));
    assert_eq!(near.poll(at(330)), [(1, WatchdogAction::Release(ttl()))]);

    let mut remote = monitor(Evidence::Connection);
    remote.died(at(1));
    assert_eq!(remote.liveness(at(1)), Liveness::Alive);
    remote.disconnected();
    assert_eq!(remote.liveness(at(10)), Liveness::Unknown);
    assert_eq!(remote.poll(at(10)), []);
    assert_eq!(remote.next_event(at(10)), None);
    assert!(remote.is_finished(at(10)));
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
fn what_is_kept_alive_is_renewed_once_more_before_a_node_stops() {
    let mut monitor = monitor(Evidence::Processes);
    assert_eq!(monitor.hand_over(at(5)), []);
    let renew = WatchdogAction::Renew(ttl());
    assert_eq!(monitor.poll(at(10)), [(1, renew)]);
    monitor.handle_result(1, renew, ActionResult::Renewed, at(10), at(10));
    assert_eq!(monitor.hand_over(at(11)), [(1, renew)]);
}
