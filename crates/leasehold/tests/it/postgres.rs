//! The PostgreSQL store: its address, its schema, its connections and its transactions, beyond the rules for every store.

mod connect;
mod faults;
mod transactions;

use std::sync::Arc;

use leasehold::__private::store::{self, OpenOptions, PostgresStore, Store};
use leasehold::ErrorKind;
use leasehold_testkit::{PostgresServer, eventually_async};

use crate::store_client::*;
use crate::waiters::SOON;

/// The URL for a role of its own.
fn url_of(server: &PostgresServer, role: &str) -> String {
    server.url().replace("testkit@", &format!("{role}@"))
}

/// The error of an address.
async fn refused(url: &str) -> leasehold::Error {
    let opened = store::open_with(url, &OpenOptions::default()).await;
    opened.map(|store| store.to_string()).unwrap_err()
}
