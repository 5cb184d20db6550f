//! Errors at connect.

use leasehold::__private::store;
use leasehold_testkit::free_port;

use super::super::refused::{SECRET, refused, refused_within};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_is_not_there() {
    let ports = [(); 3].map(|()| format!("127.0.0.1:{}", free_port()));
    let url = format!("redis+sentinel://u:{SECRET}@{}/mymaster", ports.join(","));
    let advice =
        "none of 3 sentinels replies to the query for the master: no server listens at this";
    refused(&url, ErrorKind::Unreachable, advice).await;
    refused(&url, ErrorKind::Unreachable, "store redis+sentinel://u@").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_and_sentinels_that_are_confused() {
    let set = SentinelSet::start();
    let other = set.url().replace("mymaster", "other");
    let server = format!(
        "redis+sentinel://127.0.0.1:{}/mymaster",
        set.servers()[0].port()
    );
    let sentinel = format!("redis://127.0.0.1:{}", set.sentinels()[0].port());
    let invalid = ErrorKind::InvalidConfig;
    refused(&other, invalid, r#"no master of the name "other""#).await;
    refused(&server, invalid, "no sentinel").await;
    refused(&sentinel, invalid, "this is a sentinel").await;
    refused(&sentinel, invalid, "it watches: mymaster").await;
    let database = format!("{sentinel}/1");
    refused(&database, ErrorKind::Unsupported, "it is a sentinel").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sentinel_of_three_is_enough() {
    let mut set = SentinelSet::start();
    // One is dead, one accepts connections and does not reply.
    set.sentinel_mut(0).kill9();
    set.sentinels()[1].stop();
    let store = open(&set.url()).await;
    works(&*store).await;
    assert_eq!(store.to_string(), set.url().trim_end_matches("/0"));
    set.sentinels()[2].stop();
    let advice = "no connection to the master within 500ms";
    let limit = Duration::from_millis(500);
    refused_within(limit, &set.url(), ErrorKind::Unreachable, advice).await;
    // A connected client needs no sentinel.
    works(&*store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_may_want_a_password_of_their_own() {
    let sentinels = RedisServer::options()
        .requirepass("eyes-only")
        .config("sentinel sentinel-pass eyes-only")
        .acl("watcher", "eyes-only", "+@all");
    let servers = RedisServer::options().acl("app", SECRET, "~* &* +@all");
    let set = SentinelSet::options()
        .sentinels(sentinels)
        .servers(servers)
        .start();
    let url = set.url_of("app", SECRET);
    let advice = "do not name the master";
    refused(&url, ErrorKind::SentinelPassword, advice).await;
    for url in [url.clone(), format!("{url}?sentinel-user=watcher")] {
        let with = |password: &str| OpenOptions::default().sentinel_password(password);
        let error = store::open_with(&url, &with("wrong")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SentinelPassword, "{error}");
        let store = store::open_with(&url, &with("eyes-only")).await.unwrap();
        works(&*store).await;
        assert!(!format!("{:?} {store} {store:?}", with("eyes-only")).contains("eyes-only"));
    }
}

/// The sentinels have not noticed yet that it is no longer a master.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_the_sentinels_name_is_not_used_as_master() {
    let set = SentinelSet::start();
    let store = open(&set.url()).await;
    granted(&*store, acquire("a", 1)).await;
    set.until_in_sync();
    let old = set.master();
    for sentinel in set.sentinels() {
        sentinel.stop();
    }
    let (master, other) = (&set.servers()[old], &set.servers()[(old + 1) % 3]);
    other.cli(&["REPLICAOF", "NO", "ONE"]);
    master.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    let error = rejected(&*store, acquire("b", 1)).await;
    assert_error(&error, ErrorKind::Unreachable, &["no longer a master"]);
    for sentinel in set.sentinels() {
        sentinel.cont();
    }
    let error = rejected(&*store, acquire("b", 1)).await;
    assert!(error.to_string().contains("it is not a master"), "{error}");
}
