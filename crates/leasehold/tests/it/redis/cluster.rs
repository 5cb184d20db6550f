//! The Redis store over real clusters.

mod buckets;
mod connect;
mod failover;
mod moving;
mod observing;
mod routing;
mod waiting;

use leasehold_testkit::Cluster;

use super::*;

/// So many names on each master, with the number of the master.
fn names_on_each(cluster: &Cluster, count: usize) -> Vec<(usize, String)> {
    let mut found = [0; 3];
    let mut names = Vec::new();
    for nth in 0.. {
        let name = format!("spread/{nth}");
        let master = cluster.master_of(cluster.slot_of(&record(&name)));
        if found[master] < count {
            found[master] += 1;
            names.push((master, name));
        }
        if found == [count; 3] {
            break;
        }
    }
    names
}

/// The number of masters that have a record of a lock, whichever owns its slot.
fn records(cluster: &Cluster, key: &Key) -> usize {
    let record = crate::leftovers::record_key(key);
    let slot = cluster.slot_of(&record).to_string();
    let has = |node: &&RedisServer| {
        let master = node.cli(&["ROLE"]).starts_with("master");
        let keys = node.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]);
        master && keys.lines().any(|key| key == record)
    };
    cluster.nodes().iter().filter(has).count()
}
