//! Collects the facts about servers for [`doctor`](crate::doctor): their own reports, and the permissions of
//! our user. Nothing remains on the servers.

mod cluster;
mod facts;
mod rights;
mod sentinel;

use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value, from_redis_value_ref};

use super::address::Address;
use super::address::deployment::Deployment;
use super::errors;
use super::link::connection_manager::ConnectionManager;
use crate::store::api::Keyspace;
use crate::store::diagnose::{Fields, NodeFacts, QueryResult, ServerFacts, Topology};
use crate::store::options::OpenOptions;
use crate::{Durability, Result};

/// Collects the facts about the servers that a URL names, of all servers concurrently.
///
/// # Errors
///
/// As for [`open`](super::super::open()), except for servers that can be reached but cannot keep locks: the
/// facts are about those. If no server can be inspected, the error of the first.
pub(in crate::store) async fn diagnose(
    url: &str,
    options: &OpenOptions,
    space: &Keyspace,
    durability: Durability,
) -> Result<ServerFacts> {
    let deployment = Deployment::of(url, options)?;
    let name = deployment.to_string();
    // The commands that our user needs beside the usual ones.
    let extras = &rights::extras(&deployment, durability);
    let [acl, diagnosis_acl] = rights::lines(space, &deployment, extras);
    let (topology, servers) = match deployment {
        Deployment::Single(address) => (Topology::Single, vec![address]),
        Deployment::Sentinel(set) => {
            let (sentinels, servers) = sentinel::collect(set, options).await?;
            (Topology::Sentinel(sentinels), servers)
        }
        Deployment::Cluster(seeds) => {
            let (facts, servers) = cluster::collect(seeds, options).await?;
            (Topology::Cluster(facts), servers)
        }
        Deployment::Masters(masters) => (Topology::Masters, masters.nodes),
    };
    let inspections = servers.into_iter().map(|address| async move {
        let name = address.server();
        let node = node(address, name.clone(), options, space, extras).await;
        (name, node)
    });
    let (mut nodes, mut silent, mut failure) = (Vec::new(), Vec::new(), None);
    for (name, node) in join_all(inspections).await {
        match node {
            Ok(node) => nodes.push(node),
            Err(error) => {
                silent.push((name, error.to_string()));
                failure.get_or_insert(error);
            }
        }
    }
    if let (true, Some(error)) = (nodes.is_empty(), failure) {
        return Err(error);
    }
    if let (Topology::Single, [node]) = (&topology, &mut nodes[..]) {
        node.name.clone_from(&name);
    }
    Ok(ServerFacts {
        name,
        topology,
        nodes,
        silent,
        acl,
        diagnosis_acl,
    })
}

/// Sends commands in one round trip. Returns one reply per command.
async fn send(
    manager: &ConnectionManager,
    commands: impl IntoIterator<Item = Cmd>,
) -> Result<Vec<Value>> {
    let mut pipeline = Pipeline::new();
    for command in commands {
        pipeline.add_command(command);
    }
    let count = pipeline.len();
    let send = |mut connection: MultiplexedConnection| async move {
        connection.send_packed_commands(&pipeline, 0, count).await
    };
    manager.exchange(Duration::ZERO, send).await
}

/// A command of these words.
fn words(words: &[&str]) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg(words);
    cmd
}

/// The reply, or the words of the server if it is a refusal.
fn permitted(reply: &Value) -> QueryResult<&Value> {
    errors::refusal(reply).map_or(Ok(reply), |refusal| Err(refusal.words))
}

/// The named texts in a reply.
fn fields(reply: &Value) -> Fields {
    Fields(from_redis_value_ref(reply).unwrap_or_default())
}

/// Inspects one server.
async fn node(
    address: Address,
    name: String,
    options: &OpenOptions,
    space: &Keyspace,
    extras: &[&'static str],
) -> Result<NodeFacts> {
    let user = address.user.clone();
    let manager = ConnectionManager::new(address, options);
    let (info, config, protocol) = facts::collect(&manager).await?;
    let rights = rights::collect(&manager, space, user, protocol, extras).await?;
    let clock = facts::clock(&manager).await?;
    Ok(NodeFacts {
        name,
        info,
        config,
        clock,
        protocol,
        rights,
    })
}
