//! Leases in many slots, and slots that move while leases are held in them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;
use leasehold::LeaseOptions;
use leasehold_core::Name;

use super::*;
use crate::leftovers;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_load_and_no_lease_is_lost() {
    slots_move_under_load("leasehold").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buckets_move_under_load_and_no_lease_is_lost() {
    slots_move_under_load("leasehold@4").await;
}

/// Slots are migrated while locks in them are held, acquired and released. No lease is lost, no two clients hold a
/// lock, and no lock is at two nodes.
async fn slots_move_under_load(namespace: &str) {
    const HELD: usize = 60;
    const BUSY: usize = 20;
    let cluster = Arc::new(Cluster::start());
    let (url, ttl) = (cluster.url(), Duration::from_secs(12));
    let client = async || {
        let builder = Client::builder().namespace(namespace).ttl(ttl);
        builder.connect(&url).await.unwrap()
    };
    let [a, b] = [client().await, client().await];
    let space = keyspace(namespace, "default");
    let key = move |name: &str| space.key(Name::parse(name).unwrap());
    let mut guards = Vec::new();
    for nth in 0..HELD {
        guards.push(lock(&a, &format!("held/{nth}")).await);
    }
    let turns = AtomicU64::new(0);
    let inside = [const { AtomicBool::new(false) }; BUSY];
    let load = [&a, &b].map(|client| {
        join_all((0..BUSY).map(async |nth| {
            let mutex = client.mutex(format!("busy/{nth}")).unwrap();
            let min_hold = Duration::from_millis(5) * u32::from(nth % 4 == 0);
            let mutex = mutex.with(LeaseOptions::new().min_hold(min_hold)).unwrap();
            loop {
                let guard = mutex.lock().await.unwrap();
                assert!(!inside[nth].swap(true, Ordering::SeqCst), "two at once");
                tokio::task::yield_now().await;
                inside[nth].store(false, Ordering::SeqCst);
                assert!(!guard.state().is_lost());
                // The release is sent in the background.
                drop(guard);
                turns.fetch_add(1, Ordering::SeqCst);
            }
        }))
    });
    let moving = tokio::task::spawn_blocking({
        let (cluster, key) = (Arc::clone(&cluster), key.clone());
        move || {
            let held = (0..HELD).map(|nth| format!("held/{nth}"));
            let names = held.chain((0..BUSY).map(|nth| format!("busy/{nth}")));
            for name in names {
                let slot = cluster.slot_of(&leftovers::record_key(&key(&name)));
                cluster.move_slot(slot, (cluster.master_of(slot) + 1) % 3);
            }
        }
    });
    let migration = async {
        moving.await.unwrap();
        // The load goes on after the migration.
        let moved = turns.load(Ordering::SeqCst);
        let enough = async || turns.load(Ordering::SeqCst) > moved + 10 * BUSY as u64;
        eventually_async(LONG, enough).await;
    };
    tokio::select! {
        _ = join_all(load) => unreachable!("it never ends"),
        () = migration => {}
    }
    join_all(guards.iter().map(until_held)).await;
    for (nth, guard) in guards.iter().enumerate() {
        let name = format!("held/{nth}");
        assert_eq!(records(&cluster, &key(&name)), 1, "{name}");
        let other = b.mutex(&name).unwrap().try_lock().await.unwrap();
        assert!(other.is_none(), "{name}");
        guard.ensure(Duration::from_secs(3)).await.unwrap();
    }
}
