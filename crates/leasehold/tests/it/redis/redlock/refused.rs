//! What a URL that does not fit is answered with, at connect.

use leasehold_testkit::free_port;

use super::*;

async fn refused(url: &str) -> Error {
    match try_open(url).await {
        Err(error) => error,
        Ok(store) => panic!("{store} opens"),
    }
}

async fn invalid(url: &str, why: &str) {
    let error = refused(url).await;
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    assert!(error.to_string().contains(why), "{why}: {error}");
}

fn at(ports: &[u16]) -> String {
    let hosts: Vec<_> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    format!("redlock://{}", hosts.join(","))
}

fn ports(masters: &Masters) -> Vec<u16> {
    masters.servers().iter().map(RedisServer::port).collect()
}

/// Known from the URL alone: nobody listens at any of them.
#[tokio::test]
async fn too_few_or_an_even_number() {
    let ports: Vec<_> = (0..4).map(|_| free_port()).collect();
    invalid(&at(&ports[..1]), "fewer than three").await;
    invalid(&at(&ports[..2]), "fewer than three").await;
    invalid(&at(&ports), "even number").await;
}

#[tokio::test]
async fn one_server_under_two_names() {
    let masters = Masters::start(2);
    let ports = ports(&masters);
    invalid(&at(&[ports[0], ports[1], ports[0]]), "twice").await;
    let url = format!("{},localhost:{}", at(&ports), ports[1]);
    invalid(&url, "one and the same server").await;
    let error = refused(&url).await.to_string();
    assert!(
        error.contains(&format!("localhost:{}", ports[1])),
        "{error}"
    );
}

#[tokio::test]
async fn a_replica_is_no_master() {
    let masters = Masters::start(2);
    let [first, second] = ports(&masters)[..] else {
        unreachable!()
    };
    let replica = RedisServer::options().replica_of(masters.server(0)).start();
    let url = at(&[first, second, replica.port()]);
    invalid(&url, &format!("is a replica of 127.0.0.1:{first}")).await;
}

#[tokio::test]
async fn a_node_of_a_cluster_is_no_master() {
    let masters = Masters::start(2);
    let [first, second] = ports(&masters)[..] else {
        unreachable!()
    };
    let node = RedisServer::options().config("cluster-enabled yes").start();
    invalid(&at(&[first, second, node.port()]), "redis+cluster://").await;
}

#[tokio::test]
async fn a_majority_that_nobody_reaches_is_named() {
    let masters = Masters::start(1);
    let (here, a, b) = (masters.server(0).port(), free_port(), free_port());
    let error = refused(&at(&[here, a, b])).await;
    assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
    for port in [a, b] {
        assert!(error.to_string().contains(&port.to_string()), "{error}");
    }
}

#[tokio::test]
async fn one_of_three_may_be_away() {
    let masters = Masters::aged(3);
    works(&*open(&masters.url()).await).await;
    let ports = ports(&masters);
    works(&*open(&at(&[ports[0], free_port(), ports[2]])).await).await;
}

#[tokio::test]
async fn a_ttl_longer_than_the_longest() {
    let masters = Masters::aged(3);
    let url = format!("{}?longest-ttl=2s", masters.url());
    let client = client(&url, Duration::from_secs(3)).await;
    let error = client.mutex("a").unwrap().try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    for part in ["2s", "longest-ttl", "\"a\""] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert_eq!(records(&all(&masters), "a"), 0);
    let mutex = client
        .mutex("a")
        .unwrap()
        .ttl(Duration::from_secs(2))
        .unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    // Without a word it is a minute.
    let client = super::client(&masters.url(), Duration::from_secs(61)).await;
    let error = client.mutex("a").unwrap().try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
}

#[tokio::test]
async fn a_longest_ttl_that_is_none() {
    let ports: Vec<_> = (0..3).map(|_| free_port()).collect();
    for text in ["", "1", "50ms", "25h", "9s9", "99999999999999999999h"] {
        invalid(&format!("{}?longest-ttl={text}", at(&ports)), "longest-ttl").await;
    }
}
