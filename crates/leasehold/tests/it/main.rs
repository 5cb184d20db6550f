//! Tests of the library from outside.

// Helpers of tests fail by panicking, as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod differential;
