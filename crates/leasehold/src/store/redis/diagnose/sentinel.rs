//! What sentinels say of their master.

use redis::Value;

use super::{send, words};
use crate::store::diagnose::{Fields, Seen, Watch};
use crate::store::options::OpenOptions;
use crate::store::redis::address::Address;
use crate::store::redis::codec::text;
use crate::store::redis::connection_manager::ConnectionManager;
use crate::store::redis::deployment::{Deployment, SentinelSet};
use crate::store::redis::sentinel::Sentinels;
use crate::store::redis::target::Target;
use crate::store::redis::{errors, inspect};
use crate::{Error, Result};

/// Asks each sentinel, and gives the servers that they watch: the master first.
///
/// # Errors
///
/// Of connecting, if no sentinel names a master.
pub(super) async fn ask(
    set: SentinelSet,
    options: &OpenOptions,
) -> Result<(Vec<Watch>, Vec<Address>)> {
    let sentinels = Sentinels::new(set.clone(), options.sentinel_password.clone());
    let (mut watches, mut servers) = (Vec::new(), Vec::new());
    let mut newest = None;
    for sentinel in sentinels.each() {
        let name = sentinel.server();
        let manager =
            ConnectionManager::new(sentinel, options.connect_timeout, options.response_timeout);
        let asked = one(&manager, &set.master).await;
        let master = match asked {
            Ok((Seen::Known(master), replicas)) => {
                let epoch = master.number("config-epoch");
                if newest.is_none_or(|newest| newest < epoch) {
                    newest = Some(epoch);
                    servers = places(&master, &replicas, &set);
                }
                Seen::Known(master)
            }
            Ok((hidden, _)) => hidden,
            Err(error) => Seen::Hidden(error.to_string()),
        };
        watches.push(Watch { name, master });
    }
    if servers.is_empty() {
        return Err(nothing_named(set, options).await);
    }
    Ok((watches, servers))
}

/// Why no master was named, as whoever connects is told.
async fn nothing_named(set: SentinelSet, options: &OpenOptions) -> Error {
    let target = match Target::of(Deployment::Sentinel(set), options) {
        Ok(target) => target,
        Err(error) => return error,
    };
    let manager = ConnectionManager::new(target, options.connect_timeout, options.response_timeout);
    match manager.settled().await {
        Ok(_) => errors::strange_answer(),
        Err(error) => error,
    }
}

async fn one(manager: &ConnectionManager, master: &str) -> Result<(Seen<Fields>, Vec<Fields>)> {
    let ask = |what: &str| words(&["SENTINEL", what, master]);
    // The newer word for them is not known to servers before 5.0.
    let answers = send(manager, [ask("MASTER"), ask("SLAVES")]).await?;
    let [about, replicas] = &answers[..] else {
        return Err(errors::strange_answer());
    };
    if let Some(refusal) = errors::refusal(about) {
        return Ok((Seen::Hidden(refusal.words), Vec::new()));
    }
    let replicas = match replicas {
        Value::Array(replicas) => replicas.iter().map(fields).collect(),
        _ => Vec::new(),
    };
    Ok((Seen::Known(fields(about)), replicas))
}

fn fields(answer: &Value) -> Fields {
    let pairs = inspect::fields(answer).unwrap_or_default().into_iter();
    Fields(
        pairs
            .filter_map(|(name, value)| text(name).zip(text(value)))
            .collect(),
    )
}

fn places(master: &Fields, replicas: &[Fields], set: &SentinelSet) -> Vec<Address> {
    let Some(any) = set.sentinels.first() else {
        return Vec::new();
    };
    let all = std::iter::once(master).chain(replicas);
    all.filter_map(|server| {
        let port = server.get("port")?.parse().ok()?;
        Some(any.at(server.get("ip")?, port))
    })
    .collect()
}
