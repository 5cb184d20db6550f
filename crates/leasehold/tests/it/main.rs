//! Tests of the library over real stores.

// Tests and their helpers fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod conformance;
mod differential;
mod doctor;
mod etcd;
mod examples;
mod faulty_store;
mod fence;
mod fixture;
mod harness;
mod isolation;
mod jobs;
mod kinds;
mod leftovers;
mod loss;
mod metrics;
mod min_hold;
mod objects;
mod postgres;
mod processes;
mod recording_store;
mod redis;
mod runtimes;
mod sqlite;
mod store_client;
mod store_ext;
mod waiters;
mod waits;
mod zookeeper;

/// The helper process of other tests, see [`processes::child`].
#[test]
fn helper() {
    if leasehold_testkit::helper::is_helper() {
        processes::child::serve();
    }
}
