//! Documents that cannot be read, and lists of names beside them.

use leasehold_core::record::{Change, Changes, Note, Part, Row};
use leasehold_core::{Removal, Rows, Slot, Token, Whom};

use super::*;
use crate::store::api::{Parts, Query};
use crate::store::optimistic::document_text::{self, Header};

/// A text with a note in this slot.
fn annotated(slot: Slot) -> String {
    let note = Note {
        lease: LeaseId {
            client: ClientId::from_random([1; 16]),
            number: 1,
        },
        token: Token::new(1).unwrap(),
        number: 1,
        text: "x".into(),
        until: StoreTime::from_micros(u64::MAX / 2),
    };
    let mut rows = Rows::default();
    rows.store(Changes {
        head: None,
        rows: vec![Change::Put(Part::Note(slot), Row::Note(note))],
    });
    document_text::write(&rows, &Header::default())
}

/// Texts of this and of another program that cannot be read.
fn damaged() -> [String; 3] {
    let note = annotated(Slot::Period).replace("period 1", "period 9");
    let latch = "leasehold-1 1 1\n1 - latch x\n";
    ["another program's".to_owned(), latch.to_owned(), note]
}

fn put(documents: &InMemory, key: Key, text: impl Into<String>) {
    lock(&documents.texts).insert(key, (7, text.into()));
}

/// The names in a list.
async fn listed(client: &TestClient, query: Query) -> Result<Vec<String>> {
    let read = tokio::time::timeout(TTL, client.store.read(query));
    let page = read.await.expect("the list ends")?;
    let names = page.views.iter().map(|view| view.key.name.to_string());
    Ok(names.collect())
}

#[tokio::test]
async fn a_damaged_document_is_repaired_by_a_revocation_only() {
    for text in damaged() {
        let documents = InMemory::default();
        let [client] = clients(&documents);
        put(&documents, key("a"), text);
        for op in [
            acquire(client.lease, TTL, false),
            Op::release(client.lease),
            Op::Remove(Removal::Latch),
            Op::Remove(Removal::Note(Slot::Period)),
        ] {
            let Reply::Rejected(error) = client.send(op).await else {
                panic!("it cannot be read");
            };
            assert!(error.to_string().contains("revoke it"), "{error}");
        }
        let revoked = client.apply(Op::Revoke(Whom::All)).await;
        assert_eq!(revoked, Outcome::Revoked(Vec::new()));
        assert!(client.acquires().await);
    }
}

#[tokio::test]
async fn a_damaged_document_hides_no_other_lock_and_no_other_completion() {
    let documents = InMemory::default();
    let [client] = clients(&documents);
    let space = key("a").space;
    assert!(client.acquires().await);
    let [other, latch, note] = damaged();
    put(&documents, key("done"), annotated(Slot::Period));
    put(&documents, key("latch"), latch);
    let description = space.key(Name::of_client(client.lease.client));
    put(&documents, description, &*other);
    let held = || listed(&client, Query::Names(space.clone()));
    let completions = || listed(&client, Query::Completions(space.clone()));
    assert_eq!(held().await.unwrap(), ["a"]);
    let named = Query::Name {
        key: key("a"),
        parts: Parts::Holder,
        watch: false,
    };
    assert_eq!(listed(&client, named).await.unwrap(), ["a"]);

    // It may be held.
    put(&documents, key("bad"), other);
    let error = held().await.unwrap_err();
    assert_eq!(
        (error.lock(), error.store()),
        (Some("bad"), Some("documents:"))
    );
    assert!(error.to_string().contains("revoke it"), "{error}");
    assert_eq!(completions().await.unwrap(), ["done"]);

    put(&documents, key("bad"), note);
    let error = completions().await.unwrap_err();
    assert_eq!(error.lock(), Some("bad"), "{error}");
}

/// The first part of the list has no completion.
#[tokio::test]
async fn a_list_of_completions_goes_on_behind_values() {
    let documents = InMemory {
        page: Some(1),
        ..InMemory::default()
    };
    let client = TestClient::new(&documents, 1, 0);
    for (name, slot) in [("a", Slot::Value), ("b", Slot::Period), ("c", Slot::Period)] {
        put(&documents, key(name), annotated(slot));
    }
    let completions = listed(&client, Query::Completions(key("a").space));
    assert_eq!(completions.await.unwrap(), ["b", "c"]);
}

/// Whatever is in them.
#[tokio::test]
async fn a_list_reads_long_documents_in_small_parts() {
    let documents = InMemory::default();
    let [client] = clients(&documents);
    for number in 0..200 {
        put(&documents, key(&number.to_string()), "x".repeat(100_000));
    }
    let completions = listed(&client, Query::Completions(key("a").space));
    assert!(completions.await.unwrap().is_empty());
    let longest = documents.longest_read.load(Ordering::Relaxed);
    assert!(longest < 4_000_000, "{longest}");
}
