//! The clock of one master jumps while locks are held.

use super::*;

const HOUR_MS: i64 = 3_600_000;

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_or_five() {
    tokio::join!(one_clock_jumps(3), one_clock_jumps(5));
}

async fn one_clock_jumps(count: usize) {
    let masters = Masters::aged(count);
    let [a, b] = two_clients(&masters.url()).await;
    let guard = lock(&a, "a").await;
    let mut last = guard.token();
    // One clock that is set forward beats a bare majority, so all must have the lease.
    eventually_async(LONG, async || records(&all(&masters), "a") == count).await;
    masters.server(1).step_clock(HOUR_MS);
    // That one has forgotten it by its own clock. The others have not.
    let begun = Instant::now();
    while begun.elapsed() < TTL {
        match b.mutex("a").unwrap().try_lock().await {
            Ok(other) => assert!(other.is_none(), "two holders: {guard:?} and {other:?}"),
            // A busy machine may be too slow for a majority.
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        // A busy machine may pause the renewer.
        assert!(!guard.state().is_lost(), "{:?}", guard.state());
        tokio::task::yield_now().await;
    }
    renewed(&guard).await;
    guard.release().await.unwrap();
    // Also when it goes back, below what it has given out.
    for step in [0, -HOUR_MS, -HOUR_MS] {
        masters.server(1).step_clock(step);
        for client in [&a, &b] {
            let guard = lock(client, "a").await;
            assert!(guard.token() > last, "{} after {last}", guard.token());
            last = guard.token();
            guard.release().await.unwrap();
        }
    }
}
