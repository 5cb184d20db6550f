//! Two clients contend for a lock while a minority of the masters fails.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::fence::Gate;
use leasehold_checker::Sequence;
use leasehold_testkit::eventually;

use super::*;

/// Which master fails, and how.
const FAILURES: [(usize, Failure); 4] = [
    (0, Failure::Killed),
    (1, Failure::Stopped),
    (2, Failure::Killed),
    (0, Failure::Stopped),
];

/// How often the lock is granted during each failure, and how often to each client in all, at least.
const GRANTS_IN_FAILURE: u64 = 20;
const GRANTS_EACH: u64 = 50;

/// The protected resource.
struct Resource {
    gate: Gate,
    holds: Mutex<Sequence<u64>>,
}

/// Acquires the lock again and again, and uses the resource under it.
async fn contend(client: Client, resource: Arc<Resource>, grants: Arc<AtomicU64>) {
    let mut older = None;
    loop {
        let guard = lock(&client, "a").await;
        let token = guard.token();
        if guard.state().is_lost() {
            continue;
        }
        let acquired = resource
            .holds
            .lock()
            .unwrap()
            .acquired(token.get(), token.get());
        assert_eq!(acquired, Ok(()), "{token}");
        assert!(resource.gate.admit(token).is_ok(), "{token}");
        let hold = Duration::from_millis(fastrand::u64(..20));
        let lost = tokio::time::timeout(hold, guard.lost()).await;
        // A majority was available all the time.
        assert!(lost.is_err(), "{lost:?}");
        assert!(older.is_none_or(|older| resource.gate.admit(older).is_err()));
        assert!(resource.gate.admit(token).is_ok(), "{token}");
        older = Some(token);
        resource.holds.lock().unwrap().ended(token.get());
        grants.fetch_add(1, Ordering::Relaxed);
        // A majority of the masters that granted it need not be available any more.
        if let Err(error) = guard.release().await {
            assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lease_is_lost_and_old_tokens_are_refused() {
    let mut masters = Masters::aged(3);
    let resource = Arc::new(Resource {
        gate: Gate::new(),
        holds: Mutex::new(Sequence::of_tokens()),
    });
    let grants = [0, 1].map(|_| Arc::new(AtomicU64::new(0)));
    let mut contenders = tokio::task::JoinSet::new();
    for (client, grants) in two_clients(&short(&masters)).await.into_iter().zip(&grants) {
        contenders.spawn(contend(client, Arc::clone(&resource), Arc::clone(grants)));
    }
    let failing = tokio::task::spawn_blocking(move || {
        let granted = || {
            grants
                .each_ref()
                .map(|grants| grants.load(Ordering::Relaxed))
        };
        for (nth, failure) in FAILURES {
            // Another may not fail before the last one is admitted again.
            let admitted = |server| is_admitted(server, "leasehold");
            eventually(LONG, || masters.servers().iter().all(admitted));
            let before: u64 = granted().iter().sum();
            failure.begin(&mut masters, nth);
            eventually(LONG, || {
                granted().iter().sum::<u64>() >= before + GRANTS_IN_FAILURE
            });
            failure.end(&mut masters, nth);
        }
        eventually(LONG, || {
            granted().iter().all(|grants| *grants >= GRANTS_EACH)
        });
        masters
    });
    let masters = tokio::select! {
        ended = contenders.join_next() => panic!("{ended:?}"),
        masters = failing => masters.unwrap(),
    };
    contenders.shutdown().await;
    eventually_async(LONG, async || records(&all(&masters), "a") == 0).await;
}
