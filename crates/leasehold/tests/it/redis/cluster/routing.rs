//! Calls find the node that can serve them, while slots move.

use leasehold_core::record::Unless;
use leasehold_core::{CompletionKey, NewNote, Op, Slot, Token};
use leasehold_testkit::Proxy;

use super::*;
use crate::store_ext::StoreExt as _;

/// The number of errors of this code in the replies of a node.
fn errors(cluster: &Cluster, node: usize, code: &str) -> u64 {
    let node = &cluster.nodes()[node];
    let count = info(node, "errorstats", &format!("errorstat_{code}"));
    count.map_or(0, |count| {
        count.trim_start_matches("count=").parse().unwrap()
    })
}

/// A cluster, a store with its slot map, the slot of a lock, its owner and another node.
async fn scenario() -> (Cluster, Arc<dyn Store>, u16, usize, usize) {
    let cluster = Cluster::start();
    let store = open(&cluster.url()).await;
    let slot = cluster.slot_of(RECORD);
    let from = cluster.master_of(slot);
    (cluster, store, slot, from, (from + 1) % 3)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_has_moved_is_followed() {
    let (cluster, store, slot, from, to) = scenario().await;
    let before = granted(&*store, acquire("a", 1)).await;
    let shard = store.shard(&key("a"));
    cluster.move_slot(slot, to);
    assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Kept);
    assert_eq!(errors(&cluster, from, "MOVED"), 1);
    assert_ne!(store.shard(&key("a")), shard);
    assert_eq!(applied(&*store, release("a", 1)).await, Outcome::Released);
    assert!(granted(&*store, acquire("a", 2)).await > before);
    // The slot map is up to date.
    assert_eq!(errors(&cluster, from, "MOVED"), 1);
    cluster.move_slot(slot, from);
    assert_eq!(applied(&*store, renew("a", 2)).await, Outcome::Kept);
    assert_eq!(store.shard(&key("a")), shard);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_record_in_a_moving_slot_is_created_at_its_new_node() {
    let (cluster, store, slot, from, to) = scenario().await;
    let moving = cluster.begin_to_move(slot, to);
    granted(&*store, acquire("a", 1)).await;
    assert!(errors(&cluster, from, "ASK") > 0);
    let count = ["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()];
    assert_eq!(cluster.nodes()[to].cli(&count), "2");
    assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Kept);
    assert!(is_refused(&send(&*store, acquire("a", 2)).await));
    let entry = store.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!(entry.lease, lease(1));
    // A batch of one slot is applied there in its order.
    let batch = vec![release("a", 1), acquire("a", 3), acquire("a", 4)];
    assert_eq!(words(&store.apply(batch).await), "released granted refused");
    moving.end();
    assert_eq!(applied(&*store, renew("a", 3)).await, Outcome::Kept);
}

/// The node to which the slot moves does not know the completion yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_completion_that_has_not_moved_counts() {
    let (cluster, store, slot, _, to) = scenario().await;
    let run = CompletionKey::parse("v1").unwrap();
    let first = granted(&*store, acquire("a", 1)).await;
    let mut completing = release("a", 1);
    if let Op::Release { note, .. } = &mut completing.op {
        *note = Some(NewNote {
            slot: Slot::Key(run.clone()),
            token: Token::new(first).unwrap(),
            number: 1,
            text: "done".into(),
            keep: LONG,
        });
    }
    assert_eq!(applied(&*store, completing).await, Outcome::Released);
    let moving = cluster.begin_to_move(slot, to);
    moving.move_these(&["app:{t:a}:token"]);
    let mut asking = acquire("a", 2);
    if let Op::Acquire(request) = &mut asking.op {
        let asked = Duration::ZERO;
        request.unless = Some(Unless::Key { key: run, asked });
    }
    let error = rejected(&*store, asking.clone()).await;
    assert!(error.to_string().contains("being migrated"), "{error}");
    while moving.move_keys(10) > 0 {}
    moving.end();
    let outcome = applied(&*store, asking).await;
    assert!(matches!(outcome, Outcome::Complete(_)), "{outcome:?}");
}

/// Its record and counter are on one side, and a node refuses calls that name a missing key as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_with_keys_on_both_sides_can_only_be_renewed() {
    let (cluster, store, slot, _, to) = scenario().await;
    granted(&*store, acquire("a", 1)).await;
    let moving = cluster.begin_to_move(slot, to);
    assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Kept);
    let error = rejected(&*store, acquire("a", 2)).await;
    assert_error(&error, ErrorKind::Unreachable, &["being migrated"]);
    moving.move_these(&[RECORD]);
    // The record is there, the counter still here.
    assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Kept);
    rejected(&*store, release("a", 1)).await;
    assert_eq!(moving.move_keys(10), 1);
    assert_eq!(applied(&*store, release("a", 1)).await, Outcome::Released);
    moving.end();
    granted(&*store, acquire("a", 2)).await;
}

/// Its renewal looks for waiters, whose key is at neither node.
#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_with_free_permits_is_renewed_while_its_slot_moves() {
    let (cluster, store, slot, _, to) = scenario().await;
    granted(&*store, permits(acquire("a", 1), 1, 2)).await;
    let moving = cluster.begin_to_move(slot, to);
    assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Kept);
    moving.move_these(&[RECORD]);
    assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Kept);
}

/// Before Redis 7.0.3, a node redirects a call if one of its keys is missing. The record may still be at that node.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_is_not_granted_by_the_node_to_which_its_slot_moves() {
    let cluster = Cluster::without_replicas();
    let slot = cluster.slot_of(RECORD);
    let from = cluster.master_of(slot);
    let to = (from + 1) % 3;
    let proxy = Proxy::before(&cluster.nodes()[from]);
    let port = proxy.port().to_string();
    cluster.nodes()[from].cli(&["CONFIG", "SET", "cluster-announce-port", &port]);
    eventually_async(LONG, async || {
        let mut nodes = cluster.nodes().iter();
        nodes.all(|node| node.cli(&["CLUSTER", "SLOTS"]).contains(&port))
    })
    .await;
    let target = cluster.nodes()[to].port();
    let ask = format!("-ASK {slot} 127.0.0.1:{target}\r\n");
    proxy.replace_replies("-TRYAGAIN", &ask);
    let store = open(&cluster.url()).await;
    granted(&*store, acquire("a", 1)).await;
    let moving = cluster.begin_to_move(slot, to);
    // The queue is at neither node.
    let error = rejected(&*store, acquire("a", 2)).await;
    assert_error(&error, ErrorKind::Unreachable, &["being migrated"]);
    assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Kept);
    while moving.move_keys(10) > 0 {}
    assert!(is_refused(&send(&*store, acquire("a", 2)).await));
}

/// A latch has one key, which is at one side.
#[tokio::test(flavor = "multi_thread")]
async fn a_latch_is_used_while_its_slot_moves() {
    let (cluster, store, slot, _, to) = scenario().await;
    let key = key("a");
    let arrivals = async |id: &str| store.arrive(&key, id, 3).await.unwrap().arrived;
    assert_eq!(arrivals("a").await, 1);
    let moving = cluster.begin_to_move(slot, to);
    assert_eq!(arrivals("b").await, 2);
    moving.move_these(&[RECORD]);
    assert_eq!(arrivals("b").await, 2);
    assert!(store.reset_latch(&key).await.unwrap());
    assert_eq!(arrivals("c").await, 1);
    moving.end();
    assert_eq!(arrivals("d").await, 2);
}

/// A call that waits for a slot goes on as soon as the slot has moved.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_move_is_waited_for() {
    let (cluster, store, slot, _, to) = scenario().await;
    granted(&*store, acquire("a", 1)).await;
    let moving = cluster.begin_to_move(slot, to);
    let releasing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { applied(&*store, release("a", 1)).await })
    };
    let from = cluster.master_of(slot);
    let refused = async || errors(&cluster, from, "TRYAGAIN") > 0;
    eventually_async(SOON, refused).await;
    moving.move_keys(10);
    moving.end();
    assert_eq!(releasing.await.unwrap(), Outcome::Released);
}
