//! Semaphores, by the operations of a store.

use std::num::NonZeroU32;

use leasehold::ErrorKind;
use leasehold::store::{Claim, Feature, Op, Outcome, Reply, Request};

use crate::fixture::{Fixture, fresh_name};
use crate::store_client::{acquire, send};

/// A request for permits.
fn permits(name: &str, number: u64, weight: u32, limit: u32) -> Request {
    let mut request = acquire(name, number);
    if let Op::Acquire(acquire) = &mut request.op {
        let [weight, limit] = [weight, limit].map(|count| NonZeroU32::new(count).unwrap());
        acquire.claim = Claim::Permits { weight, limit };
    }
    request
}

pub(super) async fn permits_are_granted_or_refused_with_a_reason(fixture: Fixture) {
    let (store, name) = (fixture.store().await, fresh_name("permits"));
    let keeps = store.capabilities().kind.has(Feature::Semaphores);
    match send(&*store, permits(&name, 1, 1, 2)).await {
        Reply::Applied { outcome, .. } => {
            assert!(keeps && matches!(outcome, Outcome::Granted { .. }));
        }
        Reply::Rejected(error) => {
            assert!(
                !keeps && error.to_string().contains("no semaphores"),
                "{error}"
            );
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
        Reply::Unknown(error) => panic!("{error}"),
    }
}
