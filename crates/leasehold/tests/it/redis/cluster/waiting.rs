//! Waiters are notified on every shard, also over new connections.

use super::*;
use crate::redis::rights::check_namespaces;
use crate::waiters::{soon, spawn_waiter};

/// So long that no waiter is served because a lease has ended.
const TTL: Duration = Duration::from_secs(60);

/// The message of a node comes over one of the connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_notified_once() {
    let cluster = Cluster::start();
    let [a, b] = StoreClient::two(&cluster.url()).await;
    let names: Vec<_> = (0..12).map(|nth| format!("once/{nth}")).collect();
    for name in &names {
        a.acquire(name, 1).await;
        b.wait(name, 1).await;
    }
    for name in &names {
        a.release(name, 1).await;
        b.granted(name, 1).await;
        // A reply of a node comes behind its earlier messages.
        for name in &names {
            b.apply(renew(name, 2)).await;
        }
        b.no_notices();
    }
}

/// Also after a migration of its slot and after a failover: `doctor::allowed`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_granted_the_lock_over_a_new_connection() {
    let cluster = Cluster::start();
    let url = cluster.url();
    let (holder, waiter) = (client_at(&url, TTL).await, client_at(&url, TTL).await);
    for (master, name) in names_on_each(&cluster, 1) {
        let guard = lock(&holder, &name).await;
        let waiting = spawn_waiter(&waiter.mutex(&name).unwrap());
        let queue = format!("{}:queue", record(&name));
        let queued = async || cluster.cli_at(&queue, &["EXISTS", &queue]) == "1";
        eventually_async(SOON, queued).await;
        let node = &cluster.nodes()[master];
        node.cli(&["CLIENT", "KILL", "USER", "default"]);
        // Two for each client, over the new connections.
        let channels = ["PUBSUB", "CHANNELS", "leasehold:client:*"];
        let subscribed = async || node.cli(&channels).lines().count() == 4;
        eventually_async(SOON, subscribed).await;
        let token = guard.token();
        guard.release().await.unwrap();
        let next = soon(waiting).await;
        assert!(next.token() > token);
        next.release().await.unwrap();
    }
}

/// Namespaces share a connection to each node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_without_channels_does_not_keep_another_from_its_locks() {
    let cluster = Cluster::start();
    for node in cluster.nodes() {
        let rights = ["~app:*", "~other:*", "&app:*", "+@all"];
        node.cli(&[&["ACL", "SETUSER", "alice", "on", ">pw"][..], &rights].concat());
    }
    let store = open(&cluster.url_of("alice", "pw")).await;
    check_namespaces(&store, cluster.nodes()).await;
}
