//! Count-down latches.

use std::time::Duration;

use leasehold::__private::store::{Feature, LatchStatus};
use leasehold::{ErrorKind, Latch, LeaseOptions};
use leasehold_testkit::eventually_async;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::assert_conflict;
use crate::fixture::{Fixture, fresh_name, with_options};
use crate::store_client::{TTL, assert_error};
use crate::store_ext::NOTICED_MAX;
use crate::waiters::{SOON, soon, spawn_polled};

/// How many tasks wait for a latch in one test.
const WAITERS: usize = 100;

const fn status(arrived: u32, count: u32) -> LatchStatus {
    LatchStatus { arrived, count }
}

/// The same latch of some clients.
async fn shared<const CLIENTS: usize>(fixture: &Fixture, count: u32) -> [Latch; CLIENTS] {
    let name = fresh_name("latch");
    let clients = fixture.clients::<CLIENTS>().await;
    clients.map(|client| client.latch(&name, count).unwrap())
}

pub(super) async fn it_opens_when_all_have_arrived_or_is_not_made(fixture: Fixture) {
    let (name, client) = (fresh_name("latch"), fixture.client().await);
    if !fixture.has(Feature::Latches).await {
        assert!(matches!(fixture, Fixture::Masters(_)));
        let error = client.latch(&name, 2).unwrap_err();
        assert_error(&error, ErrorKind::Unsupported, &["no latches"]);
        return;
    }
    let latch = client.latch(&name, 3).unwrap();
    assert_eq!(latch.status().await.unwrap(), status(0, 3));
    let waiter = latch.clone();
    let waiting = spawn_polled(async move { waiter.wait().await.unwrap() });
    // The client counts once, however often it arrives.
    for _ in 0..3 {
        assert_eq!(latch.arrive().await.unwrap(), status(1, 3));
    }
    let long = "i".repeat(256);
    for (id, arrived) in [("latch 9 9", 2), ("latch 9 9", 2), (&long, 3), ("late", 3)] {
        assert!(!waiting.is_finished() || arrived == 3);
        assert_eq!(latch.arrive_as(id).await.unwrap(), status(arrived, 3));
    }
    soon(waiting).await;
    latch.wait().await.unwrap();
    assert!(latch.wait_timeout(Duration::ZERO).await.unwrap());
    assert_eq!(latch.status().await.unwrap(), status(3, 3));
    assert!(latch.reset().await.unwrap());
    assert!(!latch.reset().await.unwrap());
    assert_eq!(latch.status().await.unwrap(), status(0, 3));
    assert!(!latch.wait_timeout(Duration::from_secs(2)).await.unwrap());
}

pub(super) async fn counts_ids_and_ttls_are_checked(fixture: Fixture) {
    let client = fixture.client().await;
    let name = fresh_name("latch");
    for count in [0, 10_001] {
        let error = client.latch(&name, count).unwrap_err();
        assert_error(&error, ErrorKind::InvalidConfig, &["from 1 to 10000"]);
    }
    let [one, other] = [2, 3].map(|count| client.latch(&name, count).unwrap());
    for id in ["", "a\nb", &"i".repeat(257)] {
        let error = one.arrive_as(id).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
    }
    for ttl in [Duration::from_millis(999), Duration::from_secs(31_536_001)] {
        assert_eq!(one.ttl(ttl).unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
    one.ttl(Duration::from_secs(1)).unwrap();
    one.arrive_as("a").await.unwrap();
    for error in [
        other.arrive_as("b").await.unwrap_err(),
        other.status().await.unwrap_err(),
        other.wait().await.unwrap_err(),
    ] {
        assert_conflict(&error, "the latch has the count 2, not 3");
    }
    assert_eq!(one.status().await.unwrap(), status(1, 2));
    assert!(other.reset().await.unwrap());
    assert_eq!(other.arrive_as("b").await.unwrap(), status(1, 3));
}

/// Those of several clients, and those that begin when it is open already.
pub(super) async fn a_hundred_waiters_go_on_when_it_opens(fixture: Fixture) {
    let latches: [Latch; 5] = shared(&fixture, 3).await;
    let mut waiters = JoinSet::new();
    for nth in 0..WAITERS {
        let latch = latches[nth % latches.len()].clone();
        waiters.spawn(async move {
            timeout(SOON, latch.wait()).await.unwrap().unwrap();
            Instant::now()
        });
    }
    latches[0].arrive().await.unwrap();
    latches[1].arrive().await.unwrap();
    assert_eq!(latches[1].arrive().await.unwrap(), status(2, 3));
    // Whoever waits for less than all has read the latch by then.
    tokio::task::yield_now().await;
    assert!(waiters.try_join_next().is_none());
    let before = Instant::now();
    assert!(latches[2].arrive().await.unwrap().is_open());
    let mut last = before;
    while let Some(open) = waiters.join_next().await {
        let open = open.unwrap();
        assert!(open >= before);
        last = last.max(open);
    }
    let took = last - before;
    println!("{WAITERS} waiters went on within {took:?}");
    // They are notified: observers read again only after a longer time.
    assert!(took < NOTICED_MAX, "{took:?}");
    latches[4].wait().await.unwrap();
}

/// What had arrived is forgotten.
pub(super) async fn waiters_of_one_that_expires_wait_for_the_next(fixture: Fixture) {
    let [brief, latch] = shared(&fixture, 2).await;
    let brief = brief.ttl(Duration::from_secs(1)).unwrap();
    brief.arrive_as("a").await.unwrap();
    let waiter = latch.clone();
    let waiting = spawn_polled(async move { waiter.wait().await.unwrap() });
    let is_over = async || latch.status().await.unwrap() == status(0, 2);
    eventually_async(SOON, is_over).await;
    assert_eq!(latch.arrive_as("b").await.unwrap(), status(1, 2));
    assert!(!waiting.is_finished());
    assert_eq!(latch.arrive_as("c").await.unwrap(), status(2, 2));
    soon(waiting).await;
}

/// Both kinds are named, whichever came first.
pub(super) async fn a_name_is_used_as_a_lock_or_as_a_latch(fixture: Fixture) {
    let [latch] = shared(&fixture, 2).await;
    let client = fixture.client().await;
    let mutex = client.mutex(latch.name()).unwrap();
    let guard = mutex.lock().await.unwrap();
    for error in [
        latch.arrive().await.unwrap_err(),
        latch.status().await.unwrap_err(),
        latch.wait().await.unwrap_err(),
        latch.reset().await.map(drop).unwrap_err(),
    ] {
        assert_conflict(
            &error,
            "used as a lock, and this operation is of another kind",
        );
    }
    let holder = mutex.inspect().await.unwrap().unwrap();
    assert_eq!(holder.lease, guard.lease_id());
    guard.release().await.unwrap();

    assert_eq!(latch.arrive().await.unwrap(), status(1, 2));
    let election = client.election(latch.name()).unwrap();
    let fixed = with_options(&mutex, LeaseOptions::new().fixed(TTL));
    for error in [
        mutex.lock().await.map(drop).unwrap_err(),
        mutex.try_lock().await.map(drop).unwrap_err(),
        fixed.try_lock().await.map(drop).unwrap_err(),
        mutex.inspect().await.map(drop).unwrap_err(),
        mutex.revoke().await.map(drop).unwrap_err(),
        election.leader().await.map(drop).unwrap_err(),
        election.observe().next().await.map(drop).unwrap_err(),
    ] {
        assert_conflict(
            &error,
            "used as a latch, and this is an operation on a lock",
        );
    }
    let mut locks = client.locks().await.unwrap().into_iter();
    assert!(!locks.any(|lock| lock.name == latch.name()));
    assert_eq!(latch.status().await.unwrap(), status(1, 2));
    assert!(latch.reset().await.unwrap());
    mutex.lock().await.unwrap().release().await.unwrap();
}
