//! Names that share hash tags by bucket.

use leasehold::__private::store::Keyspace;

use super::*;
use crate::leftovers;
use crate::store_ext::StoreExt as _;

const NAMES: u64 = 60;

/// The replies to a batch with a request for each name, as words.
async fn apply_all(
    store: &dyn Store,
    space: &Keyspace,
    request: impl Fn(&str, u64) -> Request,
) -> String {
    let batch = (0..NAMES).map(|nth| within(space, request(&format!("orders/{nth}"), nth)));
    words(&store.apply(batch.collect()).await)
}

fn all(word: &str) -> String {
    vec![word; NAMES as usize].join(" ")
}

fn script_calls_everywhere(cluster: &Cluster) -> u64 {
    cluster.nodes().iter().map(script_calls).sum()
}

/// An operation of each of many names is one call for each bucket, and one for each name without buckets.
#[tokio::test(flavor = "multi_thread")]
async fn the_names_of_a_bucket_travel_together() {
    let cluster = Cluster::start();
    let store = open(&cluster.url()).await;
    // So that no later call has to be repeated by its text.
    for space in ["app@3", "app"].map(|namespace| keyspace(namespace, "warm")) {
        apply_all(&*store, &space, acquire).await;
        apply_all(&*store, &space, renew).await;
    }
    for (namespace, calls) in [("app@3", 3), ("app", NAMES)] {
        let space = keyspace(namespace, "t");
        let mut before = script_calls_everywhere(&cluster);
        let mut counted = || {
            let now = script_calls_everywhere(&cluster);
            now - std::mem::replace(&mut before, now)
        };
        assert_eq!(apply_all(&*store, &space, acquire).await, all("granted"));
        assert_eq!(counted(), calls, "{namespace}");
        assert_eq!(apply_all(&*store, &space, renew).await, all("applied"));
        assert_eq!(counted(), calls, "{namespace}");
        let releases = |name: &str, nth| release(name, nth);
        assert_eq!(apply_all(&*store, &space, releases).await, all("released"));
        assert_eq!(counted(), calls, "{namespace}");
    }
}

/// In one bucket all keys have the same hash tag. Names that end like a suffix are still names.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_end_like_a_suffix_share_a_bucket_and_no_key() {
    let cluster = Cluster::start();
    let (store, space) = (open(&cluster.url()).await, keyspace("app@1", "t"));
    let names = ["a", "a:queue", "a:token", "a:token:token", "t:a"];
    for name in names {
        granted(&*store, within(&space, acquire(name, 1))).await;
        assert!(is_refused(
            &send(&*store, within(&space, wait(name, 2))).await
        ));
    }
    let listed = store.held(&space).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|entry| entry.key.name.as_str()).collect();
    assert_eq!(listed, names);
    let tag = cluster.slot_of("0");
    let count = ["CLUSTER", "COUNTKEYSINSLOT", &tag.to_string()];
    let keys = cluster.nodes()[cluster.master_of(tag)].cli(&count);
    assert_eq!(keys, (3 * names.len()).to_string());

    // With another number of buckets, or without any, it is another lock.
    for namespace in ["app@16", "app"] {
        let other = keyspace(namespace, "t");
        granted(&*store, within(&other, acquire("a", 3))).await;
        assert_eq!(store.held(&other).await.unwrap().len(), 1);
    }
    assert_eq!(store.held(&space).await.unwrap().len(), names.len());
    let builder = Client::builder().namespace("app@0");
    let error = builder.connect(&cluster.url()).await.unwrap_err();
    let parts = ["\"app@0\"", "from 1 to 16384"];
    assert_error(&error, ErrorKind::InvalidName, &parts);
}

/// While a bucket moves, the source serves what it has whole, the target what is new, and neither what is in part on
/// each side. Every request of a batch is decided by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_moves_is_decided_name_by_name() {
    let cluster = Cluster::start();
    let (store, space) = (open(&cluster.url()).await, keyspace("app@1", "t"));
    let apply = async |requests: Vec<Request>| {
        let requests = requests.into_iter().map(|request| within(&space, request));
        store.apply(requests.collect()).await
    };
    let batch = vec![acquire("held", 1), acquire("moved", 1), acquire("used", 1)];
    assert_eq!(words(&apply(batch).await), "granted granted granted");
    apply(vec![release("used", 1)]).await;
    let slot = cluster.slot_of("0");
    let moving = cluster.begin_to_move(slot, (cluster.master_of(slot) + 1) % 3);
    let record = |name: &str| leftovers::record_key(&space.key(Name::parse(name).unwrap()));
    moving.move_these(&[&record("moved"), &format!("{}:token", record("moved"))]);

    let renewals = vec![renew("held", 1), renew("moved", 1)];
    assert_eq!(words(&apply(renewals).await), "applied applied");
    // The second acquisition of a name is behind its first.
    let batch = vec![
        acquire("new", 1),
        acquire("held", 2),
        acquire("moved", 2),
        acquire("new", 2),
        acquire("used", 2),
        acquire("newer", 1),
    ];
    let replies = apply(batch).await;
    let expected = "granted rejected refused refused rejected granted";
    assert_eq!(words(&replies), expected);
    for nth in [1, 4] {
        let error = error(&replies[nth]);
        assert_error(error, ErrorKind::Unreachable, &["being migrated"]);
    }
    let batch = vec![release("moved", 1), acquire("moved", 3), release("new", 1)];
    assert_eq!(words(&apply(batch).await), "released granted released");

    while moving.move_keys(10) > 0 {}
    moving.end();
    assert_eq!(
        words(&apply(vec![renew("held", 1), renew("moved", 3)]).await),
        "applied applied"
    );
    let batch = vec![acquire("held", 2), release("held", 1), acquire("used", 2)];
    assert_eq!(words(&apply(batch).await), "refused released granted");
}
