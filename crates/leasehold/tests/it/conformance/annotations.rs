//! Completions in lists, below the driver.

use leasehold::__private::store::{Key, Request, Store};
use leasehold_core::{Annotation, CompletionKey, Name, Outcome, Slot};

use crate::fixture::{Fixture, fresh_name};
use crate::store_client::{acquire, granted, keyspace, outcome};
use crate::store_ext::{KEEP, StoreExt as _, annotation, write_note};

/// The completion for a key.
fn for_key(key: &str) -> Slot {
    Slot::Key(CompletionKey::parse(key).unwrap())
}

async fn hold(store: &dyn Store, key: &Key) {
    let request = Request::new(key.clone(), acquire("any", 1).op);
    granted(store, request).await;
}

/// Takes a lock and writes the same annotation into many slots of it, in few batches. On a busy machine all of them take longer
/// than the ttl.
async fn annotate_all(store: &dyn Store, key: &Key, kinds: &[Slot], annotation: &Annotation) {
    for some in kinds.chunks(100) {
        hold(store, key).await;
        let ops = some
            .iter()
            .map(|kind| write_note(kind.clone(), annotation, KEEP));
        let requests = ops.map(|op| Request::new(key.clone(), op)).collect();
        for reply in store.apply(requests).await {
            assert_eq!(outcome(&reply), Some(Outcome::Stored));
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
        let annotated = store.annotate(key, kind, &annotation, KEEP).await;
        assert_eq!(annotated.unwrap(), Ok(()), "{key:?} {kind:?}");
    };
    let mut expected = Vec::new();
    for name in odd {
        let key = key_of(name);
        hold(&*store, &key).await;
        for kind in &kinds {
            write(&key, kind).await;
            if *kind != Slot::Value {
                expected.push((key.clone(), kind.clone(), annotation.clone()));
            }
        }
    }
    // More than a store reads at once.
    let many = key_of("many");
    let numbers = (0..1_100).map(|number| for_key(&number.to_string()));
    let kinds: Vec<_> = numbers.collect();
    annotate_all(&*store, &many, &kinds, &annotation).await;
    let all = kinds
        .into_iter()
        .map(|kind| (many.clone(), kind, annotation.clone()));
    expected.extend(all);
    let other = elsewhere.key(Name::parse("b").unwrap());
    hold(&*store, &other).await;
    write(&other, &Slot::Period).await;

    expected.sort_by_key(|(key, kind, _)| (key.name.clone(), kind.clone()));
    assert_eq!(store.completions(&space).await.unwrap(), expected);
    assert_eq!(store.completions(&elsewhere).await.unwrap().len(), 1);
    for (key, kind, _) in &expected {
        assert!(store.remove_annotation(key, kind).await.unwrap());
    }
    assert_eq!(store.completions(&space).await.unwrap(), []);
}
