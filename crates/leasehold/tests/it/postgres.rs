//! The PostgreSQL store: its address, its schema, its connections and its transactions, beyond the rules for every store.

mod connect;
mod faults;
mod pooler;
mod transactions;

use std::sync::Arc;

use leasehold::__private::store::{OpenOptions, PostgresStore, Store};
use leasehold::ErrorKind;
use leasehold_testkit::{PostgresServer, eventually_async};

use crate::store_client::*;
use crate::waiters::SOON;

/// The URL for a role of its own.
fn url_of(server: &PostgresServer, role: &str) -> String {
    server.url().replace("testkit@", &format!("{role}@"))
}
