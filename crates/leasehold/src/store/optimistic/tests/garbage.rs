//! Documents that nobody needs.

use super::*;

/// Whether a search for garbage leaves the descriptions of clients and the records of locks there.
async fn left(garbage: Garbage) -> [bool; 2] {
    let documents = InMemory {
        garbage,
        ..InMemory::default()
    };
    let client = TestClient::new(&documents, 1, 0);
    assert!(client.acquires().await);
    client.apply(Op::release(client.lease)).await;
    let description = key("a").space.key(Name::of_client(client.lease.client));
    let describe = Op::Describe {
        text: "x".into(),
        keep: Duration::from_secs(1),
    };
    let request = Request::new(description.clone(), describe);
    client.store.apply(vec![request]).await;

    // By its wall clock that was three days ago.
    let later = TestClient::new(&documents, 2, 3 * 86_400);
    let requests = (0..1_000).map(|_| Request::new(key("b"), Op::release(later.lease)));
    later.store.apply(requests.collect()).await;
    tokio::time::sleep(TTL).await;
    let texts = lock(&documents.texts);
    [description, key("a")].map(|key| texts.contains_key(&key))
}

#[tokio::test(start_paused = true)]
async fn only_what_a_store_can_remove_is_removed() {
    assert_eq!(left(Garbage::Nothing).await, [true, true]);
    assert_eq!(left(Garbage::Clients).await, [false, true]);
    assert_eq!(left(Garbage::Everything).await, [false, false]);
}
