//! The Redis store where sentinels name the master.

mod failover;
mod observing;
mod refused;
mod woken;

use leasehold_testkit::SentinelSet;

use super::*;

/// Longer than a failover takes on a busy machine.
const FAILOVER: Duration = Duration::from_secs(30);

/// The keys of the records that a server has.
fn records(server: &RedisServer) -> Vec<String> {
    let keys = server.cli(&["KEYS", "*:{*}"]);
    keys.lines().map(str::to_owned).collect()
}
