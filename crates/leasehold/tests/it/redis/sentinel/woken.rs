//! A master that wakes after a failover, and regards itself as master for seconds.

use super::*;
use crate::waiters::soon;

/// The number of requests while the old master is writable.
const REQUESTS: usize = 200;

/// A ttl that outlasts every failover: one whose first election fails takes half a minute.
const LONG_TTL: Duration = Duration::from_secs(600);

/// A set in sync, and its first master.
fn in_sync() -> (SentinelSet, usize) {
    let set = SentinelSet::start();
    set.until_in_sync();
    let master = set.master();
    (set, master)
}

fn is_writable(server: &RedisServer) -> bool {
    server.try_cli(&["SET", "probe", "1"]).is_ok()
}

/// The keys of the records that a writable server has. `None`: it is not writable.
fn written(server: &RedisServer) -> Option<Vec<String>> {
    let records = is_writable(server).then(|| records(server));
    records.filter(|_| is_writable(server))
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
    let request = |name: String| lasting(acquire(&name, 1), LONG_TTL);
    let mut rounds = 0;
    for round in 1..=REQUESTS {
        granted(&*client.store, request(format!("a/{round}"))).await;
        granted(&*late, request(format!("b/{round}"))).await;
        assert_eq!(records(&set.servers()[new]).len(), 2 * round);
        // The sentinels demote it after a while, and then it has what the new one has.
        let there = written(&set.servers()[old]);
        let Some(there) = there else { break };
        assert_eq!(there, Vec::<String>::new());
        rounds = round;
    }
    // It was not demoted too early to prove much.
    assert!(rounds > 0);
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
    let request = lasting(acquire("a", 1), LONG_TTL);
    granted(&*holder.store, holder.own(request)).await;
    let waiter = StoreClient::connect(&set.url(), 2).await;
    let waiting = || lasting(wait("a", 1), LONG_TTL);
    assert_eq!(waiter.join(waiting()).await, 0);
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
    let refused = waiter.send(waiting()).await;
    assert!(is_refused(&refused), "{refused:?}");
    assert_eq!(records(&set.servers()[new]).len(), 1);
}
