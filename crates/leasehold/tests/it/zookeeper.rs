//! The ZooKeeper store: its address, its users, its servers and its sessions, beyond the rules for every store.

use std::net::TcpListener;
use std::time::Duration;

use leasehold::__private::store::WakeupMode;
use leasehold::{Client, ErrorKind};
use leasehold_testkit::{
    Proxy, RedisServer, Way, ZookeeperServer, eventually_async, found_within, free_port,
};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::fixture::two_clients;
use crate::store_client::*;
use crate::waiters::SOON;

/// A lock passes on from a process to another one, which is notified.
async fn passes_on(holder: &Client, waiter: &Client, name: &str) {
    let guard = holder.mutex(name).unwrap().lock().await.unwrap();
    let mutex = waiter.mutex(name).unwrap();
    let waits = tokio::spawn(async move { mutex.lock().await.unwrap() });
    let observed = holder.mutex(name).unwrap();
    eventually_async(SOON, async || {
        let info = observed.inspect().await;
        info.is_ok_and(|info| info.is_some_and(|info| info.waiters.len() == 1))
    })
    .await;
    let token = guard.token();
    guard.release().await.unwrap();
    let next = timeout(SOON, waits).await.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_server_is_killed_the_others_go_on() {
    let mut ensemble = ZookeeperServer::with(3, "");
    let url = ensemble.url();
    let [holder, waiter] = two_clients(&url).await;
    passes_on(&holder, &waiter, "a").await;
    let store = open(&url).await;
    let leader = found_within(SOON, || ensemble.leader()).expect("a leader");
    for killed in [leader, (leader + 1) % 3] {
        ensemble.kill9(killed);
        until_works(&*store, "works").await;
        for client in [&holder, &waiter] {
            let mutex = client.mutex("one").unwrap();
            eventually_async(SOON, async || match mutex.try_lock().await {
                Ok(Some(guard)) => guard.release().await.is_ok(),
                _ => false,
            })
            .await;
        }
        passes_on(&holder, &waiter, "b").await;
        ensemble.restart(killed);
    }
}

/// Nobody knows when the lease is over, because that is counted from when another client sees it.
#[tokio::test(flavor = "multi_thread")]
async fn leases_are_released_even_if_an_outage_lasts_beyond_their_ttl() {
    let server = ZookeeperServer::start();
    let proxy = Proxy::before_port(server.port(0));
    let [direct, proxied] = [server.port(0), proxy.port()].map(|port| format!(":{port}"));
    let far = Client::builder().ttl(Duration::from_secs(3));
    let far = far
        .connect(&server.url().replace(&direct, &proxied))
        .await
        .unwrap();
    let mutex = far.mutex("a").unwrap();
    // The first replies of a server may take longer than a short ttl allows.
    eventually_async(SOON, async || match mutex.try_lock().await {
        Ok(Some(guard)) => guard.release().await.is_ok(),
        _ => false,
    })
    .await;
    let held = far.mutex("held").unwrap().lock().await.unwrap();
    let near = Client::connect(&server.url()).await.unwrap();
    let [observed, other] = ["a", "held"].map(|name| near.mutex(name).unwrap());
    proxy.swallow(Way::ToClient);
    let granted = tokio::spawn(async move { mutex.lock().await });
    eventually_async(SOON, async || observed.inspect().await.unwrap().is_some()).await;
    proxy.swallow(Way::Both);
    drop(held);
    granted.abort();
    // The limit for its reply may be over.
    assert!(!matches!(granted.await, Ok(Ok(_))));
    let left = far.shutdown(Duration::from_secs(4)).await;
    assert_eq!(left.unwrap_err().kind(), ErrorKind::Unreachable);
    proxy.go_on();
    assert!(far.shutdown(SOON).await.is_ok());
    for mutex in [observed, other] {
        assert!(mutex.inspect().await.unwrap().is_none());
    }
}

/// The nodes of the clients end with a session, and are made anew in the next one, which begins with the user.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_has_ended_is_replaced() {
    let server = ZookeeperServer::with(1, "maxSessionTimeout=6000");
    let url = server.url_of("app:secret@", "");
    let [holder, waiter] = two_clients(&url).await;
    passes_on(&holder, &waiter, "a").await;
    let store = open(&url).await;
    server.pause(0);
    until_wakeup(&*store, WakeupMode::Nothing).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    server.resume(0);
    until_works(&*store, "works").await;
    passes_on(&holder, &waiter, "a").await;
}

/// The task of its session ends with the runtime, so the release begins another session.
#[test]
fn a_guard_that_outlives_the_runtime_of_its_client_is_released() {
    let server = ZookeeperServer::start();
    let url = server.url();
    let runtime = Runtime::new().unwrap();
    let (client, guard) = runtime.block_on(async {
        let client = Client::connect(&url).await.unwrap();
        let guard = client.mutex("a").unwrap().lock().await.unwrap();
        (client, guard)
    });
    drop(runtime);
    drop((guard, client));
    Runtime::new().unwrap().block_on(async {
        let other = Client::connect(&url).await.unwrap();
        let holder = other.mutex("a").unwrap().inspect().await.unwrap();
        assert!(holder.is_none(), "{holder:?}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_user_the_nodes_are_closed_to_others() {
    let server = ZookeeperServer::start();
    let own = server.url_of("app:s3%3Acret@", "/team/locks");
    let client = Client::connect(&own).await.unwrap();
    let guard = client.mutex("a").unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
    for credentials in ["", "app:wr0ng@", "other:s3cret@"] {
        let error = refused(&server.url_of(credentials, "/team/locks")).await;
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        assert!(!format!("{error:?}{error}").contains("wr0ng"), "{error:?}");
    }
    let error = refused(&server.url_of("app@", "")).await;
    assert_eq!(error.kind(), ErrorKind::NoPassword, "{error}");
    let error = refused(&server.url_of("", "/other/../locks")).await;
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    assert!(own.contains("s3") && !client.store().to_string().contains("s3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls() {
    let server = ZookeeperServer::tls();
    let url = server.url();
    let [holder, waiter] = two_clients(&url).await;
    assert_eq!(holder.store().to_string(), url);
    passes_on(&holder, &waiter, "a").await;
    // Many frames in both directions at a time.
    let store = open_patient(&url).await;
    let names: Vec<_> = (0..200).map(|number| number.to_string()).collect();
    let batch = names.iter().map(|name| acquire(name, 1)).collect();
    let replies = store.apply(batch).await;
    assert!(replies.iter().all(is_granted), "{replies:?}");

    let (secure, _) = url.split_once('?').unwrap();
    let plain = secure.replace("zookeepers://", "zookeeper://");
    let other = format!("zookeepers://127.0.0.1:{}", server.port(0));
    for url in [secure, &*other] {
        let error = refused(url).await;
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{url}: {error}");
    }
    // Whether the server replies with an alert of TLS before it ends the connection.
    let kind = refused(&plain).await.kind();
    let kinds = [ErrorKind::Unreachable, ErrorKind::Unsupported];
    assert!(kinds.contains(&kind), "{kind:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_read_only_says_so() {
    let mut ensemble = ZookeeperServer::with_read_only_mode();
    ensemble.kill9(0);
    ensemble.kill9(1);
    let url = format!("zookeeper://127.0.0.1:{}", ensemble.port(2));
    // It waits for the others for two seconds.
    eventually_async(SOON, async || {
        let error = refused(&url).await;
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        error.to_string().contains("is read-only")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_one_clear_error() {
    let redis = RedisServer::start();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().port();
    for (url, kind, advice) in [
        (
            format!("zookeeper://127.0.0.1:{}", free_port()),
            ErrorKind::Unreachable,
            "check host, port and firewall",
        ),
        (
            format!("zookeeper://127.0.0.1:{silent}"),
            ErrorKind::Unreachable,
            "no server of the ensemble replies",
        ),
        (
            format!("zookeeper://127.0.0.1:{}", redis.port()),
            ErrorKind::Unreachable,
            "",
        ),
        (
            "zookeeper://h?x=1".to_owned(),
            ErrorKind::InvalidConfig,
            "zookeepers://",
        ),
        (
            "zookeepers://h?ca=/none".to_owned(),
            ErrorKind::InvalidConfig,
            "/none",
        ),
    ] {
        assert_refused(&url, kind, advice, "zookeeper").await;
    }
}
