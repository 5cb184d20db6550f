//! Annotations in a server: their keys, foreign values in them, and users who lack rights.

use leasehold_core::{Annotation, CompletionKey, Slot};

use super::*;
use crate::store_ext::{KEEP, StoreExt as _, annotation};

pub(super) const VALUE: Slot = Slot::Value;

/// The text of the value.
pub(super) async fn text(store: &dyn Store, key: &Key) -> Option<String> {
    let observed = store.observe(key, &VALUE).await;
    let annotation = observed.unwrap().annotation;
    annotation.map(|annotation| annotation.text.to_string())
}

fn completion(key: &str) -> Slot {
    Slot::Key(CompletionKey::parse(key).unwrap())
}

/// As docs/redis.md describes them, so that other programs can read them.
#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_is_a_string_beside_the_record_that_expires() {
    let (server, store) = server_and_store().await;
    let (key, lease) = (key("a"), lease(1));
    granted(&*store, acquire("a", 1)).await;
    // Whatever the hold count is.
    applied(&*store, enter("a", 1, 2)).await;
    for (kind, name, keep, left) in [
        (VALUE, "app:{t:a}:value", KEEP, 3_600_000),
        (Slot::Period, "app:{t:a}:completion", Duration::ZERO, 1),
        (
            completion("v{1}"),
            "app:{t:a}:completion:v{1}",
            Duration::MAX,
            1 << 53,
        ),
    ] {
        let annotation = annotation(1, "a b");
        let stored = store.annotate(&key, &kind, &annotation, keep);
        assert_eq!(stored.await.unwrap(), Ok(()));
        let time_left: i64 = server.cli(&["PTTL", name]).parse().unwrap();
        assert!(
            time_left <= left && time_left > left - 60_000,
            "{name}: {time_left}"
        );
        if keep > Duration::ZERO {
            assert_eq!(server.cli(&["GET", name]), format!("{lease} 1 0 a b"));
        }
    }
    assert_eq!(server.cli(&["GET", "app:{t:a}"]), format!("{lease} 2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_value_is_an_error_until_it_is_removed() {
    let (server, store) = server_and_store().await;
    let (key, name) = (key("a"), "app:{t:a}:value");
    granted(&*store, acquire("a", 1)).await;
    let put = [
        &["SET", name, "somebody"][..],
        &["SET", name, "17 text"],
        &["RPUSH", name, "x"],
    ];
    for command in put {
        server.cli(command);
        let before = server.cli(&["DUMP", name]);
        for error in [
            store.write_value(&key, 1, "text").await.unwrap_err(),
            store.observe(&key, &VALUE).await.unwrap_err(),
        ] {
            assert_error(&error, ErrorKind::Store, &[r#"lock "a" at redis://"#, name]);
        }
        assert_eq!(server.cli(&["DUMP", name]), before);
        // It hides nothing else.
        let completion = Slot::Period;
        let observed = store.observe(&key, &completion).await.unwrap();
        assert_eq!(observed.holder.unwrap().0, lease(1));
        assert!(store.remove_annotation(&key, &VALUE).await.unwrap());
        assert_eq!(store.write_value(&key, 1, "text").await.unwrap(), Ok(()));
        assert_eq!(text(&*store, &key).await.as_deref(), Some("text"));
        assert!(store.remove_annotation(&key, &VALUE).await.unwrap());
    }
    server.cli(&["SET", "app:{t:a}", "somebody"]);
    for error in [
        store.write_value(&key, 1, "text").await.unwrap_err(),
        store.observe(&key, &VALUE).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("app:{t:a}"), "{error}");
    }
    assert_eq!(server.cli(&["EXISTS", name]), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_keys_are_not_listed_as_completions() {
    let (server, store) = server_and_store().await;
    let value = format!("{} 1 0 done", lease(1));
    let ours = ["", ":v1", ":}", ":{t:b}", "::", ":completion"];
    for suffix in ours {
        server.cli(&["SET", &format!("app:{{t:[*?]}}:completion{suffix}"), &value]);
    }
    for other in [
        "app:{t:a}:completion:",
        "app:{t:a}:completions",
        "app:{t:a}:value",
        "app:{t:}:completion",
        "app:{t:a{}:completion",
        "app:{tt:a}:completion",
        "app@4:{1}:{t:a}:completion",
    ] {
        server.cli(&["SET", other, &value]);
    }
    server.cli(&["SET", "app:{t:a}:completion:text", "text"]);
    server.cli(&["RPUSH", "app:{t:a}:completion:list", "text"]);
    let listed = store.completions(&space()).await.unwrap();
    let mut expected: Vec<_> = ours
        .iter()
        .map(|suffix| match suffix.strip_prefix(':') {
            None => Slot::Period,
            Some(key) => completion(key),
        })
        .collect();
    expected.sort();
    let kinds: Vec<_> = listed.iter().map(|(_, kind, _)| kind.clone()).collect();
    assert_eq!(kinds, expected);
    let of_the_name = |(listed, _, stored): &(Key, _, Annotation)| {
        *listed == key("[*?]") && *stored == annotation(1, "done")
    };
    assert!(listed.iter().all(of_the_name), "{listed:?}");
}
