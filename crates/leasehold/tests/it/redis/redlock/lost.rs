//! A minority of the masters fails.

use super::*;

/// Locks work without these masters, which are used again when they are back.
async fn goes_on_without(count: usize, failed: &[usize], failure: Failure) {
    let mut masters = Masters::aged(count);
    let [a, b] = two_clients(&short(&masters)).await;
    let held = lock(&a, "held").await;
    let wanted = lock(&a, "wanted").await;
    let waiting = spawn_waiter(&b.mutex("wanted").unwrap());
    for nth in failed {
        failure.begin(&mut masters, *nth);
    }
    renewed(&held).await;
    // Handed over from one client to the other.
    let first = wanted.token();
    wanted.release().await.unwrap();
    let wanted = tokio::time::timeout(LONG, waiting).await.unwrap().unwrap();
    assert!(wanted.token() > first);
    let refused = a.mutex("wanted").unwrap().try_lock().await.unwrap();
    assert!(refused.is_none());
    for _ in 0..20 {
        lock(&b, "free").await.release().await.unwrap();
    }
    renewed(&held).await;
    until_held(&held).await;

    for nth in failed {
        failure.end(&mut masters, *nth);
    }
    // Each of them has new grants, soon.
    let back: Vec<_> = failed.iter().map(|nth| masters.server(*nth)).collect();
    eventually_async(LONG, async || {
        let guard = lock(&b, "again").await;
        let everywhere = records(&back, "again") == back.len();
        guard.release().await.unwrap();
        everywhere
    })
    .await;
    // And those that were acquired without them.
    eventually_async(LONG, async || records(&all(&masters), "held") == count).await;
    let token = wanted.token();
    for guard in [held, wanted] {
        until_held(&guard).await;
        guard.release().await.unwrap();
    }
    assert!(lock(&a, "wanted").await.token() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_is_killed() {
    goes_on_without(3, &[0], Failure::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_are_stopped() {
    goes_on_without(5, &[1, 2], Failure::Stopped).await;
}

/// They have kept what they acknowledged. No client can know that, so they are admitted after the same wait.
#[tokio::test(flavor = "multi_thread")]
async fn masters_that_were_all_restarted_are_admitted_after_the_wait() {
    let mut masters = Masters::aged(3);
    let client = client_at(&short(&masters), TTL).await;
    let guard = lock(&client, "a").await;
    let first = guard.token();
    guard.release().await.unwrap();
    for nth in 0..3 {
        masters.server_mut(nth).restart(Restart::Kept);
    }
    let begun = Instant::now();
    let guard = lock_in_time(&client, "a").await;
    assert!(begun.elapsed() >= TTL, "{:?}", begun.elapsed());
    assert!(guard.token() > first);
    guard.release().await.unwrap();
}
