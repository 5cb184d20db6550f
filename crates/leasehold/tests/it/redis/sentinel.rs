//! The Redis store where sentinels name the master.

mod failover;
mod refused;
mod woken;

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::Store;
use leasehold_testkit::{RedisServer, SentinelSet};

use super::event_log::Asker;
use super::*;

/// What a failover may take on a slow machine.
const FAILOVER: Duration = Duration::from_secs(30);

/// The keys of locks that a server has.
fn records(server: &RedisServer) -> Vec<String> {
    let keys = server.cli(&["KEYS", "*:{*}"]);
    keys.lines().map(str::to_owned).collect()
}

/// Asks until the connection stands again.
async fn eventually_granted(store: &dyn Store, request: Request) -> u64 {
    let mut token = None;
    leasehold_testkit::eventually_async(FAILOVER, async || {
        match send(store, request.clone()).await {
            Reply::Applied {
                outcome: Outcome::Granted { first },
                ..
            } => token = Some(first.get()),
            Reply::Applied { outcome, .. } => panic!("{outcome:?}"),
            // While the set has no master, nobody knows or nobody is there: both pass.
            Reply::Rejected(error) | Reply::Unknown(error) => {
                assert_eq!(error.kind(), leasehold::ErrorKind::Unreachable, "{error}");
            }
        }
        token.is_some()
    })
    .await;
    token.unwrap()
}
