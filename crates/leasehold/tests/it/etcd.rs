//! The etcd store: its address, its users, its members and its messages, beyond the rules for every store.

mod connect;
mod faults;
mod messages;

use leasehold::__private::store::{self, OpenOptions, Store, WakeupMode};
use leasehold::{Error, ErrorKind};
use leasehold_testkit::{EtcdCluster, eventually_async};

use crate::store_client::*;
use crate::waiters::SOON;

/// The error of an address.
async fn refused(url: &str) -> Error {
    let opened = store::open_with(url, &OpenOptions::default()).await;
    opened.map(|store| store.to_string()).unwrap_err()
}

async fn until_notified(store: &dyn Store) {
    let is_notified = async || store.capabilities().wakeup == WakeupMode::Grants;
    eventually_async(SOON, is_notified).await;
}

/// Waits until a request gets a reply that it was applied.
async fn until_works(store: &dyn Store, name: &str) {
    eventually_async(SOON, async || {
        let replies = store.apply(vec![acquire(name, 1), release(name, 1)]).await;
        replies.iter().all(|reply| outcome(reply).is_some())
    })
    .await;
}

/// The value of a key.
fn value(cluster: &EtcdCluster, key: &str) -> String {
    cluster.ctl(&["get", key, "--print-value-only"])
}

/// Ends a lease, whose number is decimal in values.
fn revoke_lease(cluster: &EtcdCluster, lease: &str) {
    let lease: i64 = lease.parse().unwrap();
    cluster.ctl(&["lease", "revoke", &format!("{lease:x}")]);
}
