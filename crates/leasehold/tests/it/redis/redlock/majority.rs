//! A majority fails: no lock can be held, and holders and waiters notice that.

use leasehold_core::StateKind;

use super::*;

/// An impossible acquisition fails long before the ttl, and does not wait for the release of earlier ones.
const FAST: Duration = Duration::from_secs(5);

async fn fails_fast(client: &Client, name: &str) {
    let mutex = client.mutex(name).unwrap();
    for _ in 0..5 {
        let begun = Instant::now();
        let error = mutex.try_lock().await.unwrap_err();
        let took = begun.elapsed();
        assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
        assert!(took < FAST, "{took:?}");
    }
}

/// A lease is in jeopardy first, and lost before its deadline.
async fn is_lost_in_time(guard: &Guard) {
    let mut kinds = Vec::new();
    let mut states = guard.states();
    let all = async {
        while let Some(state) = states.next().await {
            kinds.push(state.kind());
            if state.is_lost() {
                return guard.time_left();
            }
        }
        unreachable!("it never ends before it is lost")
    };
    let left = tokio::time::timeout(LONG, all).await.unwrap();
    assert!(left > Duration::ZERO, "notified too late");
    let jeopardy = |kind: &StateKind| matches!(kind, StateKind::Jeopardy(_));
    assert!(kinds.iter().any(jeopardy), "{kinds:?}");
}

/// The masters are killed or stopped for a while.
async fn a_majority_fails(count: usize, killed: bool) {
    let mut masters = Masters::aged(count);
    let [a, b] = two_clients(&short(&masters)).await;
    let guard = lock(&a, "a").await;
    let first = guard.token();
    // The first request of a client inspects all masters, with a longer limit.
    lock(&b, "b").await.release().await.unwrap();
    for nth in 0..=count / 2 {
        match killed {
            true => masters.server_mut(nth).kill9(),
            false => masters.server(nth).stop(),
        }
    }
    // The state of a held lock is as unknown as that of a free one.
    let fails = async {
        fails_fast(&b, "a").await;
        fails_fast(&b, "b").await;
    };
    tokio::join!(is_lost_in_time(&guard), fails);
    for nth in 0..=count / 2 {
        match killed {
            true => masters.server_mut(nth).restart(Restart::Kept),
            false => masters.server(nth).cont(),
        }
    }
    let next = lock_in_time(&b, "a").await;
    assert!(next.token() > first);
    renewed(&next).await;
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_is_killed() {
    a_majority_fails(3, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_is_stopped() {
    a_majority_fails(5, false).await;
}

/// A waiter is served when the masters are back.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_failure_costs_no_lease() {
    let masters = Masters::aged(3);
    // A ttl that leaves a busy machine the time to renew the lease.
    let (url, ttl) = (masters.url(), TTL * 2);
    let [a, b] = [client_at(&url, ttl).await, client_at(&url, ttl).await];
    let guard = lock(&a, "a").await;
    let waiting = spawn_waiter(&b.mutex("a").unwrap());
    for nth in 0..2 {
        masters.server(nth).stop();
    }
    let in_jeopardy = async || matches!(guard.state(), State::Jeopardy { .. });
    eventually_async(LONG, in_jeopardy).await;
    for nth in 0..2 {
        masters.server(nth).cont();
    }
    renewed(&guard).await;
    until_held(&guard).await;
    assert!(!waiting.is_finished());
    let first = guard.token();
    guard.release().await.unwrap();
    let next = tokio::time::timeout(LONG, waiting).await.unwrap().unwrap();
    assert!(next.token() > first);
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
