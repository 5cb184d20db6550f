//! Many requests: commits together, no litter, nobody starves, nothing is left unanswered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use leasehold::clock::ManualClock;
use leasehold::store::ClientInfo;

use super::*;

async fn open_for_tests(place: &Place) -> SqliteStore {
    let clock = Arc::new(leasehold::clock::BootClock);
    SqliteStore::open_with_clock(place.path(), clock)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_batch_is_one_transaction_and_answered_in_its_order() {
    let place = Place::new();
    let store = open_for_tests(&place).await;
    let name = |number: u64| format!("n{}", number % 500);
    // Each name twice: the second time it is taken.
    let batch = (0..1_000).map(|number| acquire(&name(number), lease(number), LONG));
    let replies = store.apply(batch.collect()).await;
    assert_eq!(replies.len(), 1_000);
    for (number, reply) in replies.iter().enumerate() {
        let Reply::Applied { outcome, .. } = reply else {
            panic!("{reply:?}");
        };
        let granted = matches!(outcome, Outcome::Granted { .. });
        assert_eq!(granted, number < 500, "{number}: {outcome:?}");
    }
    assert_eq!(store.transactions(), 1);
    assert!(store.apply(Vec::new()).await.is_empty());
    assert_eq!(store.transactions(), 1);
}

#[tokio::test]
async fn requests_that_wait_together_are_committed_together() {
    let place = Place::new();
    let store = open_for_tests(&place).await;
    let blocker = place.database();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut waiting: Vec<_> = (0..64)
        .map(|number| store.apply(vec![acquire(&format!("n{number}"), lease(number), LONG)]))
        .collect();
    for future in &mut waiting {
        start(future);
    }
    blocker.execute_batch("COMMIT").unwrap();
    for future in waiting {
        let replies = future.await;
        let granted = |reply: &Reply| {
            matches!(
                reply,
                Reply::Applied {
                    outcome: Outcome::Granted { .. },
                    ..
                }
            )
        };
        assert!(replies.len() == 1 && granted(&replies[0]), "{replies:?}");
    }
    assert_eq!(store.transactions(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_need_fewer_transactions_than_they_are() {
    let place = Place::new();
    let store = Arc::new(open_for_tests(&place).await);
    let tasks: Vec<_> = (0..64)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for _ in 0..20 {
                    let name = format!("n{number}");
                    token(&*store, acquire(&name, lease(number), LONG)).await;
                    outcome(&*store, release(&name, lease(number))).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let (ops, transactions) = (64 * 20 * 2, store.transactions());
    assert!(
        transactions < ops / 4,
        "{transactions} for {ops} operations"
    );
}

#[tokio::test]
async fn dropping_the_store_finishes_what_was_asked_and_does_not_wait_for_it() {
    let place = Place::new();
    let store = open_for_tests(&place).await;
    let blocker = place.database();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let names: Vec<_> = (0..10).map(|number| format!("n{number}")).collect();
    for name in &names {
        start(&mut store.apply(vec![acquire(name, lease(1), LONG)]));
    }
    // Would this wait, nobody could end the transaction, and the requests would be rejected.
    drop(store);
    blocker.execute_batch("COMMIT").unwrap();

    let store = open_for_tests(&place).await;
    let deadline = Instant::now() + SOON;
    for name in &names {
        while store.inspect(&key(name)).await.unwrap().is_none() {
            assert!(Instant::now() < deadline, "{name} was not acquired");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_store_does_not_starve_another() {
    let place = Place::new();
    let busy = Arc::new(open_for_tests(&place).await);
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..64)
        .map(|number| {
            let (store, stop) = (Arc::clone(&busy), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let name = format!("n{number}");
                    token(&*store, acquire(&name, lease(number), LONG)).await;
                    outcome(&*store, release(&name, lease(number))).await;
                }
            })
        })
        .collect();
    // A request that waits too long is rejected, and then this panics.
    let other = place.open().await;
    for number in 100..130 {
        token(&*other, acquire("other", lease(number), LONG)).await;
        outcome(&*other, release("other", lease(number))).await;
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn names_that_are_used_once_leave_no_litter() {
    let place = Place::new();
    let clock = ManualClock::new();
    let store = SqliteStore::open_with_clock(place.path(), Arc::new(clock.clone()))
        .await
        .unwrap();
    let ten_thousand = || (0..10_000).map(|number| format!("once {number}"));
    let take = ten_thousand().map(|name| acquire(&name, lease(1), LONG));
    store.apply(take.collect()).await;
    // Half of them are released, the holder of the others died.
    let free = ten_thousand()
        .step_by(2)
        .map(|name| release(&name, lease(1)));
    store.apply(free.collect()).await;
    let info = ClientInfo::default();
    store
        .register_client(&space("main"), client(1), &info, LONG)
        .await
        .unwrap();
    clock.advance(2 * LONG);

    // What still matters: one that is held, and a counter that is ahead of the clock.
    token(&store, acquire("held", lease(2), LONG)).await;
    let mut ahead = acquire("ahead", lease(2), LONG);
    if let Op::Acquire { tokens, .. } = &mut ahead.op {
        *tokens = TokenCount::MAX;
    }
    let first = token(&store, ahead).await;
    outcome(&store, release("ahead", lease(2))).await;
    clock.advance(Duration::from_secs(60));

    for _ in 0..600 {
        outcome(&store, renew("held", lease(2), LONG)).await;
    }
    assert_eq!(place.count("records"), 2);
    assert_eq!(place.count("clients"), 0);
    let next = token(&store, acquire("ahead", lease(3), LONG)).await;
    assert_eq!(next, first + u64::from(u32::MAX));
}

/// Programs that live for a few operations, like a cron job's, sweep for each other: each rarely
/// and by chance. That none does in the last two hundred happens once in millions of runs.
#[tokio::test]
async fn short_lived_stores_leave_no_litter_together() {
    let place = Place::new();
    let clock = ManualClock::new();
    for job in 0..300 {
        let store = SqliteStore::open_with_clock(place.path(), Arc::new(clock.clone()))
            .await
            .unwrap();
        let names: Vec<_> = (0..10).map(|part| format!("job {job} {part}")).collect();
        let take = names.iter().map(|name| acquire(name, lease(1), LONG));
        let free = names.iter().map(|name| release(name, lease(1)));
        store.apply(take.chain(free).collect()).await;
        clock.advance(Duration::from_secs(60));
    }
    let records = place.count("records");
    assert!(records < 2_000, "{records} of 3000 records are left");
}
