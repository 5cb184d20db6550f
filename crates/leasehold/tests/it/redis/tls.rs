//! Many servers over TLS: each connection that is made later is as safe as the first.

use leasehold::{Client, Guard};
use leasehold_testkit::{Cluster, RedisServer, SentinelSet, eventually_async};

use super::*;
use crate::waiters::{in_line, soon};

/// What a failover may take on a slow machine.
const LONG: Duration = Duration::from_secs(60);

/// Each failover is over long before a lease of this ttl is given up.
const TTL: Duration = Duration::from_secs(60);

async fn client(url: &str) -> Client {
    Client::builder().ttl(TTL).connect(url).await.unwrap()
}

async fn lock(client: &Client, name: &str) -> Guard {
    client.mutex(name).unwrap().lock().await.unwrap()
}

/// Waits until the store has confirmed a lease once more.
async fn confirmed(guard: &Guard) {
    let before = guard.deadline();
    eventually_async(LONG, async || {
        guard.ensure(TTL * 3 / 5).await.is_ok() && guard.deadline() > before
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_fails_over() {
    let options = RedisServer::options().tls();
    let set = SentinelSet::options().servers(options).start();
    assert!(set.url().starts_with("rediss+sentinel://"), "{}", set.url());
    let [a, b] = [client(&set.url()).await, client(&set.url()).await];
    let guard = lock(&a, "a").await;
    let first = guard.token();
    let waiter = in_line(&b.mutex("a").unwrap());
    set.until_in_sync();
    let old = set.order_failover();
    set.master_after(old);
    confirmed(&guard).await;
    guard.release().await.unwrap();
    assert!(soon(waiter).await.token() > first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_moves_slots_and_fails_over() {
    let cluster = Cluster::start_with(&RedisServer::options().tls());
    let url = cluster.url();
    assert!(url.starts_with("rediss+cluster://"), "{url}");
    let [a, b] = [client(&url).await, client(&url).await];
    let record = |name: &str| format!("leasehold:{{default:{name}}}");
    for name in ["moves", "fails over"] {
        let guard = lock(&a, name).await;
        let first = guard.token();
        let waiter = in_line(&b.mutex(name).unwrap());
        let queue = format!("{}:queue", record(name));
        let queued = async || cluster.cli_at(&queue, &["EXISTS", &queue]) == "1";
        eventually_async(SOON, queued).await;
        let slot = cluster.slot_of(&record(name));
        let master = cluster.master_of(slot);
        tokio::task::block_in_place(|| match name {
            "moves" => cluster.move_slot(slot, (master + 1) % 3),
            _ => {
                cluster.fail_over(cluster.replica_of(master));
                cluster.settled();
            }
        });
        confirmed(&guard).await;
        guard.release().await.unwrap();
        assert!(soon(waiter).await.token() > first);
    }
}
