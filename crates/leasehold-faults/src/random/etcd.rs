//! The faults of an etcd cluster.

use leasehold_testkit::{Etcd, EtcdCluster};
use serde_json::Value;

use super::Timed;
use super::cluster::FaultyProgram;
use crate::history::Fault;

impl FaultyProgram for Etcd {
    const SCHEME: &'static str = "etcd";
    const FAULTS: &'static [Fault] = &[
        Fault::KillMember,
        Fault::StopMember,
        Fault::RestartMembers,
        Fault::CompactRevisions,
        Fault::RevokeSession,
    ];

    fn start_members(count: usize) -> EtcdCluster {
        // A leader is replaced within a ttl.
        let options = EtcdCluster::options()
            .argument("--heartbeat-interval=50")
            .argument("--election-timeout=500")
            // A long world does not collect logs.
            .argument("--snapshot-count=2000")
            .argument("--max-snapshots=1")
            .argument("--max-wals=1");
        options.start(count)
    }

    fn leader_of(cluster: &EtcdCluster) -> Option<usize> {
        Some(cluster.leader())
    }

    fn inject(cluster: &EtcdCluster, timed: &Timed) -> Option<()> {
        match timed.fault {
            Fault::CompactRevisions => compact(cluster),
            _ => revoke_session(cluster, timed.length_ms as usize),
        }
    }

    fn entries(cluster: &EtcdCluster) -> Option<usize> {
        let keys = cluster.try_ctl(&["get", "", "--prefix", "--keys-only"]);
        // Each new leader prolongs all leases: descriptions of clients, and marks, which have a ttl of 90 s, stay until
        // there was none for so long.
        let prolonged = |key: &str| key.contains('{') || key.contains("/mark/");
        let is_counted = |key: &&str| !key.is_empty() && !prolonged(key);
        Some(keys.ok()?.lines().filter(is_counted).count())
    }
}

/// Removes all revisions but the last. `None`: the cluster refused it.
fn compact(cluster: &EtcdCluster) -> Option<()> {
    let read = cluster.try_ctl(&["get", "leasehold/", "--write-out=json"]);
    let read: Value = serde_json::from_str(&read.ok()?).ok()?;
    let revision = read["header"]["revision"].to_string();
    let compacted = cluster.try_ctl(&["compaction", &revision]);
    compacted.ok().map(drop)
}

/// Ends the session of one of the clients. `None`: it has ended, or the cluster refused it.
fn revoke_session(cluster: &EtcdCluster, drawn: usize) -> Option<()> {
    let list = ["get", "leasehold/client/", "--prefix", "--print-value-only"];
    let routes = cluster.try_ctl(&list).ok()?;
    // Each is that of a process, and the lease of its session.
    let leases = routes.lines().filter_map(|route| route.split_once(' '));
    let leases: Vec<_> = leases.collect();
    let (_, lease) = leases.get(drawn % leases.len().max(1))?;
    let lease: i64 = lease.parse().ok()?;
    let revoked = cluster.try_ctl(&["lease", "revoke", &format!("{lease:x}")]);
    revoked.ok().map(drop)
}
