//! The store in etcd: a document for each name, over gRPC.
//!
//! A document is replaced by a transaction that compares its revision, and a batch is one transaction of nested ones. etcd
//! has no clock for its users, so the rule runs by the time of [`Optimistic`]; [`marks`] say how old a document is at least, by
//! leases that nobody may revoke. Those of sessions are for messages between processes ([`inbox`]); no exclusion rests on them.
//!
//! Reads are linearizable. A write without a reply is unknown, and is never sent again.

mod cluster;
mod connection;
#[cfg(feature = "doctor")]
mod diagnose;
mod document;
mod error;
mod inbox;
mod keys;
mod marks;
mod messages;
mod routes;
mod transaction;

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ClientId, Name};

use self::cluster::{Cluster, OPERATIONS_MAX};
#[cfg(feature = "doctor")]
pub(super) use self::diagnose::diagnose;
use self::document::Stored;
use self::inbox::Inbox;
use self::marks::Marks;
use self::messages::{Range, text};
use self::routes::{Route, Routes};
use self::transaction::Outcome;
use crate::store::api::{Capabilities, Key, Keyspace, StoreKind};
use crate::store::backend::ListenChange;
use crate::store::clustered::Clustered;
use crate::store::hub::Hub;
use crate::store::members::{Address, Service};
use crate::store::optimistic::Optimistic;
use crate::store::optimistic::documents::{
    self, Document, Documents, Garbage, Replaced, Version, Write,
};
use crate::store::options::OpenOptions;
use crate::store::records::ListPart;
use crate::store::rule_store::RuleStore;
use crate::store::sessions::Sessions;
use crate::{Result, random};

/// The number of names in a part of a list.
const NAMES_MAX: i64 = 1_000;

const SERVICE: Service = Service {
    scheme: "etcd",
    port: 2379,
};

/// Lock records in etcd.
pub type EtcdStore = RuleStore<Optimistic<Etcd>>;

/// Documents in a cluster.
#[derive(Debug)]
pub struct Etcd {
    cluster: Arc<Cluster>,
    marks: Arc<Marks>,
    routes: Routes,
    sessions: Sessions<Inbox>,
}

impl Clustered for Etcd {
    async fn open(url: &str, options: &OpenOptions, hub: &Arc<Hub>) -> Result<Self> {
        let address = Address::parse(SERVICE, url, options)?;
        let cluster = Arc::new(Cluster::new(address, options)?);
        cluster.connect().await?;
        // Shows what is wrong with the user, the rights or the majority.
        let prefix = &cluster.keys.0;
        cluster.ask(&Range::keys(prefix, prefix, 1)).await?;
        let marks = Arc::<Marks>::default();
        let process = ClientId::from_random(random::bytes("the id of a process")?);
        let inbox = Inbox::new(
            Arc::clone(&cluster),
            Arc::clone(hub),
            Arc::clone(&marks),
            process,
        );
        let sessions = Sessions::start(inbox, Arc::clone(hub), BTreeSet::new()).await;
        Ok(Self {
            cluster,
            marks,
            routes: Routes::default(),
            sessions,
        })
    }
}

impl Etcd {
    /// Documents that were read a moment ago, with their ages.
    async fn dated(&self, stored: Vec<Stored>) -> Vec<Document> {
        let marks: Vec<_> = stored.iter().map(|stored| stored.mark.clone()).collect();
        let ages = self.marks.ages(&self.cluster, &marks).await;
        let dated = |(Stored { version, text, .. }, age): (Stored, Duration)| Document {
            version,
            text,
            age,
        };
        stored.into_iter().zip(ages).map(dated).collect()
    }

    /// Fails only if nothing was sent.
    async fn try_replace(&self, writes: &[Write]) -> Result<Vec<Replaced>> {
        let mark = self.marks.current(&self.cluster).await?;
        let receivers = writes.iter().flat_map(|write| &write.messages);
        let clients: HashSet<_> = receivers.map(|(client, _)| *client).collect();
        let routes = self.routes.of(&self.cluster, clients).await?;
        let unreachable = |write: &Write| {
            let mut messages = write.messages.iter();
            let found = messages.find(|(client, _)| !routes.contains_key(client))?;
            Some(Replaced::Unreachable(found.0))
        };
        let mut replies: Vec<_> = writes.iter().map(unreachable).collect();
        let sent = writes.iter().enumerate();
        let sent = sent.filter(|(nth, _)| replies[*nth].is_none());
        let parts = transaction::parts(sent);
        let mut conflicts = Vec::new();
        let mut later: Vec<&(ClientId, String)> = Vec::new();
        for part in &parts {
            let body = transaction::request(&self.cluster.keys, &routes, &mark, part);
            let reply = self.cluster.change(&body).await;
            for (at, nested) in part.iter().enumerate() {
                let place = (at, part.len());
                let replaced = match &reply {
                    Ok(reply) => match transaction::outcome(reply, place, nested, &routes) {
                        Ok(Outcome::Done(version)) => {
                            later.extend(nested.later());
                            Replaced::Done(version)
                        }
                        Ok(Outcome::Conflict(stored)) => {
                            conflicts.push((nested.nth, stored));
                            Replaced::Conflict(None)
                        }
                        Ok(Outcome::Moved(client, route)) => self.moved(client, route),
                        Err(error) => Replaced::Unknown(error),
                    },
                    Err(failed) => failed.replaced(),
                };
                replies[nested.nth] = Some(replaced);
            }
        }
        for part in later.chunks(OPERATIONS_MAX) {
            let body = transaction::messages(&self.cluster.keys, &routes, part.iter().copied());
            // Waiters have timers, and observers read again from time to time.
            let _ = self.cluster.change(&body).await;
        }
        let (numbers, stored): (Vec<_>, Vec<_>) = conflicts.into_iter().unzip();
        for (nth, document) in numbers.into_iter().zip(self.dated(stored).await) {
            replies[nth] = Some(Replaced::Conflict(Some(document)));
        }
        Ok(replies.into_iter().flatten().collect())
    }

    /// The reply if a receiver is not where it was.
    fn moved(&self, client: ClientId, route: Option<Route>) -> Replaced {
        let replaced = match route {
            Some(_) => Replaced::Conflict(None),
            None => Replaced::Unreachable(client),
        };
        self.routes.set(client, route);
        replaced
    }
}

impl Documents for Etcd {
    fn capabilities(&self) -> Capabilities {
        Capabilities::notifying(StoreKind::Etcd, self.sessions.has_begun())
    }

    async fn read(&self, keys: Vec<Key>) -> Result<Vec<Document>> {
        self.sessions.until_registered().await;
        let keys = keys.iter().map(|key| self.cluster.keys.document(key));
        let found = self.cluster.read(keys.collect()).await?;
        let stored = found.iter().map(|pair| Stored::of(pair.as_ref()));
        Ok(self.dated(stored.collect()).await)
    }

    async fn replace(&self, writes: Vec<Write>) -> Vec<Replaced> {
        // Whoever reads that a client waits must be able to notify it.
        self.sessions.until_registered().await;
        match self.try_replace(&writes).await {
            Ok(replies) => replies,
            Err(error) => {
                let rejected = |_| Replaced::Rejected(error.clone());
                writes.iter().map(rejected).collect()
            }
        }
    }

    async fn names(&self, space: &Keyspace, after: &str) -> Result<ListPart<Name>> {
        let prefix = self.cluster.keys.space(space);
        let start = match after {
            "" => prefix.clone(),
            after => format!("{prefix}{after}\0"),
        };
        let mut range = Range::keys(&prefix, &start, NAMES_MAX);
        loop {
            let reply = self.cluster.ask(&range).await?;
            let mut entries = Vec::new();
            for pair in &reply.pairs {
                let key = text(&pair.key);
                entries.extend(key.strip_prefix(&prefix).and_then(documents::name));
            }
            // A part that has only keys of other programs has no name behind which the next one begins.
            let is_empty = entries.is_empty() && reply.more;
            let Some(last) = reply.pairs.last().filter(|_| is_empty) else {
                return Ok(ListPart {
                    entries,
                    is_last: !reply.more,
                });
            };
            range.key = [&last.key[..], &[0]].concat();
        }
    }

    async fn alive(&self, clients: Vec<ClientId>) -> Result<HashSet<ClientId>> {
        let routes = self.routes.read(&self.cluster, clients).await?;
        Ok(routes.into_keys().collect())
    }

    fn absent(&self) -> Option<Version> {
        Some(Version("0".to_owned()))
    }

    fn garbage(&self) -> Garbage {
        Garbage::Everything
    }

    fn listen(&self, change: ListenChange) {
        self.sessions.listen(change);
    }
}

impl fmt::Display for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cluster.address.fmt(f)
    }
}

/// The URL of a store as its `Display`.
pub(super) fn redacted_url(url: &str) -> Result<String> {
    Address::parse(SERVICE, url, &OpenOptions::default()).map(|address| address.to_string())
}
