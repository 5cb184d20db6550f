//! Slots move while leases are held in them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

/// Slots are migrated while locks in them are held, acquired and released. No lease is lost, no two clients hold a
/// lock, and no lock is at two nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_load_and_no_lease_is_lost() {
    const HELD: usize = 60;
    const BUSY: usize = 20;
    let cluster = Arc::new(Cluster::start());
    let (url, ttl) = (cluster.url(), Duration::from_secs(6));
    let [a, b] = [client_at(&url, ttl).await, client_at(&url, ttl).await];
    let mut guards = Vec::new();
    for nth in 0..HELD {
        guards.push(lock(&a, &format!("held/{nth}")).await);
    }
    let (stop, turns, inside) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
        Arc::new([const { AtomicBool::new(false) }; BUSY]),
    );
    let load = (0..2 * BUSY).map(|nth| {
        let client = if nth < BUSY { &a } else { &b };
        let (nth, mutex) = (
            nth % BUSY,
            client.mutex(format!("busy/{}", nth % BUSY)).unwrap(),
        );
        let (stop, turns, inside) = (Arc::clone(&stop), Arc::clone(&turns), Arc::clone(&inside));
        tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let guard = mutex.lock().await.unwrap();
                assert!(!inside[nth].swap(true, Ordering::SeqCst), "two at once");
                tokio::task::yield_now().await;
                inside[nth].store(false, Ordering::SeqCst);
                assert!(!guard.state().is_lost());
                // The release is sent in the background.
                drop(guard);
                turns.fetch_add(1, Ordering::SeqCst);
            }
        })
    });
    let load: Vec<_> = load.collect();
    let movers = {
        let cluster = Arc::clone(&cluster);
        tokio::task::spawn_blocking(move || {
            let held = (0..HELD).map(|nth| format!("held/{nth}"));
            let names = held.chain((0..BUSY).map(|nth| format!("busy/{nth}")));
            for name in names {
                let slot = cluster.slot_of(&record(&name));
                cluster.move_slot(slot, (cluster.master_of(slot) + 1) % 3);
            }
        })
    };
    movers.await.unwrap();
    let moved = turns.load(Ordering::SeqCst);
    // The load goes on after the migration.
    eventually_async(LONG, async || {
        turns.load(Ordering::SeqCst) > moved + 10 * BUSY as u64
    })
    .await;
    stop.store(true, Ordering::SeqCst);
    for task in load {
        task.await.unwrap();
    }
    eventually_async(LONG, async || guards.iter().all(is_held)).await;
    for (nth, guard) in guards.iter().enumerate() {
        let name = format!("held/{nth}");
        assert_eq!(records(&cluster, &name), 1, "{name}");
        let other = b.mutex(&name).unwrap().try_lock().await.unwrap();
        assert!(other.is_none(), "{name}");
        guard.ensure(Duration::from_secs(3)).await.unwrap();
    }
}
