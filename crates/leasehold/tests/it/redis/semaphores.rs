//! Semaphores in a server.

use leasehold::__private::store::{Event, Notice};

use super::*;
use crate::store_ext::StoreExt as _;

/// One of two permits.
fn permit(number: u64) -> Request {
    permits(acquire("a", number), 1, 2)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_refuses_no_renewal_and_no_release() {
    let (server, store) = server_and_store().await;
    for number in [1, 2] {
        assert!(is_granted(&send(&*store, permit(number)).await));
    }
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let renewed = send(&*store, renew("a", 1)).await;
    assert_eq!(outcome(&renewed), Some(Outcome::Kept), "{renewed:?}");
    let released = send(&*store, release("a", 2)).await;
    assert_eq!(outcome(&released), Some(Outcome::Released), "{released:?}");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(is_granted(&send(&*store, permit(3)).await));
    assert!(!is_granted(&send(&*store, permit(4)).await));
}

/// Its holders are counted again once the first end that was known has come.
#[tokio::test(flavor = "multi_thread")]
async fn holders_that_cannot_be_counted_are_kept() {
    let (server, store) = server_and_store().await;
    for number in [1, 2] {
        assert!(is_granted(&send(&*store, permit(number)).await));
    }
    server.cli(&["HSET", RECORD, "used", "2 1"]);
    for command in ["hgetall", "hdel"] {
        let other = open_without(&server, command).await;
        let reply = send(&*other, permit(3)).await;
        assert!(!is_granted(&reply), "{command}: {reply:?}");
        assert_eq!(server.cli(&["EXISTS", RECORD]), "1", "{command}");
    }
    for number in [1, 2] {
        let renewed = send(&*store, renew("a", number)).await;
        assert_eq!(outcome(&renewed), Some(Outcome::Kept), "{renewed:?}");
    }
    assert!(!is_granted(&send(&*store, permit(3)).await));
}

/// Tracks a mutex, and waits until it is tracked: whatever the client held before is tracked as well, or never.
async fn until_all_tracked(server: &RedisServer, client: &StoreClient, number: u64) {
    client.acquire("b", number).await;
    server.cli(&["DEL", "app:{t:b}"]);
    client.until_changed("b").await;
}

/// Otherwise the renewals of one would cause renewals of all others, and those in turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_of_permits_is_not_notified_of_the_others_but_of_a_revocation() {
    let server = RedisServer::start();
    let [a, b] = StoreClient::two(&server.url()).await;
    for (number, weight) in [(1, 1), (2, 2)] {
        let request = permits(acquire("a", number), weight, 3);
        granted(&*a.store, a.own(request)).await;
    }
    assert_eq!(b.join(permits(wait("a", 1), 1, 3)).await, 0);
    a.release("a", 2).await;
    b.granted("a", 1).await;
    // After a grant by a message, and after each operation.
    let operations = [None, Some(renew("a", 1)), Some(enter("a", 1, 2))];
    for (number, operation) in (1..).zip(operations) {
        if let Some(operation) = operation {
            assert_eq!(b.apply(operation).await, Outcome::Kept);
        }
        until_all_tracked(&server, &b, number).await;
        assert_eq!(a.apply(renew("a", 1)).await, Outcome::Kept);
        b.settle().await;
        assert_eq!(b.events(), [], "{number}");
    }
    let request = permits(acquire("a", 2), 1, 3);
    granted(&*b.store, b.own(request)).await;
    until_all_tracked(&server, &b, 4).await;
    assert_eq!(a.apply(renew("a", 1)).await, Outcome::Kept);
    b.settle().await;
    assert_eq!(b.events(), []);

    a.apply(revoke("a")).await;
    let revoked = [1, 2].map(|number| {
        let lease = b.lease(number);
        Event::Notice(key("a"), Notice::Revoked { lease })
    });
    assert_eq!(b.next_events(2).await, revoked);
}

/// They request their permits again, as nothing in the queue says how many there are.
#[tokio::test(flavor = "multi_thread")]
async fn the_waiters_of_a_semaphore_that_was_deleted_are_not_granted_a_mutex() {
    let server = RedisServer::start();
    let [a, b] = StoreClient::two(&server.url()).await;
    let request = || permits(wait("a", 1), 1, 2);
    let deleted = async || {
        for number in [1, 2] {
            granted(&*a.store, a.own(permit(number))).await;
        }
        assert_eq!(b.join(request()).await, 0);
        server.cli(&["DEL", RECORD]);
    };
    let lease = b.lease(1);
    let is_asked = Event::Notice(key("a"), Notice::Next { lease, ttl: ttl(1) });

    deleted().await;
    a.acquire("a", 3).await;
    b.until_event(&is_asked).await;
    let error = b.rejected(request()).await;
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    a.release("a", 3).await;

    deleted().await;
    assert_eq!(a.apply(renew("a", 1)).await, FREE);
    b.until_event(&is_asked).await;
    granted(&*b.store, b.own(request())).await;
    b.release("a", 1).await;

    // A request for permits serves them, with the number of permits that it names.
    deleted().await;
    granted(&*b.store, b.own(request())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_that_a_user_may_not_read_is_an_error() {
    let (server, store) = server_and_store().await;
    granted(&*store, permit(1)).await;
    for command in ["HGET", "HGETALL"] {
        let other = open_without(&server, command).await;
        let inspected = other.inspect(&key("a")).await.unwrap_err();
        let listed = other.held(&space()).await.unwrap_err();
        for error in [inspected, listed] {
            let command = format!("({command} of key");
            assert_error(&error, ErrorKind::Unauthorized, &[&command]);
            assert_eq!(error.lock(), Some("a"));
            assert!(error.store().is_some());
        }
    }
}
