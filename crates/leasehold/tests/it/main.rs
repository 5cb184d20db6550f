//! Tests of the library over real stores.

mod differential;
#[cfg(feature = "sqlite")]
mod sqlite;
