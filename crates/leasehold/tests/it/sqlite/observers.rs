//! Observers of names in a file, and annotations as rows. The rules for both are in the conformance suite.

use std::fs;
use std::time::Duration;

use leasehold_core::{Annotation, Slot, Token};
use leasehold_testkit::eventually_async;

use super::*;
use crate::store_ext::{Observation, StoreExt as _, annotation};

const KIND: Slot = Slot::Period;

/// An annotation with the largest token.
fn largest() -> Annotation {
    Annotation {
        token: Token::MAX,
        ..annotation(1, "text")
    }
}

async fn annotate(store: &dyn Store, name: &str, keep: Duration) {
    let annotated = store.annotate(&key(name), &KIND, &largest(), keep).await;
    assert_eq!(annotated.unwrap(), Ok(()));
}

/// Waits for a change that the store notifies. It does not drop the observer.
async fn notified(observation: Observation) {
    let changed = observation.changed.expect("changes are notified");
    let changed = tokio::time::timeout(SOON, changed).await;
    assert_eq!(changed, Ok(Ok(())));
}

/// The end of the only registration.
fn end_of_registration(fixture: &FileFixture) -> i64 {
    let query = "SELECT until FROM members WHERE class = 6";
    let until = fixture.database().query_row(query, [], |row| row.get(0));
    until.unwrap()
}

#[tokio::test]
async fn a_registration_is_renewed_with_its_socket_and_removed_after_its_end() {
    let (fixture, clock) = (FileFixture::new(), ManualClock::new());
    let store = fixture.open_with_clock(clock.clone()).await;
    let writer = fixture.open_with_clock(clock.clone()).await;
    let (key, seconds) = (key("a"), Duration::from_secs);
    let observe = async || store.observe(&key, &KIND).await.unwrap();
    drop(observe().await);
    let (first, transactions) = (end_of_registration(&fixture), store.transactions());
    clock.advance(seconds(20));
    drop(observe().await);
    assert_eq!(end_of_registration(&fixture), first);
    assert_eq!(store.transactions(), transactions, "it only reads");

    fs::remove_dir_all(fixture.directory.path().join("locks.db-wake")).unwrap();
    clock.advance(seconds(20));
    let observation = observe().await;
    assert!(end_of_registration(&fixture) > first);
    granted(&writer, acquire("a", 1)).await;
    notified(observation).await;

    let observed = async || observe().await.revoked;
    applied(&writer, revoke("a")).await;
    assert_eq!(observed().await, Some(lease(1)));
    clock.advance(seconds(60));
    assert_eq!(observed().await, None);

    clock.advance(seconds(61));
    until_deleted(&fixture, &writer, "members WHERE class = 6").await;
}

/// Many short programs that read a name would slow its changes down.
#[tokio::test]
async fn an_observer_that_has_ended_is_notified_in_vain_once() {
    let (fixture, store) = FileFixture::opened().await;
    for _ in 0..3 {
        let ended = fixture.open().await;
        drop(ended.observe(&key("a"), &KIND).await.unwrap());
    }
    // Their threads close their sockets, a moment later.
    let sockets = fixture.directory.path().join("locks.db-wake");
    eventually_async(SOON, async || names_in(&sockets).is_empty()).await;
    let living = fixture.open().await;
    let observe = async || living.observe(&key("a"), &KIND).await.unwrap();
    drop(observe().await);
    assert_eq!(fixture.count("members WHERE class = 6"), 4);
    granted(&*store, acquire("a", 1)).await;
    let observation = observe().await;
    applied(&*store, release("a", 1)).await;
    assert_eq!(fixture.count("members WHERE class = 6"), 1);
    notified(observation).await;
}

#[tokio::test]
async fn observers_of_a_deleted_file_are_notified() {
    let (fixture, store) = FileFixture::opened().await;
    let observation = store.observe(&key("a"), &KIND).await.unwrap();
    fs::remove_file(fixture.path()).unwrap();
    // The store notices it at its next request, of whatever kind.
    assert_eq!(store.inspect(&key("b")).await.unwrap(), None);
    notified(observation).await;
    // Also in the new file.
    let observation = store.observe(&key("a"), &KIND).await.unwrap();
    granted(&*fixture.open().await, acquire("a", 1)).await;
    notified(observation).await;
}

#[tokio::test]
async fn an_annotation_is_deleted_after_its_end_and_not_before() {
    let (fixture, clock) = (FileFixture::new(), ManualClock::new());
    let store = fixture.open_with_clock(clock.clone()).await;
    for (name, keep) in [("long", TTL * 10), ("short", TTL * 2)] {
        granted(&store, acquire(name, 1)).await;
        annotate(&store, name, keep).await;
    }
    clock.advance(TTL * 3);
    until_deleted(&fixture, &store, "members WHERE name = 'short'").await;
    assert_eq!(fixture.count("members WHERE name = 'long'"), 1);
}

#[tokio::test]
async fn a_damaged_annotation_is_an_error_of_that_name_only() {
    let damages = [
        "'1'",
        "'1 nobody ' || substr(value, 3)",
        "value || '%'",
        "CAST(X'31FF' AS TEXT)",
    ];
    let (fixture, store) = FileFixture::opened().await;
    for name in ["bad", "good"] {
        granted(&*store, acquire(name, 1)).await;
        annotate(&*store, name, TTL).await;
    }
    for damage in damages {
        let damage =
            format!("UPDATE members SET value = {damage} WHERE name = 'bad' AND class = 4");
        assert_eq!(fixture.database().execute(&damage, []), Ok(1));
        let start = format!(r#"lock "bad" at {}: its completion record"#, fixture.url());
        let error = store.observe(&key("bad"), &KIND).await.unwrap_err();
        assert!(error.to_string().starts_with(&start), "{error}");
        let error = store.completions(&space()).await.unwrap_err();
        assert!(error.to_string().starts_with(&start), "{error}");
        let good = store.observe(&key("good"), &KIND).await.unwrap();
        assert_eq!(good.annotation, Some(largest()));

        // The advice of the message helps.
        assert!(store.remove_annotation(&key("bad"), &KIND).await.unwrap());
        annotate(&*store, "bad", TTL).await;
    }
    // A damaged record is also an error of the annotation.
    let damage = "UPDATE heads SET value = '1' WHERE name = 'bad'";
    fixture.database().execute(damage, []).unwrap();
    let annotated = store.annotate(&key("bad"), &KIND, &largest(), TTL).await;
    let start = format!(r#"lock "bad" at {}: its record is damaged"#, fixture.url());
    let error = annotated.unwrap_err().to_string();
    assert!(error.starts_with(&start), "{error}");
}
