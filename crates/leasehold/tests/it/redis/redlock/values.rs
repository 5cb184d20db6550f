//! Values of leaders over many masters.

use leasehold_core::Loss;

use super::*;
use crate::redis::annotations::{VALUE, annotate};
use crate::redis::observing::{noticed, observe, until_held_by};

/// The text of the value, for the holder.
async fn text(store: &dyn Store, key: &Key) -> Option<String> {
    let annotation = observe(store, key).await.annotation;
    annotation.map(|annotation| annotation.text.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_stores_and_shows_a_value() {
    let mut masters = Masters::aged(3);
    let url = short(&masters);
    let [store, other] = [open(&url).await, open(&url).await];
    let key = key("a");
    let acquiring = lasting(acquire("a", 1), TTL);
    granted(&*store, acquiring.clone()).await;
    assert_eq!(annotate(&*store, &key, 1, "one").await.unwrap(), Ok(()));
    assert_eq!(text(&*other, &key).await.as_deref(), Some("one"));
    let late = annotate(&*other, &key, 2, "late").await.unwrap();
    assert_eq!(late, Err(Loss::TakenOver));

    // A minority forgets it, or has another one.
    masters.server(0).cli(&["DEL", "app:{t:a}:value"]);
    let stray = format!("{} 17 other", lease(1));
    masters.server(1).cli(&["SET", "app:{t:a}:value", &stray]);
    assert_eq!(annotate(&*store, &key, 1, "two").await.unwrap(), Ok(()));
    masters.server(0).cli(&["SET", "app:{t:a}:value", &stray]);
    assert_eq!(text(&*other, &key).await.as_deref(), Some("two"));

    masters.server_mut(0).kill9();
    assert_eq!(
        applied(&*store, lasting(renew("a", 1), TTL)).await,
        Outcome::Renewed
    );
    assert_eq!(annotate(&*store, &key, 1, "three").await.unwrap(), Ok(()));
    let observation = observe(&*other, &key).await;
    assert_eq!(observation.holder.unwrap().0, lease(1));
    assert_eq!(&*observation.annotation.clone().unwrap().text, "three");
    // The first change at any master is noticed, and then the reader sees the rest.
    assert_eq!(applied(&*store, release("a", 1, 0)).await, RELEASED);
    noticed(observation).await;
    eventually_async(SOON, async || observe(&*other, &key).await.holder.is_none()).await;
    assert_eq!(
        annotate(&*store, &key, 1, "late").await.unwrap(),
        Err(Loss::Free)
    );
    let observing = until_held_by(&*other, &key, lease(2));
    tokio::join!(observing, granted(&*store, lasting(acquire("a", 2), TTL)));

    masters.server_mut(1).kill9();
    for error in [
        annotate(&*store, &key, 2, "four").await.unwrap_err(),
        store.observe(&key, &VALUE).await.unwrap_err(),
        store.remove_annotation(&key, &VALUE).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
        assert!(error.is_transient(), "{error}");
        assert!(
            error.to_string().contains(r#"lock "a" at redlock://"#),
            "{error}"
        );
    }
}

/// It has no record either, so it refuses whether it is admitted or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_forgot_its_grants_stores_no_value() {
    let mut masters = Masters::aged(3);
    let store = open(&short(&masters)).await;
    let key = key("a");
    granted(&*store, lasting(acquire("a", 1), TTL)).await;
    for nth in 0..2 {
        masters.server_mut(nth).restart(Restart::Empty);
    }
    // A lock that most masters have forgotten is lost.
    let mut annotated = None;
    eventually_async(SOON, async || {
        annotated = annotate(&*store, &key, 1, "one").await.ok();
        annotated.is_some()
    })
    .await;
    assert_eq!(annotated, Some(Err(Loss::Free)));
    for nth in 0..2 {
        assert!(!is_admitted(masters.server(nth), "app"));
        assert_eq!(masters.server(nth).cli(&["EXISTS", "app:{t:a}:value"]), "0");
    }
}
