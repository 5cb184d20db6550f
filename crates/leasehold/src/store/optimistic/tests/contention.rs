//! Batches of one process and clients of several that write the same documents.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_slow_name_delays_no_other_name_of_its_batch() {
    let documents = InMemory {
        delay: Duration::from_millis(200),
        slow: Some(key("slow")),
        ..InMemory::default()
    };
    let client = TestClient::new(&documents, 1, 0);
    let acquire = |name| Request::new(key(name), acquire(client.lease, TTL, false));
    let first = client.store.apply(vec![acquire("slow")]);
    let second = client.store.apply(vec![acquire("a"), acquire("slow")]);
    let third = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let begun = Deadline::now();
        let replies = client.store.apply(vec![acquire("a")]).await;
        assert!(
            matches!(replies[..], [Reply::Applied { .. }]),
            "{replies:?}"
        );
        begun.elapsed()
    };
    let (first, second, waited) = tokio::join!(first, second, third);
    for reply in first.iter().chain(&second) {
        assert!(matches!(reply, Reply::Applied { .. }), "{reply:?}");
    }
    assert!(waited < documents.delay, "{waited:?}");
}

/// If all went on together, the n-th of them would succeed in its n-th attempt.
#[tokio::test(start_paused = true)]
async fn clients_that_conflict_do_not_try_again_together() {
    const CLIENTS: u8 = 32;
    let documents = InMemory {
        delay: Duration::from_millis(5),
        ..InMemory::notifying()
    };
    let holder = TestClient::new(&documents, 100, 0);
    assert!(holder.acquires().await);
    let waiters = (0..CLIENTS).map(|number| {
        let client = TestClient::new(&documents, number, 0);
        tokio::spawn(async move { client.apply(wait(client.lease)).await })
    });
    for waiter in waiters.collect::<Vec<_>>() {
        let outcome = waiter.await.unwrap();
        assert!(matches!(outcome, Outcome::Refused { .. }), "{outcome:?}");
    }
    let (writes, clients) = (
        documents.writes.load(Ordering::Relaxed),
        usize::from(CLIENTS),
    );
    let together = clients * (clients + 1) / 2;
    assert!(writes < together * 3 / 4, "{writes} of {together}");
}
