//! What decides whether a master that may have forgotten is admitted immediately.

use leasehold::__private::store::RedisScript;
use leasehold_testkit::free_port;

use super::forgotten::*;
use super::*;

/// Acquires the lock `a` at the first two masters, for the longest ttl. Returns the instant before the request.
async fn hold_at_two(masters: &Masters) -> Instant {
    let [a, b] = [0, 1].map(|nth| masters.server(nth).port());
    let holder = open(&url([a, b, free_port()])).await;
    let begun = Instant::now();
    let request = move || lasting(acquire("a", 1), LONGEST);
    eventually_async(LONG, async || {
        try_acquire(&*holder, request()).await.is_some()
    })
    .await;
    begun
}

/// Waits until a replica receives the writes of its master.
async fn until_linked(replica: &RedisServer) {
    let link = || info(replica, "replication", "master_link_status");
    eventually_async(LONG, async || link().as_deref() == Some("up")).await;
}

/// The first master is kept out until the lease has ended. Then it is admitted, and the lock is granted.
async fn is_kept_out(store: &dyn Store, masters: &Masters, held_since: Instant) {
    kept_out(store, masters.server(0), held_since).await;
    eventually_acquire(store, "a").await;
    eventually_admitted(store, masters.server(0)).await;
}

/// Masters with a store that has used them.
async fn used(masters: &Masters) -> Arc<dyn Store> {
    let ports = [0, 1, 2].map(|nth| masters.server(nth).port());
    let store = open(&url(ports)).await;
    works_again(&*store).await;
    store
}

/// The silent ones know that it was used before.
#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_master_is_not_new_because_the_others_are_silent() {
    let far = Proxied::start(3);
    let ports = [0, 1, 2].map(|nth| far.proxies[nth].port());
    let store = open(&url(ports)).await;
    works_again(&*store).await;
    let held_since = hold_at_two(&far.masters).await;
    let [first, others @ ..] = &far.proxies[..] else {
        unreachable!()
    };
    // A part of each request that inspects a master and admits it.
    let inspection = RedisScript::Master.hash();
    first.count(inspection);
    for proxy in others {
        proxy.hold_requests(inspection, 1);
    }
    far.masters.server(0).cli(&["FLUSHALL"]);
    assert_eq!(
        try_acquire(&*store, lasting(acquire("a", 2), LONGEST)).await,
        None
    );
    // One inspection to which only the first replies, and then one to which all reply.
    eventually_async(LONG, async || first.counted(inspection) >= 2).await;
    for proxy in others {
        assert_eq!(proxy.stats().requests_held, 1);
        proxy.deliver();
    }
    is_kept_out(&*store, &far.masters, held_since).await;
}

/// The server syncs each write when it is started again. It did not when it granted the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_current_setting_does_not_prove_what_was_kept() {
    let mut masters = Masters::aged(3);
    let store = used(&masters).await;
    let first = masters.server(0);
    first.cli(&["CONFIG", "SET", "appendonly", "no"]);
    let held_since = hold_at_two(&masters).await;
    masters.server_mut(0).kill9();
    masters.server_mut(0).restart(Restart::Kept);
    assert_eq!(records(&[masters.server(0)], "a"), 0);
    assert_ne!(masters.server(0).cli(&["HGET", "app:master", "run"]), "");
    is_kept_out(&*store, &masters, held_since).await;
}

/// The record of its admission comes back with the copy, and its process was not started again.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_was_a_replica_of_an_old_copy_is_kept_out() {
    let masters = Masters::aged(3);
    let store = used(&masters).await;
    let first = masters.server(0);
    let copy = RedisServer::options().replica_of(first).start();
    // With its first replica a server changes its replication id, and has to be admitted again.
    until_linked(&copy).await;
    eventually_admitted(&*store, first).await;
    let record = first.cli(&["HGET", "app:master", "run"]);
    let copied = async || copy.cli(&["HGET", "app:master", "run"]) == record;
    eventually_async(LONG, copied).await;
    copy.cli(&["REPLICAOF", "NO", "ONE"]);
    let held_since = hold_at_two(&masters).await;
    first.cli(&["REPLICAOF", "127.0.0.1", &copy.port().to_string()]);
    until_linked(first).await;
    first.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(records(&[first], "a"), 0);
    assert_eq!(first.cli(&["HGET", "app:master", "run"]), record);
    is_kept_out(&*store, &masters, held_since).await;
}
