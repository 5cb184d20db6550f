//! Waiters are notified on every shard, also after changes of its nodes.

use super::*;
use crate::redis::rights::check_namespaces;
use crate::waiters::{soon, spawn_waiter};

/// So long that no waiter is served because a lease has ended.
const TTL: Duration = Duration::from_secs(60);

/// Two clients. The first holds locks for which the second waits.
struct Scenario {
    cluster: Cluster,
    holder: Client,
    waiter: Client,
}

impl Scenario {
    async fn start() -> Self {
        let cluster = Cluster::start();
        let url = cluster.url();
        let (holder, waiter) = (client_at(&url, TTL).await, client_at(&url, TTL).await);
        Self {
            cluster,
            holder,
            waiter,
        }
    }

    /// The lock passes on, although something happens to its shard meanwhile.
    async fn passes_on(&self, name: &str, event: impl AsyncFnOnce(&Cluster)) {
        let guard = lock(&self.holder, name).await;
        let waiting = spawn_waiter(&self.waiter.mutex(name).unwrap());
        let queue = format!("{}:queue", record(name));
        let queued = async || self.cluster.cli_at(&queue, &["EXISTS", &queue]) == "1";
        eventually_async(SOON, queued).await;
        event(&self.cluster).await;
        let token = guard.token();
        guard.release().await.unwrap();
        let next = soon(waiting).await;
        assert!(next.token() > token);
        next.release().await.unwrap();
    }
}

/// The message of a node comes over one of the connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_notified_once() {
    let cluster = Cluster::start();
    let a = StoreClient::connect(&cluster.url(), 1).await;
    let b = StoreClient::connect(&cluster.url(), 2).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_granted_the_lock_after_its_slot_has_moved() {
    let scenario = Scenario::start().await;
    let moves = async |cluster: &Cluster| {
        let slot = cluster.slot_of(&record("moves"));
        cluster.move_slot(slot, (cluster.master_of(slot) + 1) % 3);
    };
    scenario.passes_on("moves", moves).await;
}

/// Whether its client has noticed the failover or not: it may stay subscribed at the old master, which
/// remains as a replica and does not reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_granted_the_lock_after_a_failover() {
    let scenario = Scenario::start().await;
    for (noticed, name) in [(false, "fails over"), (true, "fails back")] {
        let fails_over = async |cluster: &Cluster| {
            let slot = cluster.slot_of(&record(name));
            let replica = cluster.replica_of(cluster.master_of(slot));
            tokio::task::block_in_place(|| {
                cluster.fail_over(replica);
                cluster.settled();
            });
            if noticed {
                let mutex = scenario.waiter.mutex(name).unwrap();
                assert!(mutex.inspect().await.unwrap().is_some());
            }
        };
        scenario.passes_on(name, fails_over).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_granted_the_lock_over_a_new_connection() {
    let scenario = Scenario::start().await;
    for (master, name) in names_on_each(&scenario.cluster, 1) {
        let reconnects = async |cluster: &Cluster| {
            let node = &cluster.nodes()[master];
            node.cli(&["CLIENT", "KILL", "USER", "default"]);
            // Two for each client, over the new connections.
            let channels = ["PUBSUB", "CHANNELS", "leasehold:client:*"];
            let subscribed = async || node.cli(&channels).lines().count() == 4;
            eventually_async(SOON, subscribed).await;
        };
        scenario.passes_on(&name, reconnects).await;
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
