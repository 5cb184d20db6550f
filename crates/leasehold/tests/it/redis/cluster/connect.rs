//! Errors at connect.

use leasehold_testkit::free_port;

use super::*;
use crate::redis::refused::refused;

#[tokio::test(flavor = "multi_thread")]
async fn urls_and_servers_that_do_not_match() {
    let single = RedisServer::start();
    let url = format!("redis+cluster://127.0.0.1:{}", single.port());
    refused(&url, ErrorKind::InvalidConfig, "use redis://").await;
    let (a, b) = (free_port(), free_port());
    let url = format!("redis+cluster://127.0.0.1:{a},127.0.0.1:{b}");
    refused(&url, ErrorKind::Unreachable, "no server listens").await;
    let node = RedisServer::options().config("cluster-enabled yes").start();
    refused(&node.url(), ErrorKind::InvalidConfig, "redis+cluster://").await;
    let url = format!("redis+cluster://127.0.0.1:{}", node.port());
    refused(&url, ErrorKind::Store, "16384 slots").await;
    node.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16382"]);
    refused(&url, ErrorKind::Store, "1 slots").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_living_seed_is_enough() {
    let cluster = Cluster::start();
    let (dead, replica) = (free_port(), cluster.nodes()[4].port());
    let url = format!("redis+cluster://127.0.0.1:{dead},127.0.0.1:{replica}");
    let store = open(&url).await;
    let names: Vec<_> = (0..20).map(|nth| format!("a{nth}")).collect();
    for name in &names {
        granted(&*store, acquire(name, 1)).await;
    }
    let shards = names.iter().map(|name| store.shard(&key(name)));
    let shards: std::collections::HashSet<_> = shards.collect();
    assert_eq!(shards.len(), 3);
}
