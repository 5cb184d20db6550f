//! Ways not to find a master, each with its own words.

use leasehold::ErrorKind;
use leasehold::store::{self, OpenOptions};
use leasehold_testkit::free_port;

use super::super::refused::{SECRET, refused};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_is_none() {
    let ports = [(); 3].map(|()| format!("127.0.0.1:{}", free_port()));
    let url = format!("redis+sentinel://u:{SECRET}@{}/mymaster", ports.join(","));
    refused(
        &url,
        ErrorKind::Unreachable,
        "none of 3 sentinels could be asked for the master: nobody listens there",
    )
    .await;
    refused(&url, ErrorKind::Unreachable, "store redis+sentinel://u@").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_and_sentinels_are_not_mixed_up() {
    let set = SentinelSet::start();
    let url = set.url().replace("mymaster", "other");
    refused(
        &url,
        ErrorKind::InvalidConfig,
        r#"no master of the name "other""#,
    )
    .await;
    let server = format!("127.0.0.1:{}", set.servers()[0].port());
    let url = format!("redis+sentinel://{server}/mymaster");
    refused(&url, ErrorKind::InvalidConfig, "no sentinel").await;
    let sentinel = set.sentinels()[0].port();
    let url = format!("redis://127.0.0.1:{sentinel}");
    refused(&url, ErrorKind::InvalidConfig, "this is a sentinel").await;
    refused(&url, ErrorKind::InvalidConfig, "it watches: mymaster").await;
    let url = format!("redis://127.0.0.1:{sentinel}/1");
    refused(&url, ErrorKind::Unsupported, "it is a sentinel").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sentinel_of_three_is_enough() {
    let mut set = SentinelSet::start();
    // One is gone, one takes connections and says nothing.
    set.sentinel_mut(0).kill9();
    set.sentinels()[1].stop();
    let store = open(&set.url()).await;
    works(&*store).await;
    assert_eq!(store.to_string(), set.url().trim_end_matches("/0"));
    set.sentinels()[2].stop();
    let options = OpenOptions::default().connect_timeout(Duration::from_millis(500));
    let error = store::open(&set.url(), &options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(
        error
            .to_string()
            .contains("no connection to the master within 500ms"),
        "{error}"
    );
    // Who is connected needs no sentinel.
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
    refused(&url, ErrorKind::Unauthorized, "do not name the master").await;
    for url in [url.clone(), format!("{url}?sentinel-user=watcher")] {
        let with = |password: &str| OpenOptions::default().sentinel_password(password);
        let error = store::open(&url, &with("wrong")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        let store = store::open(&url, &with("eyes-only")).await.unwrap();
        works(&*store).await;
        assert!(!format!("{:?} {store} {store:?}", with("eyes-only")).contains("eyes-only"));
    }
}

/// The sentinels do not know yet that it is none any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_itself_for_a_replica_is_not_believed_to_be_the_master() {
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
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("no master any more"), "{error}");
    for sentinel in set.sentinels() {
        sentinel.cont();
    }
    let error = rejected(&*store, acquire("b", 1)).await;
    assert!(error.to_string().contains("it is no master"), "{error}");
}
