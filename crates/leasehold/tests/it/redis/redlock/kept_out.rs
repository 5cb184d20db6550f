//! New masters that are not admitted yet: a refusal with a known end.

use super::*;

/// How long new masters are kept out: several ttls.
const LONGEST: Duration = Duration::from_secs(14);
const SHORT: Duration = Duration::from_secs(6);

fn url(masters: &Masters) -> String {
    format!("{}?longest-ttl={}s", masters.url(), LONGEST.as_secs())
}

/// Part of an error with the time for which masters are not admitted.
const KEPT_OUT: &str = "no majority of 3 masters for another ";

/// Checks such an error, whose end is known.
fn assert_known_end(error: &Error, longest: Duration) {
    let server = " s: redis://127.0.0.1:";
    let parts = [KEPT_OUT, "may have forgotten", server, "\"a\""];
    assert_error(error, ErrorKind::NoQuorum, &parts);
    assert!(error.is_transient());
    let left = error.retry_after().expect("a known end");
    assert!(left <= longest + longest / 10, "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_waits_for_new_masters_beyond_its_ttl() {
    let begun = Instant::now();
    let masters = Masters::start(3);
    let client = client_at(&url(&masters), SHORT).await;
    let mutex = client.mutex("a").unwrap();
    assert!(mutex.wait_status().is_none());
    let wanted = mutex.clone();
    let task = tokio::spawn(async move { wanted.lock().await });
    // On a busy machine, some masters may reply too late at first.
    let mut refusal = None;
    eventually_async(LONG, async || {
        let known = |error: &Error| error.to_string().contains(KEPT_OUT);
        refusal = mutex.wait_status().map(|status| status.error).filter(known);
        refusal.is_some()
    })
    .await;
    assert_known_end(&refusal.unwrap(), LONGEST);
    // A later waiter waits for the same.
    let second = mutex.lock_timeout(LONG);
    let guard = task.await.unwrap().unwrap();
    assert!(begun.elapsed() >= LONGEST, "{:?}", begun.elapsed());
    assert!(mutex.wait_status().is_none());
    guard.release().await.unwrap();
    let second = second.await.unwrap().expect("the lock");
    second.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_of_the_waiting_leaves_nothing_to_release() {
    let masters = Masters::start(3);
    // A certain refusal needs no release. On a busy machine the refusal of a master may be too late, and then it does.
    eventually_async(LONG, async || {
        let client = client_at(&masters.url(), Duration::from_secs(30)).await;
        let mutex = client.mutex("a").unwrap();
        let tried = mutex.try_lock().await.unwrap_err();
        let timeout = Duration::from_millis(500);
        let timed_out = mutex.lock_timeout(timeout).await.unwrap_err();
        let known = [&tried, &timed_out].map(|error| error.to_string().contains(KEPT_OUT));
        if known == [true, true] {
            for error in [tried, timed_out] {
                // Of the default longest ttl.
                assert_known_end(&error, LONG);
            }
        }
        known == [true, true] && client.shutdown(Duration::ZERO).await.is_ok()
    })
    .await;
    assert_eq!(records(&all(&masters), "a"), 0);
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
    let client = client_at(&masters.url(), Duration::from_secs(30)).await;
    let mutex = client.mutex("a").unwrap();
    let dead = format!(":{}", masters.server(2).port());
    let parts = [
        "for at least another ",
        &dead,
        "the first use needs all masters",
    ];
    // On a busy machine, others may reply too late at first.
    eventually_async(LONG / 2, async || {
        let message = mutex.try_lock().await.unwrap_err().to_string();
        parts.iter().all(|part| message.contains(part))
    })
    .await;
}
