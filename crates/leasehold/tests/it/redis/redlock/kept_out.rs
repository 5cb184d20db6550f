//! Masters that are new are kept out for a while: that is an answer with an end, not a silence.

use leasehold::ErrorKind;

use super::*;

/// How long new masters are kept out: several ttls.
const LONGEST: Duration = Duration::from_secs(8);
const SHORT: Duration = Duration::from_secs(1);

fn url(masters: &Masters) -> String {
    format!("{}?longest-ttl={}s", masters.url(), LONGEST.as_secs())
}

/// An error that says how long masters are kept out.
fn says_how_long(error: &leasehold::Error) {
    assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
    assert!(error.is_transient());
    let left = error.retry_after().expect("a known end");
    assert!(left <= LONGEST + LONGEST / 10, "{left:?}");
    let message = error.to_string();
    for part in ["kept out for another ", " s: redis://127.0.0.1:", "\"a\""] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_waits_for_new_masters_beyond_its_ttl() {
    let begun = Instant::now();
    let masters = Masters::start(3);
    let client = client(&url(&masters), SHORT).await;
    let mutex = client.mutex("a").unwrap();
    assert!(mutex.last_error().is_none());
    let wanted = mutex.clone();
    let task = tokio::spawn(async move { wanted.lock().await });
    // On a busy machine, some masters may not answer in time at first.
    let mut refusal = None;
    eventually_async(LONG, async || {
        let known = |error: &leasehold::Error| error.to_string().contains("kept out for another ");
        refusal = mutex.last_error().filter(known);
        refusal.is_some()
    })
    .await;
    says_how_long(&refusal.unwrap());
    // Whoever comes later waits for the same.
    let second = mutex.lock_timeout(LONG);
    let guard = task.await.unwrap().unwrap();
    assert!(begun.elapsed() >= LONGEST, "{:?}", begun.elapsed());
    assert!(mutex.last_error().is_none());
    guard.release().await.unwrap();
    second
        .await
        .unwrap()
        .expect("the lock")
        .release()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_of_the_waiting_leaves_nothing_to_release() {
    let masters = Masters::start(3);
    // What was certainly refused is not among what is to be released. On a busy machine a master may be too
    // late with its refusal, and then it is.
    eventually_async(LONG, async || {
        let client = client(&masters.url(), Duration::from_secs(30)).await;
        let mutex = client.mutex("a").unwrap();
        let tried = mutex.try_lock().await.unwrap_err();
        let timeout = Duration::from_millis(500);
        let timed_out = mutex.lock_timeout(timeout).await.unwrap_err();
        let known = |error: leasehold::Error| error.retry_after().is_some();
        known(tried) && known(timed_out) && client.shutdown(Duration::ZERO).await.is_ok()
    })
    .await;
    assert_eq!(records(&all(&masters), "a"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn try_lock_says_how_long_masters_are_kept_out() {
    let masters = Masters::start(3);
    let client = client(&url(&masters), SHORT).await;
    let mutex = client.mutex("a").unwrap();
    // On a busy machine, some masters may not answer in time at first.
    let mut refusal = None;
    eventually_async(LONG, async || {
        let error = mutex.try_lock().await.unwrap_err();
        let known = error.to_string().contains("kept out for another ");
        refusal = known.then_some(error);
        refusal.is_some()
    })
    .await;
    says_how_long(&refusal.unwrap());
}

/// A program may use one store in one runtime after the other.
#[test]
fn the_admission_goes_on_in_another_runtime() {
    let masters = Masters::start(3);
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let first = runtime();
    let store = first.block_on(open(&url(&masters)));
    let over = |store| Client::builder().ttl(SHORT).build(store).unwrap();
    first.block_on(async {
        let client = over(std::sync::Arc::clone(&store));
        let mutex = client.mutex("a").unwrap();
        mutex.try_lock().await.unwrap_err();
    });
    drop(first);
    runtime().block_on(async {
        let client = over(store);
        lock_in_time(&client, "a").await.release().await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_is_away_at_the_first_use_is_named() {
    let mut masters = Masters::start(3);
    masters.server_mut(2).kill9();
    let client = client(&url(&masters), SHORT).await;
    let mutex = client.mutex("a").unwrap();
    let message = mutex.try_lock().await.unwrap_err().to_string();
    let dead = format!(":{}", masters.server(2).port());
    for part in ["for at least another ", &dead, "until all masters answer"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}
