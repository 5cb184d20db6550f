//! The etcd store: its address, its users, its members and its messages, beyond the rules for every store.

mod connect;
mod faults;
mod messages;

use leasehold::__private::store::{OpenOptions, WakeupMode};
use leasehold::ErrorKind;
use leasehold_testkit::{EtcdCluster, eventually_async};

use crate::store_client::*;
use crate::waiters::SOON;

/// The value of a key.
fn value(cluster: &EtcdCluster, key: &str) -> String {
    cluster.ctl(&["get", key, "--print-value-only"])
}

/// Ends a lease, whose number is decimal in values.
fn revoke_lease(cluster: &EtcdCluster, lease: &str) {
    let lease: i64 = lease.parse().unwrap();
    cluster.ctl(&["lease", "revoke", &format!("{lease:x}")]);
}
