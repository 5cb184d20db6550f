//! Grants through the file. The rules of the queue are in `differential`.

use std::fs;

use leasehold::__private::store::{Event, EventScope};
use leasehold_core::Notice;

use super::*;
use crate::store_ext::StoreExt as _;

#[tokio::test]
async fn a_deleted_file_has_lost_its_locks_and_clients_are_notified() {
    let fixture = FileFixture::new();
    let [holder, waiter] = fixture.two_clients().await;
    let first = holder.acquire("a", 1).await;
    assert_eq!(waiter.wait("a", 1).await, 0);
    // Only the file itself: the files that SQLite keeps beside it do not belong to the new one.
    fs::remove_file(fixture.path()).unwrap();
    // Each store notices it at its next request, of whatever kind.
    assert_eq!(holder.store.inspect(&key("a")).await.unwrap(), None);
    let interrupted = [Event::Interrupted(EventScope::Store)];
    assert_eq!(holder.next_events(1).await, interrupted);
    assert_eq!(waiter.events(), []);
    assert!(waiter.acquire("a", 2).await > first);
    assert_eq!(waiter.next_events(1).await, interrupted);
    let lost = holder.apply(renew("a", 1)).await;
    assert_eq!(lost, TAKEN_OVER);

    // All files are deleted, and none was created again.
    for name in fixture
        .files()
        .iter()
        .filter(|name| !name.ends_with("-wake"))
    {
        fs::remove_file(fixture.directory.path().join(name)).unwrap();
    }
    for client in [&holder, &waiter] {
        assert_eq!(client.apply(renew("a", 2)).await, FREE);
        assert_eq!(client.next_events(1).await, interrupted);
    }
    // The new file has a queue of its own, and the same notify sockets.
    passes_on(&waiter, &holder, "a").await;
}

#[tokio::test]
async fn many_grants_of_one_transaction_are_all_notified() {
    let fixture = FileFixture::new();
    let [holder, waiter] = fixture.two_clients().await;
    let names: Vec<_> = (0..1_000).map(|number| format!("n{number:099}")).collect();
    for (client, request) in [
        (&holder, (|name| acquire(name, 1)) as fn(&str) -> Request),
        (&waiter, |name| wait(name, 1)),
        (&holder, |name| release(name, 1)),
    ] {
        let batch = names.iter().map(|name| client.own(request(name)));
        client.store.apply(batch.collect()).await;
    }
    let events = waiter.next_events(names.len()).await;
    for (name, event) in names.iter().zip(events) {
        let expected =
            matches!(&event, Event::Notice(key, Notice::Granted(_)) if key.name.as_str() == name);
        assert!(expected, "{name}: {event:?}");
    }
}

#[tokio::test]
async fn a_queue_is_deleted_after_its_end_and_not_before() {
    let fixture = FileFixture::new();
    let clock = ManualClock::new();
    let store = Arc::new(fixture.open_with_clock(clock.clone()).await) as Arc<dyn Store>;
    let waiter = StoreClient::listening(&store, 12).await;
    let short = Duration::from_secs(1);
    for name in ["long", "short"] {
        granted(&*store, lasting(acquire(name, 1), short)).await;
    }
    assert_eq!(waiter.wait("long", 1).await, 0);
    waiter.join(lasting(wait("short", 1), short)).await;
    assert_eq!(fixture.count("members"), 2);
    // The leases have ended, and the counters are behind the clock.
    clock.advance(TTL * 2);
    until_deleted(&fixture, &*store, "heads WHERE name = 'short'").await;
    assert_eq!(fixture.count("members WHERE name = 'short'"), 0);
    assert_eq!(fixture.count("members WHERE name = 'long'"), 1);
    assert!(is_refused(&send(&*store, acquire("long", 2)).await));
    waiter.granted("long", 1).await;
}
