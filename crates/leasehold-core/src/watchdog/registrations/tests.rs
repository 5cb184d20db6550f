use super::*;
use crate::fixture::{at, ms, ttl};

fn terms(millis: u64) -> Terms {
    let ttl = ttl(millis);
    let span = ttl.as_duration();
    Terms::new(ttl, span / 3, span / 30, Terms::NO_END)
}

fn connected() -> Registrations<&'static str> {
    let mut registrations = Registrations::default();
    registrations.connected(at(0));
    registrations
}

#[test]
fn changes_are_sent_once_and_acknowledged() {
    let mut registrations = connected();
    registrations.register(1, terms(2_000), "a");
    registrations.register(2, terms(2_000), "b");
    let first = registrations.next_changes(1, at(1)).unwrap();
    assert_eq!(
        (first.batch, first.register),
        (0, vec![(1, terms(2_000), "a")])
    );
    let second = registrations.next_changes(10, at(1)).unwrap();
    assert_eq!(second.register, [(2, terms(2_000), "b")]);
    assert!(!registrations.has_changes());
    assert!(!registrations.is_watched(1));
    assert_eq!(registrations.acknowledged(1, &[2]), [1]);
    assert!(registrations.is_watched(1) && !registrations.is_watched(2));
    // The same again is nothing new; other terms are.
    registrations.register(1, terms(2_000), "a");
    assert_eq!(registrations.next_changes(10, at(2)), None);
    registrations.register(1, terms(3_000), "a");
    assert_eq!(
        registrations
            .next_changes(10, at(3))
            .unwrap()
            .register
            .len(),
        1
    );
    // It is looked after all the while.
    assert!(registrations.is_watched(1));
    assert_eq!(registrations.acknowledged(2, &[]), []);
    registrations.unregister(1);
    let last = registrations.next_changes(10, at(4)).unwrap();
    assert_eq!((last.register, last.unregister), (vec![], vec![1]));
}

#[test]
fn a_new_connection_knows_nothing() {
    let mut registrations = connected();
    registrations.register(1, terms(2_000), "a");
    registrations.register(2, terms(2_000), "b");
    registrations.next_changes(10, at(1)).unwrap();
    registrations.acknowledged(0, &[]);
    assert_eq!(registrations.disconnected(), [1, 2]);
    assert!(!registrations.is_watched(1));
    registrations.unregister(1);
    assert_eq!(registrations.next_changes(10, at(2)), None);
    assert_eq!(registrations.next_heartbeat(), None);
    registrations.connected(at(3));
    let changes = registrations.next_changes(10, at(3)).unwrap();
    assert_eq!(
        (
            changes.batch,
            changes.register.len(),
            changes.unregister.len()
        ),
        (1, 1, 1)
    );
    // An acknowledgement of the old connection cannot come over the new one, and proves nothing.
    assert_eq!(registrations.acknowledged(0, &[]), []);
}

/// A client may take and release locks for months without a node.
#[test]
fn a_lease_that_no_node_has_known_leaves_nothing_behind() {
    let mut registrations = Registrations::default();
    registrations.register(1, terms(2_000), "a");
    registrations.unregister(1);
    let changed = |registrations: &Registrations<_>| registrations.changed.len();
    assert_eq!(changed(&registrations), 0);
    registrations.connected(at(0));
    registrations.register(2, terms(2_000), "b");
    registrations.next_changes(10, at(1)).unwrap();
    registrations.disconnected();
    registrations.unregister(2);
    assert_eq!(changed(&registrations), 1, "the node may know it");
}

#[test]
fn heartbeats_are_sent_twice_in_the_shortest_silence_timeout() {
    let mut registrations = connected();
    registrations.register(1, terms(30_000), "a");
    registrations.register(2, terms(2_000), "b");
    registrations.next_changes(10, at(0)).unwrap();
    let due = registrations.next_heartbeat().unwrap();
    assert!(due.since(at(0)) <= Duration::from_secs(2) / 6);
    assert!(!registrations.heartbeat(due.before(ms(1))));
    assert!(registrations.heartbeat(due));
    assert!(!registrations.heartbeat(due));
    registrations.unregister(2);
    registrations.next_changes(10, due).unwrap();
    assert!(registrations.heartbeat(due.after(Duration::from_secs(1))));
    let later = registrations.next_heartbeat().unwrap();
    assert!(later.since(due) > Duration::from_secs(3), "{later:?}");
}
