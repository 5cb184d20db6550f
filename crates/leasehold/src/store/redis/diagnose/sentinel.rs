//! The reports of sentinels on their master.

use std::time::Duration;

use super::{fields, permitted, send, words};
use crate::store::diagnose::{Fields, QueryResult, SentinelFacts};
use crate::store::options::OpenOptions;
use crate::store::redis::address::Address;
use crate::store::redis::address::deployment::SentinelSet;
use crate::store::redis::errors;
use crate::store::redis::link::connection_manager::{ConnectionManager, Target};
use crate::{Error, Result};

/// Asks each sentinel. Also returns the servers that they monitor: the master first.
///
/// # Errors
///
/// That of a connection attempt, if no sentinel names a master.
pub(super) async fn collect(
    set: SentinelSet,
    options: &OpenOptions,
) -> Result<(Vec<SentinelFacts>, Vec<Address>)> {
    let (mut reports, mut servers) = (Vec::new(), Vec::new());
    let mut newest = None;
    for sentinel in set.each() {
        let name = sentinel.server();
        let manager = ConnectionManager::new(sentinel, options);
        let master = match one(&manager, &set.master).await {
            Ok((Ok(master), replicas)) => {
                let epoch = master.number("config-epoch");
                if newest.is_none_or(|newest| newest < epoch) {
                    newest = Some(epoch);
                    servers = addresses(&master, &replicas, &set);
                }
                Ok(master)
            }
            Ok((hidden, _)) => hidden,
            Err(error) => Err(error.to_string()),
        };
        reports.push(SentinelFacts { name, master });
    }
    if servers.is_empty() {
        return Err(nothing_named(set, options).await);
    }
    Ok((reports, servers))
}

/// Why no master was named: the error of a connection attempt.
async fn nothing_named(set: SentinelSet, options: &OpenOptions) -> Error {
    let manager = ConnectionManager::new(Target::Found(set), options);
    match manager.session(Duration::ZERO, false).await {
        Ok(_) => errors::invalid_reply(),
        Err(error) => error,
    }
}

async fn one(
    manager: &ConnectionManager,
    master: &str,
) -> Result<(QueryResult<Fields>, Vec<Fields>)> {
    let ask = |what: &str| words(&["SENTINEL", what, master]);
    // REPLICAS is not known to servers before 5.0.
    let replies = send(manager, [ask("MASTER"), ask("SLAVES")]).await?;
    let [about, replicas] = &replies[..] else {
        return Err(errors::invalid_reply());
    };
    let replicas = replicas.as_sequence().unwrap_or_default().iter();
    let replicas = replicas.map(fields).collect();
    Ok((permitted(about).map(fields), replicas))
}

fn addresses(master: &Fields, replicas: &[Fields], set: &SentinelSet) -> Vec<Address> {
    let all = std::iter::once(master).chain(replicas);
    all.filter_map(|server| {
        let port = server.get("port")?.parse().ok()?;
        Some(set.sentinels[0].at(server.get("ip")?, port))
    })
    .collect()
}
