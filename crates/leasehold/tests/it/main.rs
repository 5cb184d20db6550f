//! Tests of the library over real stores.

// In a test a panic is the answer, in its helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cancel;
mod conformance;
mod differential;
mod doctor;
mod faults;
mod faulty_store;
mod fence;
mod fixture;
mod harness;
mod isolation;
mod loss;
mod old_grants;
mod processes;
mod recording_store;
mod redis;
mod remains;
mod sqlite;
mod terms;
mod waiters;
mod waits;

/// The helper process of other tests, see [`processes::child`].
#[test]
fn helper() {
    if leasehold_testkit::helper::is_helper() {
        processes::child::serve();
    }
}
