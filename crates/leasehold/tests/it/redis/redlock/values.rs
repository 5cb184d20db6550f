//! Values of leaders over many masters.

use leasehold_core::Loss;

use super::*;
use crate::redis::annotations::{VALUE, text};
use crate::redis::observing::{observe, until_held_by};
use crate::store_ext::{StoreExt as _, noticed};

/// Acquires the free lock `a`. Returns the number of the lease: on a busy machine the first one may be too late.
async fn acquired(store: &dyn Store, after: u64) -> u64 {
    let mut number = after;
    eventually_async(LONG, async || {
        number += 1;
        let acquiring = lasting(acquire("a", number), LONG_TTL);
        if is_granted(&send(store, acquiring).await) {
            return true;
        }
        send(store, release("a", number)).await;
        false
    })
    .await;
    number
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_stores_and_shows_a_value() {
    let mut masters = Masters::aged(3);
    let url = masters.url();
    let [store, other] = [open(&url).await, open(&url).await];
    let key = key("a");
    let first = acquired(&*store, 0).await;
    // On a busy machine a majority may be too late.
    let write = async |text: &str| {
        let mut written = None;
        eventually_async(LONG, async || {
            written = match store.write_value(&key, first, text).await {
                Err(error) if error.is_transient() => None,
                reply => Some(reply.unwrap()),
            };
            written.is_some()
        })
        .await;
        written.unwrap()
    };
    assert_eq!(write("one").await, Ok(()));
    assert_eq!(text(&*other, &key).await.as_deref(), Some("one"));
    let another = other.write_value(&key, first + 1, "other").await;
    assert_eq!(another.unwrap(), Err(Loss::TakenOver));

    // A minority forgets it, or has missed a later one.
    masters.server(0).cli(&["DEL", "app:{t:a}:value"]);
    assert_eq!(write("9 nine").await, Ok(()));
    // A majority may have it before this master has.
    let mut missed = String::new();
    eventually_async(SOON, async || {
        missed = masters.server(0).cli(&["GET", "app:{t:a}:value"]);
        missed.ends_with("9 nine")
    })
    .await;
    masters.server_mut(0).stop();
    assert_eq!(write("10 ten").await, Ok(()));
    masters.server_mut(0).cont();
    masters.server(0).cli(&["SET", "app:{t:a}:value", &missed]);
    assert_eq!(text(&*other, &key).await.as_deref(), Some("10 ten"));

    // The other master that has the later one is gone.
    masters.server_mut(1).kill9();
    let observation = observe(&*other, &key).await;
    assert_eq!(observation.holder.unwrap().0, lease(first));
    assert_eq!(&*observation.annotation.clone().unwrap().text, "10 ten");
    assert_eq!(write("11 eleven").await, Ok(()));
    let observation = observe(&*other, &key).await;
    // The first change at any master is noticed, and then the reader sees the rest.
    assert_eq!(
        applied(&*store, release("a", first)).await,
        Outcome::Released
    );
    noticed(observation).await;
    eventually_async(SOON, async || observe(&*other, &key).await.holder.is_none()).await;
    assert_eq!(write("late").await, Err(Loss::Free));
    let second = acquired(&*store, first + 1).await;
    until_held_by(&*other, &key, lease(second)).await;

    masters.server_mut(0).kill9();
    for error in [
        store.write_value(&key, second, "four").await.unwrap_err(),
        store.observe(&key, &VALUE).await.unwrap_err(),
        store.remove_annotation(&key, &VALUE).await.unwrap_err(),
    ] {
        assert_error(&error, ErrorKind::NoQuorum, &[r#"lock "a" at redlock://"#]);
        assert!(error.is_transient(), "{error}");
    }
}

/// It has no record either, so it refuses whether it is admitted or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_forgot_its_grants_stores_no_value() {
    let mut masters = Masters::aged(3);
    let store = open(&masters.url()).await;
    let key = key("a");
    let number = acquired(&*store, 0).await;
    for nth in 0..2 {
        masters.server_mut(nth).restart(Restart::Empty);
    }
    // A lock that most masters have forgotten is lost.
    let mut annotated = None;
    eventually_async(SOON, async || {
        annotated = store.write_value(&key, number, "one").await.ok();
        annotated.is_some()
    })
    .await;
    assert_eq!(annotated, Some(Err(Loss::Free)));
    for nth in 0..2 {
        assert!(!is_admitted(masters.server(nth), "app"));
        assert_eq!(masters.server(nth).cli(&["EXISTS", "app:{t:a}:value"]), "0");
    }
}
