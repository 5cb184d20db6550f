//! Collects the facts about servers for [`doctor`](crate::doctor): their own reports, and the permissions of
//! our user. Nothing remains on the servers.

mod clock;
mod cluster;
mod facts;
mod rights;
mod sentinel;

use redis::{Cmd, Value};
use tokio::task::JoinSet;

use super::address::Address;
use super::connection_manager::ConnectionManager;
use super::deployment::Deployment;
use super::inspect::Reader as _;
use crate::store::api::Keyspace;
use crate::store::diagnose::{NodeFacts, ServerFacts, Topology};
use crate::store::options::OpenOptions;
use crate::{Durability, Result};

/// Collects the facts about the servers that a URL names.
///
/// # Errors
///
/// As for [`open`](super::super::open()), except for servers that can be reached but cannot keep locks: the
/// facts are about those.
pub(in crate::store) async fn diagnose(
    url: &str,
    options: &OpenOptions,
    space: &Keyspace,
    durability: Durability,
) -> Result<ServerFacts> {
    let deployment = Deployment::of(url, options)?;
    let name = deployment.to_string();
    let inspector = Inspector {
        options: options.clone(),
        space: space.clone(),
        extras: rights::extras(&deployment, durability),
    };
    let acl = rights::line(space, &deployment, &inspector.extras);
    let (topology, found) = match deployment {
        Deployment::Single(address) => {
            let node = node(address, name.clone(), &inspector).await?;
            (Topology::Single, Found::One(Box::new(node)))
        }
        Deployment::Sentinel(set) => {
            let (sentinels, servers) = sentinel::ask(set, options).await?;
            (Topology::Sentinel(sentinels), Found::Many(servers))
        }
        Deployment::Cluster(seeds) => {
            let (facts, servers) = cluster::ask(seeds, options).await?;
            (Topology::Cluster(facts), Found::Many(servers))
        }
        Deployment::Masters(masters) => (Topology::Masters, Found::Many(masters.nodes)),
    };
    let (nodes, silent) = match found {
        Found::One(node) => (vec![*node], Vec::new()),
        Found::Many(servers) => all(servers, &inspector).await?,
    };
    Ok(ServerFacts {
        name,
        topology,
        nodes,
        silent,
        acl,
    })
}

/// How to inspect a server.
#[derive(Clone)]
struct Inspector {
    options: OpenOptions,
    space: Keyspace,
    /// The commands that our user needs beside the usual ones.
    extras: Vec<&'static str>,
}

enum Found {
    One(Box<NodeFacts>),
    Many(Vec<Address>),
}

/// Inspects servers concurrently. Those that cannot be inspected are returned with their errors.
///
/// # Errors
///
/// That of the first, if none can be inspected.
async fn all(
    servers: Vec<Address>,
    inspector: &Inspector,
) -> Result<(Vec<NodeFacts>, Vec<(String, String)>)> {
    let mut inspections = JoinSet::new();
    for (nth, address) in servers.into_iter().enumerate() {
        let inspector = inspector.clone();
        inspections.spawn(async move {
            let name = address.server();
            let node = node(address, name.clone(), &inspector).await;
            (nth, name, node)
        });
    }
    let mut found = Vec::new();
    while let Some(inspector) = inspections.join_next().await {
        found.extend(inspector);
    }
    found.sort_by_key(|(nth, ..)| *nth);
    let (mut nodes, mut silent) = (Vec::new(), Vec::new());
    for (_, name, node) in found {
        match node {
            Ok(node) => nodes.push(node),
            Err(error) => silent.push((name, error)),
        }
    }
    match (nodes.is_empty(), silent.first()) {
        (true, Some((_, error))) => Err(error.clone()),
        _ => {
            let silent = silent.into_iter();
            let silent = silent.map(|(name, error)| (name, error.to_string()));
            Ok((nodes, silent.collect()))
        }
    }
}

/// Sends commands in one round trip. Returns one answer per command.
async fn send(
    manager: &ConnectionManager,
    commands: impl IntoIterator<Item = Cmd>,
) -> Result<Vec<Value>> {
    let questions = commands.into_iter().map(|cmd| (String::new(), cmd));
    manager.read(questions.collect()).await
}

/// A command of these words.
fn words(words: &[&str]) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg(words);
    cmd
}

/// Inspects one server.
async fn node(address: Address, name: String, inspector: &Inspector) -> Result<NodeFacts> {
    let Inspector {
        options,
        space,
        extras,
    } = inspector;
    let user = address.user.clone();
    let manager =
        ConnectionManager::new(address, options.connect_timeout, options.response_timeout);
    let (info, config, protocol) = facts::ask(&manager).await?;
    let mut rights = rights::ask(&manager, space, protocol, extras).await?;
    rights.user = rights.user.or(user);
    let clock = clock::ask(&manager).await?;
    Ok(NodeFacts {
        name,
        info,
        config,
        clock,
        protocol,
        rights,
    })
}
