//! Calls of the script, and its tokens. `differential` compares it with the rule.

use leasehold::store::RedisStore;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_are_four_calls() {
    let server = RedisServer::start();
    let options = OpenOptions::default();
    let store = RedisStore::open(&server.url(), &options).await.unwrap();
    let before = store.calls();
    let batch = (0..1_000).map(|n| acquire(&format!("lock {n}"), n));
    let replies = store.apply(batch.collect()).await;
    assert_eq!(replies.len(), 1_000);
    assert!(replies.iter().all(is_granted), "{replies:?}");
    assert_eq!(store.calls() - before, 4);
    assert_eq!(server.cli(&["DBSIZE"]), "2000");
    assert!(store.apply(Vec::new()).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_without_the_counter_and_against_the_clock() {
    let server = RedisServer::options().clock_shim().start();
    let store = open(&server.url()).await;
    let mut last = 0;
    for round in 0..12 {
        match round % 3 {
            0 => drop(server.cli(&["DEL", "app:{t:a}:token"])),
            1 => server.step_clock(-3_600_000),
            // The counter is ahead of the clock now. Once it is not, either alone is enough.
            _ => server.step_clock(3_600_000),
        }
        let token = granted(&*store, acquire("a", round)).await;
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
        applied(&*store, release("a", round)).await;
    }
}
