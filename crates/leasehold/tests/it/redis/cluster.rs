//! The Redis store over real clusters.

mod connect;
mod failover;
mod moving;
mod routing;
mod waiting;

use std::time::Duration;

use leasehold::{Client, Guard, State};
use leasehold_testkit::Cluster;

use super::*;

/// Longer than a failover takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// The key of a lock of a client with the usual namespace and tenant.
fn record(name: &str) -> String {
    format!("leasehold:{{default:{name}}}")
}

/// Names of which so many are on each master, with the number of their master.
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

async fn client(cluster: &Cluster, ttl: Duration) -> Client {
    let builder = Client::builder().ttl(ttl);
    builder.connect(&cluster.url()).await.unwrap()
}

async fn lock(client: &Client, name: &str) -> Guard {
    client.mutex(name).unwrap().lock().await.unwrap()
}

fn is_held(guard: &Guard) -> bool {
    matches!(guard.state(), State::Held { .. })
}

/// The nodes that have a record of a lock, by their own word, whoever owns its slot.
fn records(cluster: &Cluster, name: &str) -> usize {
    let slot = cluster.slot_of(&record(name)).to_string();
    let has = |node: &&leasehold_testkit::RedisServer| {
        let master = node.cli(&["ROLE"]).starts_with("master");
        let keys = node.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
        master && keys.lines().any(|key| key == record(name))
    };
    cluster.nodes().iter().filter(has).count()
}
