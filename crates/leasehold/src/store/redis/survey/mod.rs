//! Looking at servers for [`doctor`](crate::doctor): what they say of themselves, and what they let
//! us do. Nothing is left of it.

mod clock;
mod facts;
mod rights;

use redis::{Cmd, Value};

use super::address::Address;
use super::connection::Link;
use super::deployment::Deployment;
use super::read::Reader as _;
use super::{deployment, not_yet};
use crate::Result;
use crate::store::survey::{NodeFacts, Servers, Topology};
use crate::store::{OpenOptions, Space};

/// Looks at the servers that a URL names.
///
/// # Errors
///
/// As for [`open`](super::super::open), but for servers that are there and cannot keep locks: of
/// those the facts are told.
pub(in crate::store) async fn survey(
    url: &str,
    options: &OpenOptions,
    space: &Space,
) -> Result<Servers> {
    let deployment = deployment(url, options)?;
    let name = deployment.to_string();
    match deployment {
        Deployment::Single(address) => {
            let acl = rights::line(space, address.db);
            let node = node(address, options, space).await?;
            Ok(Servers {
                name,
                topology: Topology::Single,
                nodes: vec![node],
                acl,
            })
        }
        other => Err(not_yet(&other)),
    }
}

/// Sends commands in one round trip. As many answers as commands.
async fn send(link: &Link, commands: impl IntoIterator<Item = Cmd>) -> Result<Vec<Value>> {
    let questions = commands.into_iter().map(|cmd| (String::new(), cmd));
    link.read(questions.collect()).await
}

/// A command and its words.
fn words(words: &[&str]) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg(words);
    cmd
}

/// Looks at one server.
async fn node(address: Address, options: &OpenOptions, space: &Space) -> Result<NodeFacts> {
    let name = address.to_string();
    let user = address.user.clone();
    let link = Link::new(address, options.connect_timeout, options.response_timeout);
    let (info, config, protocol) = facts::ask(&link).await?;
    let mut rights = rights::ask(&link, space, protocol).await?;
    rights.user = rights.user.or(user);
    let clock = clock::ask(&link).await?;
    Ok(NodeFacts {
        name,
        info,
        config,
        clock,
        protocol,
        rights,
    })
}
