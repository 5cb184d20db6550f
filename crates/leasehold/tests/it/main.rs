//! Tests of the library over real stores.

// In a test a panic is the answer, in its helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_store;
mod bed;
mod cancel;
mod conformance;
mod differential;
mod doctor;
mod faults;
mod fence;
mod isolation;
mod loss;
mod old_grants;
mod processes;
mod redis;
mod remains;
mod sqlite;
mod stage;
mod tap;
mod terms;
mod waiters;
mod waits;
