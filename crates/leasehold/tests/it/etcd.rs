//! The etcd store: its address, its users, its members and its messages, beyond the rules for every store.

mod connect;
mod faults;
mod messages;

use leasehold::__private::store::{OpenOptions, Store, WakeupMode};
use leasehold::ErrorKind;
use leasehold_testkit::{EtcdCluster, eventually_async};

use crate::store_client::*;
use crate::waiters::SOON;

async fn until_notified(store: &dyn Store) {
    let is_notified = async || store.capabilities().wakeup == WakeupMode::Grants;
    eventually_async(SOON, is_notified).await;
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
