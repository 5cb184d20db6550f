//! The clients of other processes: where messages to them are put.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Mutex;

use leasehold_core::ClientId;

use super::cluster::Cluster;
use super::messages::{Pair, text};
use crate::Result;
use crate::store::lock::lock;

/// The number of clients that are remembered.
const ROUTES_MAX: usize = 4_096;

/// The process of a client, and the lease that its messages go with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) process: String,
    pub(super) lease: i64,
}

impl Route {
    /// `None`: the value of a client is not one of this version.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (process, lease) = text.split_once(' ')?;
        let is_process = process.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let lease = lease.parse().ok()?;
        (is_process && !process.is_empty()).then(|| Self {
            process: process.to_owned(),
            lease,
        })
    }

    /// Of the key of a client, if there is one.
    pub(super) fn of(found: Option<&Pair>) -> Option<Self> {
        Self::parse(&text(&found?.value))
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.process, self.lease)
    }
}

/// The routes that are known. They may be old: each write compares them.
#[derive(Debug, Default)]
pub(super) struct Routes(Mutex<HashMap<ClientId, Route>>);

impl Routes {
    /// Those of clients; the unknown ones are read. Clients that cannot be notified have none.
    pub(super) async fn of(
        &self,
        cluster: &Cluster,
        clients: HashSet<ClientId>,
    ) -> Result<HashMap<ClientId, Route>> {
        let mut found = HashMap::new();
        let mut unknown = Vec::new();
        {
            let known = lock(&self.0);
            for client in clients {
                match known.get(&client) {
                    Some(route) => drop(found.insert(client, route.clone())),
                    None => unknown.push(client),
                }
            }
        }
        found.extend(self.read(cluster, unknown).await?);
        Ok(found)
    }

    /// Reads those of clients.
    pub(super) async fn read(
        &self,
        cluster: &Cluster,
        clients: Vec<ClientId>,
    ) -> Result<HashMap<ClientId, Route>> {
        let keys = clients.iter().map(|client| cluster.keys.client(*client));
        let pairs = cluster.read(keys.collect()).await?;
        let mut found = HashMap::new();
        for (client, pair) in clients.into_iter().zip(pairs) {
            let route = Route::of(pair.as_ref());
            self.set(client, route.clone());
            found.extend(route.map(|route| (client, route)));
        }
        Ok(found)
    }

    /// Remembers a route, or that there is none.
    pub(super) fn set(&self, client: ClientId, route: Option<Route>) {
        let mut known = lock(&self.0);
        if known.len() > ROUTES_MAX {
            known.clear();
        }
        match route {
            Some(route) => known.insert(client, route),
            None => known.remove(&client),
        };
    }
}
