//! The store in ZooKeeper: each name is a node, whose data are a document.
//!
//! A write is a `multi`: the document, if it has still its version, with the messages to the clients of other processes, if they
//! can be notified. A node that was deleted and made again begins with the same versions, so only documents that describe
//! clients are ever deleted.

mod connection;
#[cfg(feature = "doctor")]
mod diagnose;
mod error;
mod inboxes;
mod jute;
mod paths;
mod request;
#[cfg(test)]
mod scripted_server;
mod session;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ClientId, Name};

#[cfg(feature = "doctor")]
pub(super) use self::diagnose::diagnose;
use self::inboxes::Inboxes;
use self::paths::{Paths, ancestors};
use self::request::{Access, Mode, Multi, Request, code, read_data, read_multi};
use self::session::{Failed, Session, Settings, of_node};
use super::api::{Capabilities, Key, Keyspace, StoreKind};
use super::clustered::Clustered;
use super::hub::Hub;
use super::members::{Address, Service};
use super::optimistic::Optimistic;
use super::optimistic::documents::{Document, Documents, Garbage, Replaced, Version, Write};
use super::options::OpenOptions;
use super::records::ListPart;
use super::rule_store::RuleStore;
use super::tasks;
use crate::Result;

const SERVICE: Service = Service {
    scheme: "zookeeper",
    port: 2181,
};

/// How long a write is at most, in bytes: a server ends the connection at a longer request, by default at 1 MiB.
const WRITE_MAX: usize = 1_000_000;

/// The version of a node that does not exist.
const ABSENT: &str = "-";

/// Lock records in ZooKeeper.
pub type ZookeeperStore = RuleStore<Optimistic<Zookeeper>>;

/// Documents in an ensemble.
#[derive(Debug)]
pub struct Zookeeper {
    address: Arc<Address>,
    paths: Paths,
    access: Access,
    inboxes: Arc<Inboxes>,
}

impl Clustered for Zookeeper {
    async fn open(url: &str, options: &OpenOptions, hub: &Arc<Hub>) -> Result<Self> {
        let address = Arc::new(Address::parse(SERVICE, url, options)?);
        let access = match address.credentials()? {
            Some(_) => Access::Creator,
            None => Access::Everybody,
        };
        let (changed, received) = tokio::sync::mpsc::unbounded_channel();
        let settings = Settings {
            address: Arc::clone(&address),
            tls: address.tls(options, None)?,
            connect_timeout: options.connect_timeout,
            hub: Arc::clone(hub),
        };
        let session = Session::open(settings, changed).await?;
        let paths = Paths(format!("/{}", address.prefix.trim_end_matches('/')));
        let inboxes = Inboxes::new(session, Arc::clone(hub), paths.clone(), access);
        let inboxes = Arc::new(inboxes);
        let zookeeper = Self {
            address,
            paths,
            access,
            inboxes: Arc::clone(&inboxes),
        };
        // Shows what is wrong with the path or the rights.
        for parent in [zookeeper.paths.clients(), zookeeper.paths.inboxes()] {
            zookeeper.create_all(&format!("{parent}/-")).await?;
        }
        inboxes.clean().await?;
        tasks::spawn(Inboxes::run(Arc::downgrade(&inboxes), received));
        Ok(zookeeper)
    }
}

impl Zookeeper {
    fn session(&self) -> &Session {
        &self.inboxes.session
    }

    /// Creates the ancestors of a node.
    async fn create_all(&self, path: &str) -> Result<()> {
        for above in ancestors(path) {
            let create = Request::create(above, &[], Mode::Persistent, self.access);
            match self.session().call(create).await {
                Ok(_) | Err(Failed::Refused(code::NODE_EXISTS)) => {}
                // Above the path that this user may change.
                Err(Failed::Refused(code::NO_AUTH)) if self.exists(above).await? => {}
                Err(failed) => return Err(failed.into()),
            }
        }
        Ok(())
    }

    async fn exists(&self, path: &str) -> Result<bool> {
        let node = of_node(self.session().call(Request::exists(path)).await)?;
        Ok(node.is_some())
    }

    /// The requests of a write: the document first, then for each receiver whether it is alive, and its messages.
    fn requests(&self, write: &Write) -> (Vec<Request>, Vec<Option<ClientId>>) {
        let path = self.paths.document(&write.key);
        let document = match (&write.text, write.seen.0.parse()) {
            (Some(text), Ok(version)) => Request::set(&path, text.as_bytes(), version),
            (Some(text), Err(_)) => {
                Request::create(&path, text.as_bytes(), Mode::Persistent, self.access)
            }
            (None, Ok(version)) => Request::delete_version(&path, version),
            (None, Err(_)) => Request::check(&path),
        };
        let (mut requests, mut receivers) = (vec![document], vec![None]);
        let mut messages = BTreeMap::<ClientId, Vec<&str>>::new();
        for (client, message) in &write.messages {
            messages.entry(*client).or_default().push(message);
        }
        for (client, messages) in messages {
            requests.push(Request::check(&self.paths.client(client)));
            let (path, mode) = (format!("{}/m-", self.paths.inbox(client)), Mode::Sequential);
            let create = |it: &&str| Request::create(&path, it.as_bytes(), mode, self.access);
            requests.extend(messages.iter().map(create));
            receivers.extend(vec![Some(client); messages.len() + 1]);
        }
        (requests, receivers)
    }

    /// Sends writes in one round trip. `None`: the parent of its node does not exist.
    async fn send(&self, writes: &[&Write]) -> Vec<Option<Replaced>> {
        let send = |write: &&Write| {
            let (requests, receivers) = self.requests(write);
            let request = Request::multi(&requests);
            let is_sent = request.body.len() <= WRITE_MAX;
            (is_sent.then(|| self.session().call(request)), receivers)
        };
        let calls: Vec<_> = writes.iter().map(send).collect();
        let mut replies = Vec::with_capacity(writes.len());
        for (write, (call, receivers)) in writes.iter().zip(calls) {
            replies.push(match call {
                Some(call) => Self::replaced(write, &receivers, call.await),
                None => Some(Replaced::Rejected(error::too_long())),
            });
        }
        replies
    }

    /// The reply to a write. `None`: the parent of its node does not exist.
    fn replaced(
        write: &Write,
        receivers: &[Option<ClientId>],
        reply: Result<Vec<u8>, Failed>,
    ) -> Option<Replaced> {
        let (number, code) = match reply {
            Err(Failed::Lost(error)) => return Some(Replaced::Unknown(error)),
            Err(Failed::Refused(code)) => (0, code),
            Ok(reply) => match read_multi(&reply) {
                Some(Multi::Done(version)) => {
                    // A node begins with version 0.
                    return Some(Replaced::Done(Version(version.to_string())));
                }
                Some(Multi::Failed(number, code)) => (number, code),
                None => return Some(Replaced::Unknown(error::not_zookeeper())),
            },
        };
        Some(match (receivers.get(number).copied().flatten(), code) {
            (Some(client), code::NO_NODE) => Replaced::Unreachable(client),
            (_, code::BAD_VERSION | code::NODE_EXISTS) => Replaced::Conflict(None),
            (None, code::NO_NODE) if write.seen.0 == ABSENT => return None,
            (None, code::NO_NODE) => Replaced::Conflict(None),
            (_, code) => Replaced::Rejected(error::described(code)),
        })
    }
}

impl Documents for Zookeeper {
    fn capabilities(&self) -> Capabilities {
        Capabilities::notifying(StoreKind::Zookeeper, self.session().number().is_some())
    }

    async fn read(&self, keys: Vec<Key>) -> Result<Vec<Document>> {
        self.inboxes.register().await?;
        // The server may be behind the others. Requests of a session are served in order.
        let synced = self.session().call(Request::sync(&self.paths.0));
        let call = |key: &Key| self.session().call(Request::get(&self.paths.document(key)));
        let calls: Vec<_> = keys.iter().map(call).collect();
        synced.await?;
        let mut documents = Vec::with_capacity(keys.len());
        for call in calls {
            let (text, version) = match of_node(call.await)? {
                Some(reply) => {
                    let (data, version) = read_data(&reply).ok_or_else(error::not_zookeeper)?;
                    // What is no text is no document: its reader says so.
                    let text = String::from_utf8_lossy(&data).into_owned();
                    (Some(text), version.to_string())
                }
                None => (None, ABSENT.to_owned()),
            };
            documents.push(Document {
                version: Version(version),
                text,
                age: Duration::ZERO,
            });
        }
        Ok(documents)
    }

    async fn replace(&self, writes: Vec<Write>) -> Vec<Replaced> {
        if let Err(error) = self.inboxes.register().await {
            return vec![Replaced::Rejected(error); writes.len()];
        }
        let mut replies = self.send(&writes.iter().collect::<Vec<_>>()).await;
        // The first documents of their keyspaces.
        let orphans: Vec<_> = (0..writes.len())
            .filter(|nth| replies[*nth].is_none())
            .collect();
        let mut parents = HashSet::new();
        for nth in &orphans {
            let path = self.paths.document(&writes[*nth].key);
            let (parent, _) = path.rsplit_once('/').unwrap_or_default();
            if !parents.insert(parent.to_owned()) {
                continue;
            }
            if let Err(error) = self.create_all(&path).await {
                tracing::debug!(%error, parent, "the parent of documents is not created");
            }
        }
        let again: Vec<_> = orphans.iter().map(|nth| &writes[*nth]).collect();
        for (nth, reply) in orphans.into_iter().zip(self.send(&again).await) {
            replies[nth] = reply;
        }
        let rejected = || Replaced::Rejected(error::described(code::NO_NODE));
        let replies = replies.into_iter();
        replies
            .map(|reply| reply.unwrap_or_else(rejected))
            .collect()
    }

    async fn names(&self, space: &Keyspace, after: &str) -> Result<ListPart<Name>> {
        // The server may be behind the others.
        let synced = self.session().call(Request::sync(&self.paths.0));
        let parent = self.paths.space(space);
        let children = self.inboxes.children(&parent, false).await?;
        synced.await?;
        let names = children.iter().filter_map(|node| paths::name(node));
        let mut names: Vec<_> = names.filter(|name| name.as_str() > after).collect();
        names.sort_unstable();
        Ok(names.into_iter().collect())
    }

    async fn alive(&self, clients: Vec<ClientId>) -> Result<HashSet<ClientId>> {
        let synced = self.session().call(Request::sync(&self.paths.0));
        let call = |client: &ClientId| {
            let exists = Request::exists(&self.paths.client(*client));
            (*client, self.session().call(exists))
        };
        let calls: Vec<_> = clients.iter().map(call).collect();
        synced.await?;
        let mut alive = HashSet::new();
        for (client, call) in calls {
            alive.extend(of_node(call.await)?.map(|_| client));
        }
        Ok(alive)
    }

    fn absent(&self) -> Option<Version> {
        Some(Version(ABSENT.to_owned()))
    }

    fn garbage(&self) -> Garbage {
        Garbage::Clients
    }
}

impl fmt::Display for Zookeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// The URL of a store as its `Display`.
pub(super) fn redacted_url(url: &str) -> Result<String> {
    Address::parse(SERVICE, url, &OpenOptions::default()).map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::jute::Writer;
    use super::scripted_server::ScriptedServer;
    use super::*;
    use crate::store::api::fixture::key;

    #[tokio::test]
    async fn a_document_is_deleted_in_its_version_only() {
        let hub = Arc::<Hub>::default();
        let mut server = ScriptedServer::new().await;
        let address = server.settings(&hub).address;
        let session = server.session(&hub, 10_000).await;
        let (paths, access) = (Paths("/leasehold".to_owned()), Access::Everybody);
        let inboxes = Inboxes::new(session, hub, paths.clone(), access);
        let zookeeper = Zookeeper {
            address,
            paths,
            access,
            inboxes: Arc::new(inboxes),
        };
        let removal = Write {
            key: key("a"),
            seen: Version("7".to_owned()),
            text: None,
            messages: Vec::new(),
        };
        let path = zookeeper.paths.document(&removal.key);
        // The kind of the reply to a deletion is 2.
        let done = Writer::default().int(2).flag(false).int(0);
        let done = (0, done.int(-1).flag(true).int(-1));
        let conflict = Writer::default().int(-1).flag(false).int(0);
        let conflict = (0, conflict.int(code::BAD_VERSION));
        for (replied, is_done) in [(done, true), (conflict, false)] {
            let replaced = zookeeper.replace(vec![removal.clone()]);
            let (replaced, sent) = tokio::join!(replaced, server.reply([replied]));
            let expected = Request::multi(&[Request::delete_version(&path, 7)]);
            assert_eq!(sent, [expected.body]);
            match &replaced[..] {
                [Replaced::Done(_)] => assert!(is_done),
                [Replaced::Conflict(None)] => assert!(!is_done),
                other => panic!("{other:?}"),
            }
        }
    }
}
