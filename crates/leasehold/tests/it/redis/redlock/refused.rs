//! Errors at connect.

use leasehold::LeaseOptions;
use leasehold_testkit::free_port;

use super::*;
use crate::fixture::with_options;
use crate::redis::refused::refused;

async fn invalid(url: &str, advice: &str) {
    refused(url, ErrorKind::InvalidConfig, advice).await;
}

fn ports(masters: &Masters) -> Vec<u16> {
    masters.servers().iter().map(RedisServer::port).collect()
}

/// The URL alone is refused, without a connection.
#[tokio::test]
async fn too_few_masters_an_even_number_or_an_invalid_ttl() {
    let ports: Vec<_> = (0..4).map(|_| free_port()).collect();
    invalid(&at(&ports[..1]), "fewer than three").await;
    invalid(&at(&ports[..2]), "fewer than three").await;
    invalid(&at(&ports), "even number").await;
    let three = at(&ports[..3]);
    for text in ["", "1", "50ms", "25h", "9s9", "99999999999999999999h"] {
        invalid(&format!("{three}?longest-ttl={text}"), "longest-ttl").await;
    }
}

#[tokio::test]
async fn one_server_under_two_names() {
    let masters = Masters::start(2);
    let ports = ports(&masters);
    invalid(&at(&[ports[0], ports[1], ports[0]]), "twice").await;
    let url = format!("{},localhost:{}", at(&ports), ports[1]);
    invalid(&url, "one and the same server").await;
    invalid(&url, &format!("localhost:{}", ports[1])).await;
}

#[tokio::test]
async fn replicas_and_nodes_of_clusters() {
    let masters = Masters::start(2);
    let ports = ports(&masters);
    let replica = RedisServer::options().replica_of(masters.server(0)).start();
    let url = at(&[ports[0], ports[1], replica.port()]);
    invalid(&url, &format!("is a replica of 127.0.0.1:{}", ports[0])).await;
    let node = RedisServer::options().config("cluster-enabled yes").start();
    let url = at(&[ports[0], ports[1], node.port()]);
    invalid(&url, "redis+cluster://").await;
}

#[tokio::test]
async fn an_unreachable_majority_is_named() {
    let masters = Masters::start(1);
    let (here, a, b) = (masters.server(0).port(), free_port(), free_port());
    for port in [a, b] {
        let url = at(&[here, a, b]);
        refused(&url, ErrorKind::NoQuorum, &port.to_string()).await;
    }
}

#[tokio::test]
async fn a_ttl_longer_than_the_longest() {
    let masters = Masters::aged(3);
    let url = format!("{}?longest-ttl=20s", masters.url());
    let client = client_at(&url, Duration::from_secs(30)).await;
    let error = client.mutex("a").unwrap().try_lock().await.unwrap_err();
    let parts = ["20s", "longest-ttl", "\"a\""];
    assert_error(&error, ErrorKind::InvalidConfig, &parts);
    assert_eq!(records(&all(&masters), "a"), 0);
    let mutex = client.mutex("a").unwrap();
    let mutex = with_options(&mutex, LeaseOptions::new().ttl(Duration::from_secs(20)));
    mutex.lock().await.unwrap().release().await.unwrap();
    // The default is a minute.
    let client = client_at(&masters.url(), Duration::from_secs(61)).await;
    let error = client.mutex("a").unwrap().try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
}
