//! Observers in a cluster: they follow the slots of their names.

use super::*;
use crate::leftovers::record_key;
use crate::redis::annotations::VALUE;
use crate::redis::observing::{observe, until_held_by};
use crate::store_ext::{Observation, StoreExt as _, noticed};

/// A name of a free lock has no keys whose migration a node could report.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_follows_a_slot_that_moves() {
    let cluster = Cluster::start();
    let [store, other] = [open(&cluster.url()).await, open(&cluster.url()).await];
    for namespace in ["app", "app@4"] {
        let space = keyspace(namespace, "t");
        for held in [true, false] {
            let name = if held { "held" } else { "free" };
            let key = space.key(Name::parse(name).unwrap());
            let request = |number| within(&space, acquire(name, number));
            if held {
                granted(&*other, request(1)).await;
                assert_eq!(other.write_value(&key, 1, "one").await.unwrap(), Ok(()));
            }
            let observation = observe(&*store, &key).await;
            assert_eq!(observation.holder.is_some(), held);
            let slot = cluster.slot_of(&record_key(&key));
            cluster.move_slot(slot, (cluster.master_of(slot) + 1) % 3);
            let observing = async {
                // The slot map is up to date after any request in the slot; otherwise the observer reads again later.
                let _ = send(&*store, within(&space, renew(name, 9))).await;
                noticed(observation).await;
                let text = observe(&*store, &key).await.annotation;
                assert_eq!(text.is_some(), held);
                until_held_by(&*store, &key, lease(2)).await;
            };
            let changing = async {
                if held {
                    applied(&*other, within(&space, revoke(name))).await;
                }
                granted(&*other, request(2)).await;
            };
            tokio::join!(observing, changing);
        }
    }
}

/// Its keys are on two nodes, and are read from both. No node can report all changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_observed_while_its_slot_is_being_migrated() {
    let cluster = Cluster::start();
    let store = open(&cluster.url()).await;
    let key = key("a");
    granted(&*store, acquire("a", 1)).await;
    assert_eq!(store.write_value(&key, 1, "one").await.unwrap(), Ok(()));
    let slot = cluster.slot_of(RECORD);
    let moving = cluster.begin_to_move(slot, (cluster.master_of(slot) + 1) % 3);
    let is_read = |observation: &Observation| {
        assert_eq!(observation.holder.unwrap().0, lease(1));
        assert_eq!(&*observation.annotation.clone().unwrap().text, "one");
    };
    for moved in [&[][..], &["app:{t:a}:value"], &[RECORD]] {
        moving.move_these(moved);
        let observation = observe(&*store, &key).await;
        is_read(&observation);
        assert!(observation.changed.is_none(), "{moved:?}");
    }
    while moving.move_keys(10) > 0 {}
    moving.end();
    let observation = observe(&*store, &key).await;
    is_read(&observation);
    // Removed by another client at the new owner.
    let other = open(&cluster.url()).await;
    assert!(other.remove_annotation(&key, &VALUE).await.unwrap());
    noticed(observation).await;
    assert!(observe(&*store, &key).await.annotation.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_goes_on_after_a_failover() {
    let mut cluster = Cluster::start();
    let [store, other] = [open(&cluster.url()).await, open(&cluster.url()).await];
    let key = key("a");
    for (number, crash) in [(1, false), (2, true)] {
        let observation = observe(&*store, &key).await;
        let master = cluster.master_of(cluster.slot_of("app:{t:a}"));
        let replica = cluster.replica_of(master);
        if crash {
            cluster.node_mut(master).kill9();
            noticed(observation).await;
        } else {
            tokio::task::block_in_place(|| {
                cluster.fail_over(replica);
                cluster.settled();
            });
        }
        let observing = until_held_by(&*store, &key, lease(number));
        let acquiring = eventually_applied(&*other, acquire("a", number));
        tokio::join!(observing, acquiring);
        eventually_applied(&*other, release("a", number)).await;
    }
}
