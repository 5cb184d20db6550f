//! The Redis store where sentinels name the master.

mod failover;
mod refused;
mod woken;

use leasehold_testkit::SentinelSet;

use super::*;

/// The keys of the records that a server has.
fn records(server: &RedisServer) -> Vec<String> {
    let keys = server.cli(&["KEYS", "*:{*}"]);
    keys.lines().map(str::to_owned).collect()
}
