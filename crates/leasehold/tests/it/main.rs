//! Tests of the library over real stores.

mod sqlite;
