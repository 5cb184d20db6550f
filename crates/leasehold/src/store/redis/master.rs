//! A server that is one of many masters: its identity, its inspection and its admission.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::quorum::{MasterInfo, RunId};
use leasehold_core::{Namespace, StoreTime, Token};
use redis::{Value, cmd};

use super::address::Address;
use super::link::connection_manager::ConnectionManager;
use super::link::notifications::Notifications;
use super::topology::Topology;
use super::topology::node::Node;
use super::wire::decode::failed_command;
use super::wire::keys::admission_key;
use super::wire::reply::{parsed, text};
use super::wire::script::Script;
use super::{RedisStore, errors};
use crate::Result;
use crate::store::diagnose::Fields;
use crate::store::options::OpenOptions;

/// The identity of a server, from `INFO`.
#[derive(Clone, Debug)]
pub(in crate::store) struct Facts {
    /// The run id of its process, which distinguishes servers. It changes with every start.
    pub(in crate::store) run: String,
    pub(in crate::store) version: String,
    /// Its master, if it is a replica.
    pub(in crate::store) master: Option<String>,
    /// Whether it is a node of a cluster.
    pub(in crate::store) cluster: bool,
}

/// The inspection of a master, and its replication id as the server writes it, which identifies its run.
#[derive(Clone, Debug)]
pub(in crate::store) struct Inspection {
    pub(in crate::store) info: MasterInfo,
    run: String,
}

/// Identifies a connection for the order of its calls. A call that was sent again may be behind later ones, so it
/// changes the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct ConnectionId {
    pub(in crate::store) session: u64,
    pub(in crate::store) resent: u64,
}

impl RedisStore {
    /// The connection over which a request is sent at its first poll, if there is one.
    pub(in crate::store) fn ready_connection(&self) -> Option<ConnectionId> {
        let node = self.master().ok()?;
        Some(ConnectionId {
            session: node.manager.ready_session()?.id,
            resent: node.resent(),
        })
    }

    fn master(&self) -> Result<&Node> {
        match &*self.topology {
            Topology::One(node) => Ok(node),
            Topology::Cluster(_) => Err(errors::invalid_reply().at_store(self)),
        }
    }

    /// One of many masters. Connects on first use.
    pub(in crate::store) fn one_of_many(address: Address, options: &OpenOptions) -> Self {
        let url = address.to_string();
        let manager =
            ConnectionManager::notifying(Notifications::without_queue(), address, options);
        Self::new(url, Topology::One(Arc::new(Node::new(manager))), options)
    }

    /// Proves that the server responds, accepts us and can run the rule. Returns its identity.
    pub(in crate::store) async fn meet(&self) -> Result<Facts> {
        self.greet().await?;
        let queried = self.master()?.manager.query(Duration::ZERO, cmd("INFO"));
        let info = match queried.await {
            Err(error) => Err(error),
            Ok(Value::ServerError(error)) => Err(errors::command_error("INFO", "", &error)),
            Ok(reply) => text(&reply).ok_or_else(errors::invalid_reply),
        };
        let info = Fields::of_lines(&info.map_err(|error| error.at_store(self))?);
        let field = |name: &str| info.get(name).map(str::to_owned);
        let of_master = || {
            let (host, port) = (field("master_host")?, field("master_port")?);
            Some(format!("{host}:{port}"))
        };
        Ok(Facts {
            run: field("run_id").ok_or_else(|| errors::invalid_reply().at_store(self))?,
            version: field("redis_version").unwrap_or_default(),
            master: info.is("role", "slave").then(of_master).flatten(),
            cluster: info.is("cluster_enabled", "1"),
        })
    }

    /// Inspects the server and its admission record for a namespace. If it is not admitted, the time of the first
    /// inspection of this run is stored. A candidate is admitted with its floor, unless it was restarted or its data
    /// was lost since its inspection.
    pub(in crate::store) async fn inspect_master(
        &self,
        namespace: &Namespace,
        admit: Option<(&Inspection, Option<Token>)>,
    ) -> Result<Inspection> {
        let key = admission_key(namespace);
        let call = |by_text| {
            let mut cmd = Script::Master.call(by_text, 5, key.len());
            cmd.arg(1).arg(&key);
            if let Some((candidate, floor)) = admit {
                let since = candidate.info.since.map(StoreTime::as_micros);
                cmd.arg(&candidate.run).arg(since.unwrap_or_default());
                cmd.arg(floor.map_or(0, Token::get));
            }
            cmd
        };
        let result = match self.master()?.call_script(call).await {
            Err(error) => Err(error),
            Ok(Value::ServerError(error)) => Err(errors::call(&error).0),
            Ok(Value::Array(reply)) => inspection(&reply)
                .ok_or_else(|| failed_command(&key, &reply).unwrap_or_else(errors::invalid_reply)),
            Ok(_) => Err(errors::invalid_reply()),
        };
        result.map_err(|error| error.at_store(self))
    }
}

fn inspection(reply: &[Value]) -> Option<Inspection> {
    let [run, up, now, admitted, high, since] = reply else {
        return None;
    };
    let run = text(run)?;
    let uptime = parsed::<u64>(up)?.saturating_sub(1);
    let info = MasterInfo {
        run: run_id(&run)?,
        // The uptime is a difference of two times in whole seconds, so it may be a second too large.
        uptime: Duration::from_secs(uptime),
        now: StoreTime::from_micros(parsed(now)?),
        admitted: match text(admitted)? {
            run if run.is_empty() => None,
            // An unreadable id is that of another run.
            run => Some(run_id(&run).unwrap_or(RunId(0))),
        },
        high: parsed(high).and_then(Token::new),
        since: parsed(since).map(StoreTime::from_micros),
    };
    Some(Inspection { info, run })
}

/// The first 128 of the 160 random bits of a replication id.
fn run_id(text: &str) -> Option<RunId> {
    let digits = text.get(..text.len().min(32))?;
    u128::from_str_radix(digits, 16).ok().map(RunId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_id_is_that_of_another_run() {
        let run = "f".repeat(40);
        let reply = |run: &str, admitted: &str| {
            let values = [run, "61", "7", admitted, "9", ""];
            inspection(&values.map(|value| Value::BulkString(value.into())))
        };
        let info = reply(&run, &run).unwrap().info;
        assert!(info.is_admitted());
        assert_eq!(info.uptime, Duration::from_secs(60));
        for other in ["no run", "0"] {
            let restarted = reply(&run, other).unwrap().info;
            assert_eq!(restarted.admitted, Some(RunId(0)));
            assert!(!restarted.is_admitted());
        }
        assert!(reply("", "").is_none());
    }
}
