//! The value of a leader during failures, on a clock that the tests move.

use std::pin::pin;
use std::time::Duration;

use leasehold::{ErrorKind, Leadership};
use leasehold_core::{Annotation, Name, Proclamation, Slot};
use tokio::time::timeout;

use crate::faulty_store::FaultMode;
use crate::harness::{Harness, SECOND, TTL, poll_once};
use crate::readings::Beside as _;
use crate::store_client::keyspace;

const NAME: &str = "harness";

/// Longer than an observer takes to read a change.
const READ_TIME: Duration = Duration::from_millis(50);

async fn campaign(harness: &Harness, value: &str) -> Leadership {
    let election = harness.client.election(NAME).unwrap();
    let leadership = election.campaign(value).await.unwrap();
    leadership.proclaimed().await.unwrap();
    leadership
}

/// The value that a new observer finds.
async fn value(harness: &Harness) -> Option<String> {
    let election = harness.another().client.election(NAME).unwrap();
    let leader = election.leader().await.unwrap();
    leader.map(|leader| leader.value.to_string())
}

/// The store applies a write of this leader, whose reply was given up.
async fn apply_late(harness: &Harness, leadership: &Leadership, number: u64, value: &str) {
    let value = value.into();
    let annotation = Annotation {
        lease: leadership.guard().lease_id(),
        token: leadership.term(),
        text: Proclamation { number, value }.to_text().into(),
    };
    let key = keyspace("leasehold", "default").key(Name::parse(NAME).unwrap());
    let stored = harness
        .store
        .annotate(&key, &Slot::Value, &annotation, TTL * 10);
    stored.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_late_write_of_an_earlier_value_is_not_told_and_is_replaced() {
    let harness = Harness::new();
    let leadership = campaign(&harness, "one").await;
    let observed = harness.another();
    let mut leaders = observed.client.election(NAME).unwrap().observe();
    harness.store.set(FaultMode::Unreachable);
    let mut second = pin!(leadership.proclaim("two"));
    assert!(poll_once(second.as_mut()).await.is_none());
    harness.store.set(FaultMode::None);
    harness.advance(SECOND * 2).await;
    poll_once(second.as_mut()).await.unwrap().unwrap();
    // A call that is dropped proclaims its value, too, and before the next one.
    assert!(
        poll_once(pin!(leadership.proclaim("three")))
            .await
            .is_none()
    );
    leadership.proclaim("four").await.unwrap();
    let told = leaders.next().await.unwrap().unwrap();
    assert_eq!(&*told.value, "four");

    apply_late(&harness, &leadership, 2, "two").await;
    assert_eq!(value(&harness).await.as_deref(), Some("two"));
    assert!(timeout(READ_TIME, leaders.next()).await.is_err());
    for _ in 0..10 {
        harness.advance(TTL / 10).await;
    }
    assert_eq!(value(&harness).await.as_deref(), Some("four"));
    assert!(timeout(READ_TIME, leaders.next()).await.is_err());
}

/// The store keeps its lease for a while.
#[tokio::test]
async fn a_leader_that_is_lost_writes_no_value() {
    let harness = Harness::new();
    let leadership = campaign(&harness, "one").await;
    harness.store.set(FaultMode::Unreachable);
    let mut late = pin!(leadership.proclaim("late"));
    assert!(poll_once(late.as_mut()).await.is_none());
    harness
        .until(leadership.guard(), |state| state.is_lost())
        .await;
    harness.store.set(FaultMode::None);
    harness.advance(SECOND * 5).await;
    for result in [
        late.await,
        leadership.proclaim("later").await,
        leadership.proclaimed().await,
    ] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Lost);
    }
    harness.advance(SECOND).await;
    assert_eq!(value(&harness).await.as_deref(), Some("one"));
}
