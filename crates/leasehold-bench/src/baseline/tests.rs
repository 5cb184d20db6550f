//! The baseline makes the calls that it counts, and changes what a lock changes.

use leasehold_testkit::RedisServer;

use super::*;
use crate::target::{Session, Target};

async fn session(url: &str) -> Session {
    Target::new(url, None, "app", "t").open().await.unwrap()
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
    assert!(baseline.ping().await.unwrap().is_some());
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

/// Each renewal is a call, by the short script.
#[tokio::test(flavor = "multi_thread")]
async fn each_renewal_is_a_call() {
    let server = RedisServer::start();
    let session = session(&server.url()).await;
    let mut leases = Vec::new();
    let mut guards = Vec::new();
    for name in ["a", "b", "c"] {
        let mutex = session
            .mutex(name)
            .unwrap()
            .ttl(Duration::from_millis(900))
            .unwrap();
        let guard = mutex.lock().await.unwrap();
        leases.push((session.key(name).unwrap(), guard.lease_id()));
        guards.push(guard);
    }
    let ttl = Duration::from_secs(90);
    // The server learns the script from the library's first renewal.
    let known = || session.baseline.renew_each(&leases, ttl);
    let deadline = Instant::now() + Duration::from_secs(20);
    while known().await.is_err() {
        assert!(Instant::now() < deadline, "no renewal");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(session.baseline.renew_each(&leases, ttl).await.unwrap(), 3);
    for (key, _) in &leases {
        let left = server.cli(&["PTTL", &redis::record(key)]);
        assert!(left.parse::<u64>().unwrap() > 70_000, "{left}");
    }
    let counters = || server.cli(&["KEYS", "*:token"]).lines().count();
    assert_eq!(counters(), 3);
    let keys: Vec<_> = leases.into_iter().map(|(key, _)| key).collect();
    session.baseline.remove_counters(&keys[..2]).await.unwrap();
    assert_eq!(counters(), 1);
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
async fn a_pair_in_a_file_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/locks.db", directory.path().display());
    let directories = || {
        let entries = std::fs::read_dir(directory.path()).unwrap();
        entries
            .filter(|entry| entry.as_ref().unwrap().path().is_dir())
            .count()
    };
    let session = session(&url).await;
    let mut lock = session.baseline_lock("a").unwrap();
    for _ in 0..10 {
        lock.pair().await.unwrap();
    }
    assert!(!lock.half().await.unwrap().is_zero());
    assert_eq!((session.baseline.calls(), directories()), (22, 1));
    drop((lock, session));
    assert_eq!(directories(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_stores_apply_the_pair_themselves() {
    let session = session("memory:").await;
    let mut lock = session.baseline_lock("a").unwrap();
    lock.pair().await.unwrap();
    assert_eq!((session.calls(), session.held().await.unwrap()), (None, 0));
    let _guard = session.mutex("a").unwrap().lock().await.unwrap();
    assert!(lock.pair().await.is_err());
}
