//! The value of a leader during failures, on a clock that the tests move.

use std::pin::pin;

use leasehold::{ErrorKind, Leadership};

use crate::faulty_store::FaultMode;
use crate::harness::{Harness, SECOND, poll_once};

const NAME: &str = "harness";

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

/// The store keeps its lease for a while.
#[tokio::test]
async fn a_value_is_written_after_a_failure_and_not_after_the_loss() {
    let harness = Harness::new();
    let leadership = campaign(&harness, "one").await;
    harness.store.set(FaultMode::Unreachable);
    let mut second = pin!(leadership.proclaim("two"));
    assert!(poll_once(second.as_mut()).await.is_none());
    harness.store.set(FaultMode::None);
    harness.advance(SECOND * 2).await;
    poll_once(second.as_mut()).await.unwrap().unwrap();
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
    assert_eq!(value(&harness).await.as_deref(), Some("two"));
}
