//! A majority is away: nobody can hold anything, and everybody is told so.

use leasehold_core::StateKind;
use leasehold_testkit::Restart;

use super::*;

/// An acquisition that cannot be is told so long before the ttl, and before anybody gives up waiting for
/// the release of what may have been granted.
const FAST: Duration = Duration::from_secs(1);

/// More often than it takes to see that none waits for the one before.
async fn fails_fast(client: &Client, name: &str) {
    let mutex = client.mutex(name).unwrap();
    for _ in 0..5 {
        let asked = Instant::now();
        let error = mutex.try_lock().await.unwrap_err();
        let took = asked.elapsed();
        assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
        assert!(took < FAST, "{took:?}");
    }
}

/// A holder is told in time that it may lose the lock, and before its deadline that it has.
async fn is_lost_in_time(guard: &Guard) {
    let mut told = Vec::new();
    let mut states = guard.states();
    let all = async {
        while let Some(state) = states.next().await {
            told.push(state.kind());
            if state.is_lost() {
                return guard.time_left();
            }
        }
        unreachable!("it never ends before it is lost")
    };
    let left = tokio::time::timeout(LONG, all).await.unwrap();
    assert!(left > Duration::ZERO, "told too late");
    let doubted = told
        .iter()
        .any(|kind| matches!(kind, StateKind::Jeopardy(_)));
    assert!(doubted, "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed() {
    for count in [3, 5] {
        let mut masters = Masters::aged(count);
        let [a, b] = [
            client(&short(&masters), TTL).await,
            client(&short(&masters), TTL).await,
        ];
        let guard = lock(&a, "a").await;
        let first = guard.token();
        // Who asks the first time looks at all masters, and for longer.
        lock(&b, "b").await.release().await.unwrap();
        for nth in 0..=count / 2 {
            masters.server_mut(nth).kill9();
        }
        // Held or free, it is the same: nobody knows.
        let fails = async {
            fails_fast(&b, "a").await;
            fails_fast(&b, "b").await;
        };
        tokio::join!(is_lost_in_time(&guard), fails);
        for nth in 0..=count / 2 {
            masters.server_mut(nth).restart(Restart::Kept);
        }
        let next = lock_in_time(&b, "a").await;
        assert!(next.token() > first);
        renewed(&next).await;
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped() {
    for count in [3, 5] {
        let masters = Masters::aged(count);
        let [a, b] = [
            client(&masters.url(), TTL).await,
            client(&masters.url(), TTL).await,
        ];
        let guard = lock(&a, "a").await;
        let first = guard.token();
        // Who asks the first time looks at all masters, and for longer.
        lock(&b, "b").await.release().await.unwrap();
        for nth in 0..=count / 2 {
            masters.server(nth).stop();
        }
        let fails = async {
            fails_fast(&b, "a").await;
            fails_fast(&b, "b").await;
        };
        tokio::join!(is_lost_in_time(&guard), fails);
        for nth in 0..=count / 2 {
            masters.server(nth).cont();
        }
        let next = lock(&b, "a").await;
        assert!(next.token() > first);
        renewed(&next).await;
        next.release().await.unwrap();
    }
}

/// Whoever waits meanwhile is served when they are back.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_absence_costs_nobody_anything() {
    let masters = Masters::aged(3);
    let [a, b] = [
        client(&masters.url(), TTL).await,
        client(&masters.url(), TTL).await,
    ];
    let guard = lock(&a, "a").await;
    let waiting = tokio::spawn({
        let mutex = b.mutex("a").unwrap();
        async move { mutex.lock().await.unwrap() }
    });
    for nth in 0..2 {
        masters.server(nth).stop();
    }
    let mut states = guard.states();
    let doubted = async {
        while let Some(state) = states.next().await {
            if matches!(state, State::Jeopardy { .. }) {
                return;
            }
        }
        panic!("{:?}", guard.state());
    };
    tokio::time::timeout(LONG, doubted).await.unwrap();
    for nth in 0..2 {
        masters.server(nth).cont();
    }
    renewed(&guard).await;
    // On a busy machine a later renewal may be late once more.
    eventually_async(LONG, async || {
        assert!(!guard.state().is_lost(), "{:?}", guard.state());
        is_held(&guard)
    })
    .await;
    assert!(!waiting.is_finished());
    let first = guard.token();
    guard.release().await.unwrap();
    let next = tokio::time::timeout(LONG, waiting).await.unwrap().unwrap();
    assert!(next.token() > first);
}
