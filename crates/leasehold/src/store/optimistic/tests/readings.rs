//! What a reader sees of a holder.

use super::*;

/// Whether somebody holds the lock, as a client reads it.
async fn is_held(client: &TestClient) -> bool {
    client.view(Parts::Lease).await.holder.is_some()
}

/// Its process has seen the holder before only in an earlier version.
#[tokio::test]
async fn a_holder_that_has_renewed_its_lease_is_read_as_one() {
    let [holder, reader] = clients(&InMemory::default());
    assert!(holder.acquires().await);
    assert!(!reader.acquires().await);
    pass(&[&holder, &reader], TTL / 2);
    holder.renews().await;
    pass(&[&holder, &reader], TTL * 3 / 4);
    assert!(is_held(&reader).await);
    pass(&[&holder, &reader], TTL);
    assert!(!is_held(&reader).await);
}

/// It sends no request.
#[tokio::test]
async fn an_observer_reads_a_dead_holder_as_over_a_ttl_after_it_has_seen_it() {
    let [holder, observer] = clients(&InMemory::default());
    assert!(holder.acquires().await);
    assert!(is_held(&observer).await);
    pass(&[&observer], TTL - Duration::from_millis(1));
    assert!(is_held(&observer).await);
    pass(&[&observer], Duration::from_millis(1));
    assert!(!is_held(&observer).await);
}
