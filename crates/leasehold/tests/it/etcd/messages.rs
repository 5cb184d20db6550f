//! Clients of other processes: their keys, their messages, and those that are gone.

use leasehold::__private::store::Event;
use leasehold_core::{ClientId, Outcome};

use super::*;

/// The lease of a client, as its key names it.
fn lease_of(cluster: &EtcdCluster, client: ClientId) -> String {
    let route = value(cluster, &format!("leasehold/client/{client}"));
    route.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_is_dead_is_passed_over() {
    let cluster = EtcdCluster::start();
    let url = cluster.url();
    let holder = StoreClient::connect(&url, 1).await;
    let dead = StoreClient::connect(&url, 2).await;
    let next = StoreClient::connect(&url, 3).await;
    holder.acquire("a", 1).await;
    assert_eq!(dead.wait("a", 1).await, 0);
    assert_eq!(next.wait("a", 1).await, 1);
    let id = dead.id;
    assert!(!lease_of(&cluster, id).is_empty());
    drop(dead);
    eventually_async(SOON, async || lease_of(&cluster, id).is_empty()).await;
    holder.release("a", 1).await;
    next.granted("a", 1).await;
}

/// Two locks of one batch, and two waiters of one process: each message arrives.
#[tokio::test(flavor = "multi_thread")]
async fn messages_of_one_batch_do_not_replace_each_other() {
    let cluster = EtcdCluster::start();
    let [near, far] = [open(&cluster.url()).await, open(&cluster.url()).await];
    let holder = StoreClient::on(&near, 1);
    let waiters = [2, 3].map(|number| StoreClient::on(&far, number));
    for name in ["a", "b"] {
        holder.acquire(name, 1).await;
        waiters[0].wait(name, 1).await;
    }
    holder.acquire("c", 1).await;
    waiters[1].wait("c", 1).await;
    let releases = ["a", "b", "c"].map(|name| holder.own(release(name, 1)));
    let replies = near.apply(releases.to_vec()).await;
    assert_eq!(words(&replies), "released released released");
    let names: std::collections::BTreeSet<_> = waiters[0]
        .next_events(2)
        .await
        .into_iter()
        .map(|event| match event {
            Event::Notice(key, _) => key.name.to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names, ["a", "b"].map(str::to_owned).into());
    waiters[1].granted("c", 1).await;
    // What is left of them goes with the lease of the receivers.
    let ids = waiters.each_ref().map(|waiter| waiter.id.to_string());
    drop((waiters, far));
    eventually_async(SOON, async || {
        let inboxes = cluster.ctl(&["get", "leasehold/inbox/", "--prefix", "--keys-only"]);
        !ids.iter().any(|id| inboxes.contains(&**id))
    })
    .await;
}

/// The lease of a process is revoked: its clients are notified, and can wait again.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_is_replaced() {
    let cluster = EtcdCluster::start();
    let [holder, waiter] = StoreClient::two(&cluster.url()).await;
    passes_on(&holder, &waiter, "a").await;
    let lease = lease_of(&cluster, waiter.id);
    waiter.events();
    revoke_lease(&cluster, &lease);
    eventually_async(SOON, async || {
        let events = waiter.events();
        let interrupted = |event: &_| matches!(event, Event::Interrupted(_));
        events.iter().any(interrupted)
    })
    .await;
    until_wakeup(&*waiter.store, WakeupMode::Grants).await;
    assert_ne!(lease_of(&cluster, waiter.id), lease);
    waiter.events();
    passes_on(&holder, &waiter, "b").await;
}

/// The watch is behind no compaction, and the route of a receiver that has another lease by now is read again.
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_loses_no_message() {
    let cluster = EtcdCluster::start();
    let [holder, waiter] = StoreClient::two(&cluster.url()).await;
    holder.acquire("a", 1).await;
    assert_eq!(waiter.wait("a", 1).await, 0);
    for _ in 0..3 {
        let status = cluster.ctl(&["put", "other", "x", "--write-out=json"]);
        let (_, revision) = status.split_once("\"revision\":").unwrap();
        let end = revision.find(|c: char| !c.is_ascii_digit()).unwrap();
        cluster.ctl(&["compact", &revision[..end]]);
    }
    holder.release("a", 1).await;
    waiter.granted("a", 1).await;
}

/// A client that sees a dead holder for the first time knows how long ago it wrote, if its mark is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_holder_is_known_by_its_mark() {
    let cluster = EtcdCluster::start();
    let token = granted(&*open(&cluster.url()).await, acquire("a", 1)).await;
    let first = applied(&*open(&cluster.url()).await, acquire("a", 2)).await;
    assert!(matches!(first, Outcome::Refused { .. }), "{first:?}");
    // As if it had been granted 90 s ago: the ttl is 30 s.
    let document = value(&cluster, "leasehold/doc/app/t/a");
    revoke_lease(&cluster, document.lines().next().unwrap());
    let next = granted(&*open(&cluster.url()).await, acquire("a", 3)).await;
    assert!(next > token);
}
