//! A master that wakes after a failover, and regards itself as master for seconds.

use super::*;
use crate::waiters::soon;

/// The number of requests while the old master is writable.
const REQUESTS: u64 = 200;

/// A set in sync, and its first master.
fn in_sync() -> (SentinelSet, usize) {
    let set = SentinelSet::start();
    set.until_in_sync();
    let master = set.master();
    (set, master)
}

fn is_writable(server: &RedisServer) -> bool {
    server.cli(&["SET", "probe", "1"]) == "OK"
}

/// No request is sent between the failover and its waking: the connection must end by itself.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_granted_by_the_old_master() {
    let (set, old) = in_sync();
    let client = StoreClient::connect(&set.url(), 1).await;
    client.settle().await;
    client.events();
    assert_eq!(set.stop_master(), old);
    let new = set.master_after(old);
    client.until_interrupted().await;
    set.servers()[old].cont();
    let late = open(&set.url()).await;
    for number in 0..REQUESTS {
        granted(&*client.store, acquire(&format!("a/{number}"), 1)).await;
        granted(&*late, acquire(&format!("b/{number}"), 1)).await;
    }
    // It was not demoted too early to prove much.
    assert!(is_writable(&set.servers()[old]));
    assert_eq!(records(&set.servers()[old]), Vec::<String>::new());
    let granted = records(&set.servers()[new]).len();
    assert_eq!(granted, 2 * usize::try_from(REQUESTS).unwrap());
}

/// A reply after the failover to a request before it does not count.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_under_way_ends_with_the_failover() {
    let (set, old) = in_sync();
    let options = OpenOptions::default().response_timeout(Duration::from_secs(600));
    let store = open_with(&set.url(), options).await;
    works(&*store).await;
    assert_eq!(set.stop_master(), old);
    let request = tokio::spawn({
        let store = Arc::clone(&store);
        async move { unknown(&*store, acquire("late", 1)).await }
    });
    set.master_after(old);
    let error = soon(request).await;
    assert!(error.to_string().contains("name another master"), "{error}");
    set.servers()[old].cont();
    // It is applied there, but no client relies on it.
    eventually_async(SOON, async || !records(&set.servers()[old]).is_empty()).await;
    assert!(is_writable(&set.servers()[old]));
    let granted = eventually_applied(&*store, acquire("late", 2)).await;
    assert!(matches!(granted, Outcome::Granted { .. }), "{granted:?}");
}

/// A holder that knows no other master may grant the lock there to a former waiter.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_there_is_not_notified() {
    let (set, old) = in_sync();
    let there = format!("redis://127.0.0.1:{}", set.servers()[old].port());
    let holder = StoreClient::connect(&there, 1).await;
    holder.acquire("a", 1).await;
    let waiter = StoreClient::connect(&set.url(), 2).await;
    assert_eq!(waiter.wait("a", 1).await, 0);
    set.until_in_sync();
    assert_eq!(set.stop_master(), old);
    let new = set.master_after(old);
    waiter.until_interrupted().await;
    set.servers()[old].cont();
    eventually_async(SOON, async || {
        outcome(&holder.send(release("a", 1)).await).is_some()
    })
    .await;
    assert!(is_writable(&set.servers()[old]));
    waiter.no_notices();
    // By the new master the holder has it still.
    let refused = waiter.send(wait("a", 1)).await;
    assert!(is_refused(&refused), "{refused:?}");
    assert_eq!(records(&set.servers()[new]).len(), 1);
}
