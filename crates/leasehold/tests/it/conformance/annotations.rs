//! Annotations: the texts that holders store beside their records.

use std::time::Duration;

use leasehold::__private::store::{Feature, Key, Reply, Store};
use leasehold::ErrorKind;
use leasehold_core::annotation::ANNOTATION_BYTES_MAX;
use leasehold_core::{Annotation, CompletionKey, LeaseId, Loss, Name, Outcome, Slot, Token};
use leasehold_testkit::eventually_async;

use crate::fixture::{Fixture, fresh_name};
use crate::readings::{Beside as _, Readings as _};
use crate::store_client::{
    TTL, acquire, applied, granted, key, keyspace, lasting, lease, release, revoke, send, space,
};
use crate::waiters::SOON;

pub(super) const KEEP: Duration = Duration::from_secs(3_600);

/// Longer than a few requests take on a busy machine.
const SHORT: Duration = Duration::from_secs(3);

pub(super) fn annotation(number: u64, text: &str) -> Annotation {
    Annotation {
        lease: lease(number),
        token: Token::new(number).unwrap(),
        text: text.into(),
    }
}

/// The completion for a key.
fn for_key(key: &str) -> Slot {
    Slot::Key(CompletionKey::parse(key).unwrap())
}

/// A kind of each sort that a store keeps.
fn kinds(store: &dyn Store) -> Vec<Slot> {
    let completions = [Slot::Period, for_key("v1.2"), for_key("v1.3")];
    let mut kinds = vec![Slot::Value];
    if store.capabilities().kind.has(Feature::Completions) {
        kinds.extend(completions);
    }
    kinds
}

pub(super) async fn annotate(
    store: &dyn Store,
    key: &Key,
    kind: &Slot,
    annotation: &Annotation,
    keep: Duration,
) -> Result<(), Loss> {
    let annotated = store.annotate(key, kind, annotation, keep).await;
    annotated.unwrap_or_else(|error| panic!("{error}"))
}

async fn stored(store: &dyn Store, key: &Key, kind: &Slot) -> Option<Annotation> {
    store.observe(key, kind).await.unwrap().annotation
}

pub(super) async fn only_the_holder_annotates(fixture: Fixture) {
    let (store, other) = (fixture.store().await, fixture.store().await);
    for kind in kinds(&*store) {
        let name = fresh_name("annotated");
        let key = key(&name);
        let annotate = async |number: u64, text: &str| {
            let annotation = annotation(number, text);
            annotate(&*store, &key, &kind, &annotation, KEEP).await
        };
        let is_stored = async |expected: Option<Annotation>| {
            for store in [&store, &other] {
                assert_eq!(stored(&**store, &key, &kind).await, expected, "{kind:?}");
            }
        };
        assert_eq!(annotate(1, "early").await, Err(Loss::Free));
        granted(&*store, acquire(&name, 1)).await;
        assert_eq!(annotate(2, "of another").await, Err(Loss::TakenOver));
        is_stored(None).await;
        for text in ["one", "one", "new"] {
            assert_eq!(annotate(1, text).await, Ok(()));
            is_stored(Some(annotation(1, text))).await;
        }
        applied(&*store, release(&name, 1)).await;
        assert_eq!(annotate(1, "late").await, Err(Loss::Free));
        granted(&*other, acquire(&name, 2)).await;
        assert_eq!(annotate(1, "late").await, Err(Loss::TakenOver));
        is_stored(Some(annotation(1, "new"))).await;
        assert_eq!(annotate(2, "two").await, Ok(()));
        applied(&*other, revoke(&name)).await;
        assert_eq!(annotate(2, "late").await, Err(Loss::Free));
        is_stored(Some(annotation(2, "two"))).await;
    }
}

pub(super) async fn an_expired_lease_does_not_annotate(fixture: Fixture) {
    let store = fixture.store().await;
    let mut expiring = Vec::new();
    for kind in kinds(&*store) {
        let mut name = fresh_name("annotated");
        // A master on a busy machine may miss the short time in which it must grant a short lease.
        while !matches!(
            send(&*store, lasting(acquire(&name, 1), TTL / 5)).await,
            Reply::Applied { .. }
        ) {
            name = fresh_name("annotated");
        }
        expiring.push((key(&name), kind));
    }
    for (key, kind) in expiring {
        let is_free = async || store.observe(&key, &kind).await.unwrap().holder.is_none();
        eventually_async(SOON, is_free).await;
        let late = annotate(&*store, &key, &kind, &annotation(1, "late"), KEEP).await;
        assert_eq!(late, Err(Loss::Free));
        assert_eq!(stored(&*store, &key, &kind).await, None);
    }
}

/// The last writing decides for how long.
pub(super) async fn an_annotation_is_kept_for_its_time(fixture: Fixture) {
    let store = fixture.store().await;
    for kind in kinds(&*store) {
        let [longer, shorter] = ["annotated"; 2].map(fresh_name);
        let annotation = annotation(1, "text");
        for (name, keeps) in [(&longer, [SHORT, KEEP]), (&shorter, [KEEP, SHORT])] {
            granted(&*store, acquire(name, 1)).await;
            for keep in keeps {
                let annotated = annotate(&*store, &key(name), &kind, &annotation, keep).await;
                assert_eq!(annotated, Ok(()));
            }
        }
        let is_expired = async || stored(&*store, &key(&shorter), &kind).await.is_none();
        eventually_async(SOON, is_expired).await;
        // Its first writing was to expire before.
        assert_eq!(
            stored(&*store, &key(&longer), &kind).await,
            Some(annotation)
        );
        for name in [&longer, &shorter] {
            assert_eq!(applied(&*store, release(name, 1)).await, Outcome::Released);
        }
    }
}

pub(super) async fn an_annotation_is_removed_alone(fixture: Fixture) {
    let (store, name) = (fixture.store().await, fresh_name("annotated"));
    let (key, kinds) = (key(&name), kinds(&*store));
    granted(&*store, acquire(&name, 1)).await;
    for kind in &kinds {
        let annotation = annotation(1, &format!("{kind:?}"));
        assert_eq!(
            annotate(&*store, &key, kind, &annotation, KEEP).await,
            Ok(())
        );
    }
    for (nth, removed) in kinds.iter().enumerate() {
        for expected in [true, false] {
            let found = store.remove_annotation(&key, removed).await.unwrap();
            assert_eq!(found, expected, "{removed:?}");
        }
        for (other, kind) in kinds.iter().enumerate() {
            let text = stored(&*store, &key, kind).await.map(|found| found.text);
            let expected = (other > nth).then(|| format!("{kind:?}").into());
            assert_eq!(text, expected, "{kind:?}");
        }
    }
}

pub(super) async fn a_text_is_any_text_of_up_to_four_kibibytes(fixture: Fixture) {
    let (store, name) = (fixture.store().await, fresh_name("annotated"));
    granted(&*store, acquire(&name, 1)).await;
    let bytes_max = ANNOTATION_BYTES_MAX;
    for text in [
        "",
        " 7 spaces ",
        "{\"host\": \"a\\b\"}\r\n\t\0end",
        "昼 夜 🔒 ü",
        &"t".repeat(bytes_max),
        &"ü".repeat(bytes_max / 2),
    ] {
        for kind in kinds(&*store) {
            let annotation = annotation(1, text);
            let annotated = annotate(&*store, &key(&name), &kind, &annotation, KEEP).await;
            assert_eq!(annotated, Ok(()));
            let found = stored(&*store, &key(&name), &kind).await;
            assert_eq!(found, Some(annotation), "{text:?}");
        }
    }
}

pub(super) async fn completions_are_listed_in_order_with_any_key(fixture: Fixture) {
    let store = fixture.store().await;
    let tenant = fresh_name("list").replace('/', "-");
    let space = keyspace("app", &tenant);
    let elsewhere = keyspace("app", &format!("{tenant}-other"));
    let key_of = |name: &str| space.key(Name::parse(name).unwrap());
    assert_eq!(store.completions(&space).await.unwrap(), []);

    let long = "k".repeat(256);
    let odd = [
        "b",
        "a/b",
        "a  b",
        "ä",
        "昼 夜 🔒",
        "*?[a-z]\\",
        ":completion:x",
        "x:value",
        "%00",
        "'; DROP TABLE annotations; --",
        &long,
    ];
    let mut kinds: Vec<_> = odd.into_iter().map(for_key).collect();
    kinds.push(Slot::Period);
    kinds.push(Slot::Value);
    let annotation = annotation(1, "text");
    let write = async |key: &Key, kind: &Slot| {
        let annotated = annotate(&*store, key, kind, &annotation, KEEP).await;
        assert_eq!(annotated, Ok(()), "{key:?} {kind:?}");
    };
    let hold = async |key: &Key| {
        let request = leasehold::__private::store::Request::new(key.clone(), acquire("any", 1).op);
        granted(&*store, request).await;
    };
    let mut expected = Vec::new();
    for name in odd {
        let key = key_of(name);
        hold(&key).await;
        for kind in &kinds {
            write(&key, kind).await;
            if *kind != Slot::Value {
                expected.push((key.clone(), kind.clone(), annotation.clone()));
            }
        }
    }
    // More than a store reads at once.
    let many = key_of("many");
    hold(&many).await;
    for number in 0..1_100 {
        let kind = for_key(&number.to_string());
        write(&many, &kind).await;
        expected.push((many.clone(), kind, annotation.clone()));
    }
    let other = elsewhere.key(Name::parse("b").unwrap());
    hold(&other).await;
    write(&other, &Slot::Period).await;

    expected.sort_by_key(|(key, kind, _)| (key.name.clone(), kind.clone()));
    assert_eq!(store.completions(&space).await.unwrap(), expected);
    assert_eq!(store.completions(&elsewhere).await.unwrap().len(), 1);
    for (key, kind, _) in &expected {
        assert!(store.remove_annotation(key, kind).await.unwrap());
    }
    assert_eq!(store.completions(&space).await.unwrap(), []);
}

/// A run would be repeated where no completion is kept.
pub(super) async fn kinds_that_are_not_kept_are_refused(fixture: Fixture) {
    let (store, name) = (fixture.store().await, fresh_name("annotated"));
    let (key, annotation) = (key(&name), annotation(1, "text"));
    granted(&*store, acquire(&name, 1)).await;
    let keeps = store.capabilities().kind.has(Feature::Completions);
    assert_eq!(keeps, !matches!(fixture, Fixture::Masters(_)));
    for kind in [Slot::Period, for_key("v1")] {
        let results = [
            store
                .annotate(&key, &kind, &annotation, KEEP)
                .await
                .map(drop),
            store.observe(&key, &kind).await.map(drop),
            store.remove_annotation(&key, &kind).await.map(drop),
            store.completions(&space()).await.map(drop),
        ];
        for result in results {
            let kind = result.map_err(|error| error.kind());
            assert_eq!(kind.err(), (!keeps).then_some(ErrorKind::Unsupported));
        }
    }
}

/// The lease of another client with the same number is another one.
pub(super) async fn a_lease_of_another_client_does_not_annotate(fixture: Fixture) {
    let (store, name) = (fixture.store().await, fresh_name("annotated"));
    granted(&*store, acquire(&name, 1)).await;
    let mut annotation = annotation(1, "text");
    annotation.lease = LeaseId {
        client: crate::store_client::client_id(8),
        ..lease(1)
    };
    for kind in kinds(&*store) {
        let annotated = annotate(&*store, &key(&name), &kind, &annotation, KEEP).await;
        assert_eq!(annotated, Err(Loss::TakenOver));
    }
}
