//! Those who wait are told, on every shard, and after everything that may happen to one.

use leasehold::ErrorKind;
use leasehold::store::Event;
use leasehold_testkit::eventually_async;

use super::*;
use crate::redis::event_log::{Asker, queue_dead, script_calls};
use crate::waiters::{in_line, soon};

/// So long that nobody is served because the time of a holder is over.
const TTL: Duration = Duration::from_secs(60);

/// Waits until somebody is in the queue of a lock.
async fn queued(cluster: &Cluster, name: &str) {
    let queue = format!("{}:queue", record(name));
    eventually_async(SOON, async || {
        cluster.cli_at(&queue, &["EXISTS", &queue]) == "1"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_handed_over_on_every_shard() {
    let cluster = Cluster::start();
    let [a, b] = [client(&cluster, TTL).await, client(&cluster, TTL).await];
    for (_, name) in names_on_each(&cluster, 2) {
        let mut guard = lock(&a, &name).await;
        for waits in [&b, &a, &b] {
            let waiter = in_line(&waits.mutex(&name).unwrap());
            queued(&cluster, &name).await;
            let token = guard.token();
            guard.release().await.unwrap();
            guard = soon(waiter).await;
            assert!(guard.token() > token);
        }
        guard.release().await.unwrap();
    }
}

/// The message of a node comes over its own connection only, however many there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_told_once() {
    let cluster = Cluster::start();
    let a = Asker::connect(&cluster.url(), 1).await;
    let b = Asker::connect(&cluster.url(), 2).await;
    let names: Vec<_> = (0..12).map(|nth| format!("once/{nth}")).collect();
    for name in &names {
        a.take(name, 1).await;
        b.wait(name, 1).await;
    }
    for name in &names {
        a.release(name, 1).await;
        b.granted(name, 1).await;
        // Each node answers behind what it has told before.
        for name in &names {
            b.ask(renew(name, 2)).await;
        }
        let heard = b.event_log.take();
        let again = heard.iter().any(|event| matches!(event, Event::Notice(..)));
        assert!(!again, "{heard:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_told_after_the_slot_has_moved() {
    let cluster = Cluster::start();
    let [a, b] = [client(&cluster, TTL).await, client(&cluster, TTL).await];
    let name = "moves";
    let guard = lock(&a, name).await;
    let waiter = in_line(&b.mutex(name).unwrap());
    queued(&cluster, name).await;
    let slot = cluster.slot_of(&record(name));
    cluster.move_slot(slot, (cluster.master_of(slot) + 1) % 3);
    guard.release().await.unwrap();
    drop(soon(waiter).await);
}

/// Whether its client was told of the failover or not: it may stay subscribed at the old master, which
/// lives on as a replica and is silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_told_after_a_failover() {
    let cluster = Cluster::start();
    let [a, b] = [client(&cluster, TTL).await, client(&cluster, TTL).await];
    for (asks, name) in [(false, "fails over"), (true, "fails back")] {
        let guard = lock(&a, name).await;
        let waiter = in_line(&b.mutex(name).unwrap());
        queued(&cluster, name).await;
        let slot = cluster.slot_of(&record(name));
        let replica = cluster.replica_of(cluster.master_of(slot));
        tokio::task::block_in_place(|| {
            cluster.fail_over(replica);
            cluster.settled();
        });
        if asks {
            assert!(b.mutex(name).unwrap().is_locked().await.unwrap());
        }
        guard.release().await.unwrap();
        drop(soon(waiter).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_told_over_a_new_connection() {
    let cluster = Cluster::start();
    let [a, b] = [client(&cluster, TTL).await, client(&cluster, TTL).await];
    for (master, name) in names_on_each(&cluster, 1) {
        let guard = lock(&a, &name).await;
        let waiter = in_line(&b.mutex(&name).unwrap());
        queued(&cluster, &name).await;
        cluster.nodes()[master].cli(&["CLIENT", "KILL", "USER", "default"]);
        // Over the old connection nobody hears anything any more.
        let channels = ["PUBSUB", "CHANNELS", "leasehold:client:*"];
        eventually_async(SOON, async || {
            cluster.nodes()[master].cli(&channels).lines().count() == 4
        })
        .await;
        guard.release().await.unwrap();
        drop(soon(waiter).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_dead_waiters_are_passed_over_in_many_short_calls() {
    let cluster = Cluster::start();
    let a = Asker::connect(&cluster.url(), 1).await;
    let b = Asker::connect(&cluster.url(), 2).await;
    let node = &cluster.nodes()[cluster.master_of(cluster.slot_of("app:{t:a}"))];
    a.take("a", 1).await;
    queue_dead(node, "a", 0..3_000);
    assert_eq!(b.wait("a", 1).await, 3_000);
    node.cli(&["CONFIG", "RESETSTAT"]);
    a.release("a", 1).await;
    b.granted("a", 1).await;
    let calls = script_calls(node);
    assert!((10..30).contains(&calls), "{calls}");
    b.release("a", 1).await;
    assert_eq!(node.cli(&["EXISTS", "app:{t:a}:queue"]), "0");
}

/// Namespaces share a connection to each node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_without_channels_does_not_keep_another_from_its_locks() {
    let cluster = Cluster::start();
    let allow = |rights: &[&str]| {
        for node in cluster.nodes() {
            node.cli(&[&["ACL", "SETUSER", "alice", "on", ">pw"], rights].concat());
        }
    };
    allow(&["~app:*", "~other:*", "&app:*", "+@all"]);
    let store = open(&cluster.url_of("alice", "pw")).await;
    let scope = |text| ScopeName::parse(text).unwrap();
    let other = Keyspace::new(scope("other"), scope("t"));
    let (a, b) = (Asker::on(&store, 1), Asker::in_space(&store, &other, 2));
    // One slot, so that both go to one node, and all of it is one batch.
    let elsewhere = |request: Request| {
        let key = other.key(request.key.name.clone());
        Request::new(key, b.own(request).op)
    };
    let (release, denied) = (elsewhere(release("a", 9, 0)), elsewhere(acquire("a", 1)));
    let batch = vec![a.own(acquire("a", 1)), release, denied];
    let replies = store.apply(batch).await;
    let [
        Reply::Applied { .. },
        Reply::Applied { .. },
        Reply::Rejected(error),
    ] = &replies[..]
    else {
        panic!("{replies:?}");
    };
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    a.release("a", 1).await;
    allow(&["&other:*"]);
    granted(&*store, elsewhere(acquire("a", 1))).await;
}
