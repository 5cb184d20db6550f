//! Looking at servers for [`doctor`](crate::doctor): what they say of themselves, and what they let
//! us do. Nothing is left of it.

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
use crate::store::diagnose::{NodeFacts, Servers, Topology};
use crate::store::options::OpenOptions;
use crate::{Durability, Result};

/// Looks at the servers that a URL names.
///
/// # Errors
///
/// As for [`open`](super::super::open), but for servers that are there and cannot keep locks: of
/// those the facts are told.
pub(in crate::store) async fn diagnose(
    url: &str,
    options: &OpenOptions,
    space: &Keyspace,
    durability: Durability,
) -> Result<Servers> {
    let deployment = Deployment::of(url, options)?;
    let name = deployment.to_string();
    let look = Look {
        options: options.clone(),
        space: space.clone(),
        extras: rights::extras(&deployment, durability),
    };
    let acl = rights::line(space, &deployment, &look.extras);
    let (topology, looked) = match deployment {
        Deployment::Single(address) => {
            let node = node(address, name.clone(), &look).await?;
            (Topology::Single, Looked::One(Box::new(node)))
        }
        Deployment::Sentinel(set) => {
            let (watches, servers) = sentinel::ask(set, options).await?;
            (Topology::Sentinel(watches), Looked::Many(servers))
        }
        Deployment::Cluster(seeds) => {
            let (facts, servers) = cluster::ask(seeds, options).await?;
            (Topology::Cluster(facts), Looked::Many(servers))
        }
        Deployment::Masters(masters) => (Topology::Masters, Looked::Many(masters.nodes)),
    };
    let (nodes, silent) = match looked {
        Looked::One(node) => (vec![*node], Vec::new()),
        Looked::Many(servers) => all(servers, &look).await?,
    };
    Ok(Servers {
        name,
        topology,
        nodes,
        silent,
        acl,
    })
}

/// How to look at a server.
#[derive(Clone)]
struct Look {
    options: OpenOptions,
    space: Keyspace,
    /// What our user must be allowed to do there beside the usual.
    extras: Vec<&'static str>,
}

enum Looked {
    One(Box<NodeFacts>),
    Many(Vec<Address>),
}

/// Looks at servers at once. Those that cannot be looked at are told beside the others.
///
/// # Errors
///
/// That of the first, if none can be looked at.
async fn all(
    servers: Vec<Address>,
    look: &Look,
) -> Result<(Vec<NodeFacts>, Vec<(String, String)>)> {
    let mut looks = JoinSet::new();
    for (nth, address) in servers.into_iter().enumerate() {
        let look = look.clone();
        looks.spawn(async move {
            let name = address.server();
            let node = node(address, name.clone(), &look).await;
            (nth, name, node)
        });
    }
    let mut looked = Vec::new();
    while let Some(look) = looks.join_next().await {
        looked.extend(look);
    }
    looked.sort_by_key(|(nth, ..)| *nth);
    let (mut nodes, mut silent) = (Vec::new(), Vec::new());
    for (_, name, node) in looked {
        match node {
            Ok(node) => nodes.push(node),
            Err(error) => silent.push((name, error)),
        }
    }
    match (nodes.is_empty(), silent.first()) {
        (true, Some((_, error))) => Err(error.clone()),
        _ => {
            let told = silent.into_iter();
            let told = told.map(|(name, error)| (name, error.to_string()));
            Ok((nodes, told.collect()))
        }
    }
}

/// Sends commands in one round trip. As many answers as commands.
async fn send(
    manager: &ConnectionManager,
    commands: impl IntoIterator<Item = Cmd>,
) -> Result<Vec<Value>> {
    let questions = commands.into_iter().map(|cmd| (String::new(), cmd));
    manager.read(questions.collect()).await
}

/// A command and its words.
fn words(words: &[&str]) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg(words);
    cmd
}

/// Looks at one server.
async fn node(address: Address, name: String, look: &Look) -> Result<NodeFacts> {
    let Look {
        options,
        space,
        extras,
    } = look;
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
