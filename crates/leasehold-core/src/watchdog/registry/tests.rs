use super::*;
use crate::time::Ttl;

fn at(millis: u64) -> Instant {
    Instant::default().after(Duration::from_millis(millis))
}

fn terms(millis: u64) -> Terms {
    let ttl = Ttl::from_millis(millis).unwrap();
    let span = ttl.as_duration();
    Terms::new(ttl, span / 3, span / 30, Terms::NO_END)
}

fn connected() -> Registry<&'static str> {
    let mut registry = Registry::default();
    registry.connected(at(0));
    registry
}

#[test]
fn what_comes_and_goes_between_two_batches_is_never_told() {
    let mut registry = connected();
    registry.want(1, terms(2_000), "a");
    registry.leave(1);
    registry.leave(2);
    assert_eq!(registry.next_changes(10, at(1)), None);
}

#[test]
fn changes_are_told_once_and_acknowledged() {
    let mut registry = connected();
    registry.want(1, terms(2_000), "a");
    registry.want(2, terms(2_000), "b");
    let first = registry.next_changes(1, at(1)).unwrap();
    assert_eq!(
        (first.batch, first.register),
        (0, vec![(1, terms(2_000), "a")])
    );
    let second = registry.next_changes(10, at(1)).unwrap();
    assert_eq!(second.register, [(2, terms(2_000), "b")]);
    assert!(!registry.has_news());
    assert!(!registry.is_watched(1));
    assert_eq!(registry.acknowledged(1, &[2]), [1]);
    assert!(registry.is_watched(1) && !registry.is_watched(2));
    // The same again is nothing new; other terms are.
    registry.want(1, terms(2_000), "a");
    assert_eq!(registry.next_changes(10, at(2)), None);
    registry.want(1, terms(3_000), "a");
    assert_eq!(registry.next_changes(10, at(3)).unwrap().register.len(), 1);
    // It is looked after all the while.
    assert!(registry.is_watched(1));
    assert_eq!(registry.acknowledged(2, &[]), []);
    registry.leave(1);
    let last = registry.next_changes(10, at(4)).unwrap();
    assert_eq!((last.register, last.unregister), (vec![], vec![1]));
}

#[test]
fn a_new_connection_knows_nothing() {
    let mut registry = connected();
    registry.want(1, terms(2_000), "a");
    registry.want(2, terms(2_000), "b");
    registry.next_changes(10, at(1)).unwrap();
    registry.acknowledged(0, &[]);
    assert_eq!(registry.disconnected(), [1, 2]);
    assert!(!registry.is_watched(1));
    registry.leave(1);
    assert_eq!(registry.next_changes(10, at(2)), None);
    assert_eq!(registry.next_beat(), None);
    registry.connected(at(3));
    let told = registry.next_changes(10, at(3)).unwrap();
    assert_eq!(
        (told.batch, told.register.len(), told.unregister.len()),
        (1, 1, 1)
    );
    // An acknowledgement of the old connection cannot come over the new one, and says nothing.
    assert_eq!(registry.acknowledged(0, &[]), []);
}

#[test]
fn a_lease_that_was_left_without_a_connection_is_told_over_the_next() {
    let mut registry = connected();
    registry.want(1, terms(2_000), "a");
    registry.want(2, terms(2_000), "b");
    registry.want(3, terms(2_000), "c");
    registry.next_changes(10, at(1)).unwrap();
    registry.leave(3);
    registry.disconnected();
    registry.leave(1);
    // It may hear of none of this.
    registry.connected(at(2));
    registry.disconnected();
    registry.connected(at(3));
    let told = registry.next_changes(10, at(3)).unwrap();
    assert_eq!(told.register, [(2, terms(2_000), "b")]);
    assert_eq!(told.unregister, [1, 3]);
    assert!(!registry.has_news());
    // Nor may it hear of that.
    registry.disconnected();
    registry.connected(at(4));
    let told = registry.next_changes(10, at(4)).unwrap();
    assert_eq!(told.unregister, [1, 3]);
    registry.acknowledged(told.batch, &[]);
    registry.disconnected();
    registry.connected(at(5));
    let told = registry.next_changes(10, at(5)).unwrap();
    assert_eq!((told.register.len(), told.unregister), (1, vec![]));
}

#[test]
fn signs_of_life_come_twice_in_the_shortest_patience() {
    let mut registry = connected();
    registry.want(1, terms(30_000), "a");
    registry.want(2, terms(2_000), "b");
    registry.next_changes(10, at(0)).unwrap();
    let due = registry.next_beat().unwrap();
    assert!(due.since(at(0)) <= Duration::from_secs(2) / 6);
    assert!(!registry.beat(due.before(Duration::from_millis(1))));
    assert!(registry.beat(due));
    assert!(!registry.beat(due));
    registry.leave(2);
    registry.next_changes(10, due).unwrap();
    assert!(registry.beat(due.after(Duration::from_secs(1))));
    let later = registry.next_beat().unwrap();
    assert!(later.since(due) > Duration::from_secs(3), "{later:?}");
}
