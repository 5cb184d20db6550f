//! Collects the facts about an ensemble for [`doctor`](crate::doctor). Changes nothing.

use std::sync::Arc;

use super::SERVICE;
use super::connection::{Connection, SessionId};
use super::request::read_data;
use super::session::{Session, Settings};
use crate::Result;
use crate::store::diagnose::ZookeeperFacts;
use crate::store::members::Address;
use crate::store::options::OpenOptions;
use crate::store::zookeeper::request::Request;

/// The node in which an ensemble keeps its configuration, a line `server.N=...:participant` for each server.
const CONFIGURATION: &str = "/zookeeper/config";

/// Collects the facts about the ensemble that a URL names.
///
/// # Errors
///
/// As for [`open`](super::super::open()).
pub(in crate::store) async fn diagnose(url: &str, options: &OpenOptions) -> Result<ZookeeperFacts> {
    let address = Arc::new(Address::parse(SERVICE, url, options)?);
    let facts = collect(&address, options).await;
    facts.map_err(|error| error.at_store(&address))
}

async fn collect(address: &Arc<Address>, options: &OpenOptions) -> Result<ZookeeperFacts> {
    let settings = Settings {
        address: Arc::clone(address),
        tls: address.tls(options, None)?,
        connect_timeout: options.connect_timeout,
        hub: Arc::default(),
    };
    let connection: Connection = settings.connect(&SessionId::default()).await?;
    let session = connection.timeout;
    drop(connection);
    let (changed, _received) = tokio::sync::mpsc::unbounded_channel();
    let reader = Session::open(settings, changed).await?;
    let read = reader.call(Request::get(CONFIGURATION)).await;
    let configuration = read.ok().and_then(|reply| read_data(&reply));
    let voters = configuration.map(|(data, _)| {
        let text = String::from_utf8_lossy(&data).into_owned();
        let lines = text.lines().filter(|line| line.starts_with("server."));
        lines.filter(|line| !line.contains(":observer")).count()
    });
    Ok(ZookeeperFacts {
        name: address.to_string(),
        named: address.members.len(),
        voters,
        session,
        has_user: address.user.is_some(),
        has_tls: address.files.is_some(),
    })
}
