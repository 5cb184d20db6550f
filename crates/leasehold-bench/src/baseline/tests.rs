//! The baseline makes the calls that it counts, and changes what a lock changes.

use std::time::Duration;

use leasehold::LeaseOptions;
use leasehold_testkit::{RedisServer, eventually_async};

use super::redis;
use crate::target::{Session, Target};

async fn session(url: &str) -> Session {
    Target::new(url, None, "app").open().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pair_is_two_script_calls() {
    let server = RedisServer::start();
    let session = session(&server.url()).await;
    let mut lock = session.baseline_lock("a").unwrap();
    let baseline = &session.baseline;
    let before = baseline.server_stats().await.unwrap().unwrap();
    for _ in 0..50 {
        lock.pair().await.unwrap();
    }
    let stats = baseline.server_stats().await.unwrap().unwrap();
    let stats = stats.since(&before);
    assert_eq!((stats.script_calls, baseline.calls()), (100, 100));
    assert!(!stats.script_time.is_zero() && !stats.cpu.is_zero());
    assert!(baseline.server().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_halves_are_a_pair_of_the_same_record() {
    let server = RedisServer::start();
    let session = session(&server.url()).await;
    let mutex = session.mutex("a").unwrap();
    let mut lock = session.baseline_lock("a").unwrap();
    for _ in 0..2 {
        lock.half().await.unwrap();
        assert!(mutex.try_lock().await.unwrap().is_none());
        lock.half().await.unwrap();
    }
    let guard = mutex.lock().await.unwrap();
    assert!(lock.half().await.is_err());
    guard.release().await.unwrap();
    lock.half().await.unwrap();
    lock.close().await.unwrap();
    assert_eq!(session.held().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_refuse_its_stats() {
    let server = RedisServer::options()
        .acl("app", "secret", "~* &* +@all -info")
        .start();
    let session = session(&server.url_of("app", "secret")).await;
    assert_eq!(session.baseline.server_stats().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_baseline_renewal_extends_the_lease() {
    let server = RedisServer::start();
    let session = session(&server.url()).await;
    let mutex = session.mutex("a").unwrap();
    let guard = mutex
        .with(LeaseOptions::new().ttl(Duration::from_secs(6)))
        .unwrap();
    let guard = guard.lock().await.unwrap();
    let leases = [(session.key("a").unwrap(), guard.lease_id())];
    let ttl = Duration::from_secs(90);
    let renewals = async || session.baseline.renew_each(&leases, ttl).await;
    // The server learns the script from the library's first renewal.
    eventually_async(Duration::from_secs(20), async || renewals().await.is_ok()).await;
    assert_eq!(renewals().await.unwrap(), 1);
    let remaining_ms = server.cli(&["PTTL", &redis::record(&leases[0].0)]);
    assert!(
        remaining_ms.parse::<u64>().unwrap() > 70_000,
        "{remaining_ms}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn other_stores_refuse_a_pair_while_the_lock_is_held() {
    let session = session("memory:").await;
    let mut lock = session.baseline_lock("a").unwrap();
    lock.pair().await.unwrap();
    assert_eq!(session.held().await.unwrap(), 0);
    let _guard = session.mutex("a").unwrap().lock().await.unwrap();
    assert!(lock.pair().await.is_err());
}
