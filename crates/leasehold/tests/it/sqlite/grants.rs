//! Waiting in the queue of the file, and being told.

use std::sync::Arc;

use leasehold::clock::ManualClock;
use leasehold::store::{Event, EventScope, WakeupMode};
use leasehold_core::Notice;

use super::event_log::{Asker, wait};
use super::*;

const ACCEPTANCE: Duration = Duration::from_secs(3);

/// Two clients: of one store, or of two on one file.
async fn pairs(place: &Place) -> [[Asker; 2]; 2] {
    let (one, other) = (place.open().await, place.open().await);
    [
        [Asker::on(&one, 11).await, Asker::on(&one, 12).await],
        [Asker::on(&one, 13).await, Asker::on(&other, 14).await],
    ]
}

#[tokio::test]
async fn a_release_grants_the_lock_to_the_head_and_tells_the_next() {
    let place = Place::new();
    for [holder, waiter] in pairs(&place).await {
        assert_eq!(holder.store.capabilities().wakeup, WakeupMode::Grants);
        let first = holder.take("a", 1).await;
        assert_eq!(waiter.wait("a", 1).await, Some(0));
        assert_eq!(waiter.wait("a", 1).await, Some(0), "asked again");
        assert_eq!(waiter.wait("a", 2).await, Some(1));
        assert_eq!(waiter.take_heard(), []);

        holder.release("a", 1).await;
        let events = waiter.hears(2).await;
        let Event::Notice(told, Notice::Granted(grant)) = &events[0] else {
            panic!("{events:?}");
        };
        assert_eq!((told, grant.lease), (&key("a"), waiter.lease(1)));
        assert_eq!(grant.ttl.as_duration(), ACCEPTANCE);
        let next = Notice::Next {
            lease: waiter.lease(2),
            ttl: grant.ttl,
        };
        assert_eq!(events[1], Event::Notice(key("a"), next));
        let entry = holder.store.inspect(&key("a")).await.unwrap().unwrap();
        assert_eq!((entry.lease, entry.count), (waiter.lease(1), 1));
        assert_eq!(entry.token, Some(grant.first));
        assert!(entry.time_left <= ACCEPTANCE && grant.first.get() > first);

        // It is the holder as any other is.
        let renewed = outcome(&*waiter.store, renew("a", waiter.lease(1), LONG)).await;
        assert_eq!(renewed.0, Outcome::Renewed);
        waiter.release("a", 1).await;
        assert!(waiter.granted("a", 2).await.first > grant.first);
        waiter.release("a", 2).await;
        assert_eq!(place.count("waiters"), 0);
        assert_eq!(place.count("records WHERE queue_until IS NOT NULL"), 0);
        assert_eq!(holder.take_heard(), []);
    }
}

#[tokio::test]
async fn nobody_overtakes_the_queue() {
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
    let (holder, waiter) = (Asker::on(&one, 11).await, Asker::on(&other, 12).await);
    holder.take("a", 1).await;
    for number in 1..=50 {
        let from = if number % 2 == 0 { &holder } else { &waiter };
        let place = from.wait("a", 100 + number).await;
        assert_eq!(u64::from(place.unwrap()), number - 1);
    }
    // One in the middle has had enough.
    let (left, _) = outcome(&*other, release("a", waiter.lease(125))).await;
    assert_eq!(left, Outcome::Lost(Loss::TakenOver));
    holder.release("a", 1).await;
    let (refused, _) = outcome(&*one, acquire("a", holder.lease(2), LONG)).await;
    assert!(matches!(
        refused,
        Outcome::Refused {
            queue_position: None,
            ..
        }
    ));
    let mut last = 0;
    for number in (1..=50).filter(|number| *number != 25) {
        let to = if number % 2 == 0 { &holder } else { &waiter };
        let number = 100 + number;
        let entry = one.inspect(&key("a")).await.unwrap().unwrap();
        assert_eq!(entry.lease, to.lease(number));
        assert!(entry.token.unwrap().get() > last);
        last = entry.token.unwrap().get();
        to.release("a", number).await;
    }
    assert_eq!(one.inspect(&key("a")).await.unwrap(), None);
}

#[tokio::test]
async fn who_does_not_listen_is_passed_over() {
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
    let (holder, waiter) = (Asker::on(&one, 11).await, Asker::on(&other, 12).await);
    holder.take("a", 1).await;
    // Of this store, of the other one, and one that listens no more.
    let deaf = Asker::on(&other, 13).await;
    for (store, number) in [(&one, 21), (&other, 22), (&other, 13)] {
        let lease = LeaseId {
            client: client(number),
            number: 1,
        };
        let (refused, _) = outcome(&**store, wait("a", lease, LONG)).await;
        assert!(matches!(
            refused,
            Outcome::Refused {
                queue_position: Some(_),
                ..
            }
        ));
    }
    assert_eq!(waiter.wait("a", 1).await, Some(3));
    other.forget(deaf.client);
    let bell = place.folder.path().join("locks.db-wake");
    let bell = bell.join(deaf.client.to_string());
    leasehold_testkit::eventually(SOON, || !bell.exists());

    holder.release("a", 1).await;
    waiter.granted("a", 1).await;
    assert_eq!(deaf.take_heard(), []);
    assert_eq!(place.count("waiters"), 0);
}

#[tokio::test]
async fn a_revocation_tells_whom_it_cut_off_and_the_next() {
    let place = Place::new();
    for [holder, waiter] in pairs(&place).await {
        // Once on each side, so that both ways are gone.
        for (holder, waiter) in [(&holder, &waiter), (&waiter, &holder)] {
            holder.take("a", 1).await;
            assert_eq!(waiter.wait("a", 1).await, Some(0));
            let revoke = Request::new(key("a"), Op::Revoke);
            let cut_off = Some(holder.lease(1));
            let (revoked, _) = outcome(&*waiter.store, revoke).await;
            assert_eq!(revoked, Outcome::Revoked { cut_off });
            let lease = holder.lease(1);
            let told = Event::Notice(key("a"), Notice::Revoked { lease });
            assert_eq!(holder.hears(1).await, [told]);
            waiter.granted("a", 1).await;
            waiter.release("a", 1).await;
        }
    }
}

/// Whatever finds the lock free grants it, also the question of somebody else.
#[tokio::test]
async fn a_lease_that_ends_by_itself_passes_to_the_head() {
    let place = Place::new();
    let clock = ManualClock::new();
    let open = async || {
        let store = SqliteStore::open_with_clock(place.path(), Arc::new(clock.clone())).await;
        Arc::new(store.unwrap()) as Arc<dyn Store>
    };
    let (one, other) = (open().await, open().await);
    let (holder, waiter) = (Asker::on(&one, 11).await, Asker::on(&other, 12).await);
    let second = Duration::from_secs(1);
    token(&*one, acquire("a", holder.lease(1), second)).await;
    assert_eq!(waiter.wait("a", 1).await, Some(0));
    clock.advance(second);
    let (lost, _) = outcome(&*one, renew("a", holder.lease(1), LONG)).await;
    assert_eq!(lost, Outcome::Lost(Loss::TakenOver));
    waiter.granted("a", 1).await;

    // A queue that nobody has asked about for two ttls and a second is forgotten.
    let (refused, _) = outcome(&*one, wait("a", holder.lease(2), second)).await;
    assert!(matches!(
        refused,
        Outcome::Refused {
            queue_position: Some(0),
            ..
        }
    ));
    clock.advance(3 * second);
    token(&*one, acquire("a", holder.lease(3), LONG)).await;
    assert_eq!(holder.take_heard(), []);
    assert_eq!(place.count("waiters"), 0);
}

#[tokio::test]
async fn listeners_learn_that_the_file_was_deleted() {
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
    let (holder, waiter) = (Asker::on(&one, 11).await, Asker::on(&other, 12).await);
    holder.take("a", 1).await;
    assert_eq!(waiter.wait("a", 1).await, Some(0));
    std::fs::remove_file(place.path()).unwrap();
    // Each notices at its next request, of whatever kind.
    assert_eq!(one.inspect(&key("a")).await.unwrap(), None);
    assert_eq!(
        holder.hears(1).await,
        [Event::Interrupted(EventScope::Store)]
    );
    assert_eq!(waiter.take_heard(), []);
    let (lost, _) = outcome(&*other, renew("b", waiter.lease(2), LONG)).await;
    assert_eq!(lost, Outcome::Lost(Loss::Gone));
    assert_eq!(
        waiter.hears(1).await,
        [Event::Interrupted(EventScope::Store)]
    );

    // The new file has a queue of its own, and the same bells.
    waiter.take("a", 1).await;
    assert_eq!(holder.wait("a", 1).await, Some(0));
    waiter.release("a", 1).await;
    holder.granted("a", 1).await;
}

#[tokio::test]
async fn many_grants_of_one_transaction_all_arrive() {
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
    let (holder, waiter) = (Asker::on(&one, 11).await, Asker::on(&other, 12).await);
    let names: Vec<_> = (0..1_000).map(|number| format!("n{number:099}")).collect();
    let all = |request: &dyn Fn(&str) -> Request| -> Vec<_> {
        names.iter().map(|name| request(name)).collect()
    };
    let lease = holder.lease(1);
    one.apply(all(&|name| acquire(name, lease, LONG))).await;
    let lease = waiter.lease(1);
    other.apply(all(&|name| wait(name, lease, LONG))).await;
    let lease = holder.lease(1);
    one.apply(all(&|name| release(name, lease))).await;
    let events = waiter.hears(names.len()).await;
    for (name, event) in names.iter().zip(events) {
        let grant = matches!(&event, Event::Notice(told, Notice::Granted(_)) if *told == key(name));
        assert!(grant, "{name}: {event:?}");
    }
}

#[tokio::test]
async fn a_queue_is_swept_when_it_is_over_and_not_before() {
    let place = Place::new();
    let clock = ManualClock::new();
    let store = SqliteStore::open_with_clock(place.path(), Arc::new(clock.clone())).await;
    let store = Arc::new(store.unwrap()) as Arc<dyn Store>;
    let waiter = Asker::on(&store, 12).await;
    let short = Duration::from_secs(1);
    for name in ["long", "short"] {
        token(&*store, acquire(name, lease(1), short)).await;
    }
    assert_eq!(waiter.wait("long", 1).await, Some(0));
    outcome(&*store, wait("short", waiter.lease(1), short)).await;
    assert_eq!(place.count("waiters"), 2);
    // Nobody holds them and their counters do not matter any more.
    clock.advance(Duration::from_secs(60));
    let mut sweeps = 0..2_000;
    while place.count("records WHERE name = 'short'") > 0 {
        assert!(sweeps.next().is_some(), "the record is never swept");
        outcome(&*store, renew("other", lease(1), LONG)).await;
    }
    assert_eq!(place.count("waiters WHERE name = 'short'"), 0);
    assert_eq!(place.count("waiters WHERE name = 'long'"), 1);
    let (refused, _) = outcome(&*store, acquire("long", lease(2), LONG)).await;
    assert!(matches!(refused, Outcome::Refused { .. }), "{refused:?}");
    waiter.granted("long", 1).await;
}
