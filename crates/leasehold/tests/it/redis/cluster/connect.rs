//! What a URL that does not fit is answered with, at connect.

use leasehold::ErrorKind;
use leasehold_testkit::{RedisServer, free_port};

use super::*;

async fn refused(url: &str) -> Error {
    match try_open(url).await {
        Err(error) => error,
        Ok(store) => panic!("{store} opens"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_server_is_no_cluster() {
    let server = RedisServer::start();
    let url = format!("redis+cluster://127.0.0.1:{}", server.port());
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("use redis://"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_no_single_server() {
    let server = RedisServer::options().config("cluster-enabled yes").start();
    let error = refused(&server.url()).await;
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_told() {
    let (a, b) = (free_port(), free_port());
    let error = refused(&format!("redis+cluster://127.0.0.1:{a},127.0.0.1:{b}")).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("nobody listens"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_without_a_node_are_told() {
    let server = RedisServer::options().config("cluster-enabled yes").start();
    let url = format!("redis+cluster://127.0.0.1:{}", server.port());
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().contains("16384 slots"), "{error}");
    server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16382"]);
    let error = refused(&url).await;
    assert!(error.to_string().contains("1 slots"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_living_seed_is_enough() {
    let cluster = Cluster::start();
    let dead = free_port();
    let replica = cluster.nodes()[4].port();
    let store = open(&format!(
        "redis+cluster://127.0.0.1:{dead},127.0.0.1:{replica}"
    ))
    .await;
    for nth in 0..20 {
        granted(&*store, acquire(&format!("a{nth}"), 1)).await;
    }
    let shards: std::collections::HashSet<_> = (0..20)
        .map(|nth| store.shard(&key(&format!("a{nth}"))))
        .collect();
    assert_eq!(shards.len(), 3);
}
