//! Many requests: common commits, deletion of unused records, fairness.

use futures_util::future::join_all;
use leasehold::__private::store::ClientInfo;
use leasehold::clock::BootClock;
use leasehold_testkit::eventually_async;

use super::*;
use crate::store_ext::StoreExt as _;
use crate::waiters::poll_once;

#[tokio::test]
async fn a_batch_is_one_transaction() {
    let fixture = FileFixture::new();
    let store = fixture.open_with_clock(BootClock).await;
    let name = |number: u64| format!("n{}", number % 500);
    // Each name twice: the second time it is taken.
    let batch = (0..1_000).map(|number| acquire(&name(number), number));
    let replies = store.apply(batch.collect()).await;
    assert_eq!(replies.len(), 1_000);
    assert!(replies[..500].iter().all(is_granted));
    assert!(replies[500..].iter().all(is_refused));
    assert_eq!(store.transactions(), 1);
    assert!(store.apply(Vec::new()).await.is_empty());
    assert_eq!(store.transactions(), 1);
}

#[tokio::test]
async fn requests_that_wait_together_are_committed_together() {
    let fixture = FileFixture::new();
    let store = fixture.open_with_clock(BootClock).await;
    let blocker = fixture.database();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut waiting: Vec<_> = (0..64)
        .map(|number| store.apply(vec![acquire(&format!("n{number}"), number)]))
        .collect();
    for future in &mut waiting {
        assert!(poll_once(future).is_pending());
    }
    blocker.execute_batch("COMMIT").unwrap();
    for future in waiting {
        let replies = future.await;
        assert!(replies.len() == 1 && is_granted(&replies[0]), "{replies:?}");
    }
    assert_eq!(store.transactions(), 1);
}

#[tokio::test]
async fn dropping_the_store_applies_pending_requests_without_waiting() {
    let fixture = FileFixture::new();
    let store = fixture.open_with_clock(BootClock).await;
    let blocker = fixture.database();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let names: Vec<_> = (0..10).map(|number| format!("n{number}")).collect();
    for name in &names {
        assert!(poll_once(&mut store.apply(vec![acquire(name, 1)])).is_pending());
    }
    // If this waited, the transaction could not end, and the requests would be rejected.
    drop(store);
    blocker.execute_batch("COMMIT").unwrap();

    let store = fixture.open_with_clock(BootClock).await;
    for name in &names {
        let key = key(name);
        eventually_async(SOON, async || store.inspect(&key).await.unwrap().is_some()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_store_does_not_starve_another() {
    let (fixture, busy) = FileFixture::opened().await;
    let load = tokio::spawn(async move {
        join_all((0..64).map(async |number| {
            let name = format!("n{number}");
            loop {
                granted(&*busy, acquire(&name, number)).await;
                applied(&*busy, release(&name, number)).await;
            }
        }))
        .await
    });
    // A request that waits too long is rejected, and then this panics.
    let other = fixture.open().await;
    for number in 100..130 {
        granted(&*other, acquire("other", number)).await;
        applied(&*other, release("other", number)).await;
    }
    assert!(!load.is_finished());
    load.abort();
}

#[tokio::test]
async fn records_of_names_that_are_used_once_are_deleted() {
    let fixture = FileFixture::new();
    let clock = ManualClock::new();
    let store = fixture.open_with_clock(clock.clone()).await;
    let ten_thousand = || (0..10_000).map(|number| format!("once {number}"));
    let take = ten_thousand().map(|name| acquire(&name, 1));
    // Half of them are released, the holder of the others died.
    let free = ten_thousand().step_by(2).map(|name| release(&name, 1));
    let requests: Vec<_> = take.chain(free).collect();
    for batch in requests.chunks(1_000) {
        store.apply(batch.to_vec()).await;
    }
    let info = ClientInfo::default();
    let space = space();
    applied(&store, info.describe(&space, lease(1).client, TTL)).await;
    clock.advance(2 * TTL);

    // Records that matter: one that is held, and a counter that is ahead of the clock.
    granted(&store, lasting(acquire("held", 2), TTL * 100)).await;
    let first = granted(&store, block(acquire("ahead", 2), u32::MAX)).await;
    applied(&store, release("ahead", 2)).await;
    clock.advance(Duration::from_secs(60));

    for _ in 0..600 {
        applied(&store, renew("held", 2)).await;
    }
    assert_eq!(fixture.count("heads"), 2);
    assert_eq!(fixture.count("members"), 0);
    assert_eq!(
        granted(&store, acquire("ahead", 3)).await,
        first + u64::from(u32::MAX)
    );
}

/// Programs with few operations, such as cron jobs, delete unused records for each other, each rarely and by chance.
/// That none of the last two hundred does so happens once in millions of runs.
#[tokio::test]
async fn short_lived_stores_delete_unused_records_together() {
    let fixture = FileFixture::new();
    let clock = ManualClock::new();
    for job in 0..300 {
        let store = fixture.open_with_clock(clock.clone()).await;
        let names: Vec<_> = (0..10).map(|part| format!("job {job} {part}")).collect();
        let take = names.iter().map(|name| acquire(name, 1));
        let free = names.iter().map(|name| release(name, 1));
        store.apply(take.chain(free).collect()).await;
        clock.advance(Duration::from_secs(60));
    }
    let records = fixture.count("heads");
    assert!(records < 2_000, "{records} of 3000 records are left");
}
