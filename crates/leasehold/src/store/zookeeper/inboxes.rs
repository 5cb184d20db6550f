//! The messages to the clients of this process.
//!
//! A client that listens has an ephemeral node, which shows that it can be notified, and an inbox: a node whose children are
//! messages. Whoever writes a document creates them in the same step. This process reads and deletes them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use leasehold_core::ClientId;
use tokio::sync::Mutex as AsyncMutex;

use super::jute::Reader;
use super::paths::Paths;
use super::request::{Access, Mode, Request, code, read_data};
use super::session::{Failed, Session};
use crate::Result;
use crate::store::hub::Hub;
use crate::store::lock::lock;
use crate::store::message;

/// The inboxes of this process.
#[derive(Debug)]
pub(super) struct Inboxes {
    pub(super) session: Session,
    hub: Arc<Hub>,
    paths: Paths,
    access: Access,
    /// The clients that are to be notified.
    wanted: Mutex<BTreeSet<ClientId>>,
    /// Those that are, in the session with this number.
    registered: AsyncMutex<(u64, BTreeSet<ClientId>)>,
}

impl Inboxes {
    pub(super) fn new(session: Session, hub: Arc<Hub>, paths: Paths, access: Access) -> Self {
        Self {
            session,
            hub,
            paths,
            access,
            wanted: Mutex::default(),
            registered: AsyncMutex::default(),
        }
    }

    pub(super) fn add(&self, client: ClientId) {
        lock(&self.wanted).insert(client);
    }

    pub(super) fn remove(&self, client: ClientId) {
        lock(&self.wanted).remove(&client);
    }

    /// Registers all clients of this process that are not, so that whoever reads that they wait can notify them.
    pub(super) async fn register(&self) -> Result<()> {
        let Some(number) = self.session.number() else {
            return Ok(());
        };
        let mut registered = self.registered.lock().await;
        if registered.0 != number {
            *registered = (number, BTreeSet::new());
        }
        let wanted = lock(&self.wanted).clone();
        let added: Vec<_> = wanted.difference(&registered.1).copied().collect();
        let removed: Vec<_> = registered.1.difference(&wanted).copied().collect();
        for client in added {
            self.begin(client).await?;
            registered.1.insert(client);
            self.receive(client).await?;
        }
        for client in removed {
            let _ = self
                .session
                .call(Request::delete(&self.paths.client(client)))
                .await;
            self.empty(&self.paths.inbox(client)).await?;
            registered.1.remove(&client);
        }
        Ok(())
    }

    async fn begin(&self, client: ClientId) -> Result<()> {
        let node = self.paths.client(client);
        let create = || Request::create(&node, &[], Mode::Ephemeral, self.access);
        let mut created = self.session.call(create()).await;
        if let Err(Failed::Refused(code::NODE_EXISTS)) = created {
            // Of an earlier session of this process.
            let _ = self.session.call(Request::delete(&node)).await;
            created = self.session.call(create()).await;
        }
        created?;
        let inbox = Request::create(
            &self.paths.inbox(client),
            &[],
            Mode::Persistent,
            self.access,
        );
        match self.session.call(inbox).await {
            Ok(_) | Err(Failed::Refused(code::NODE_EXISTS)) => Ok(()),
            Err(failed) => Err(failed.into()),
        }
    }

    /// Receives messages until the store is dropped: `changed` has the paths of inboxes, and `None` for all of them.
    pub(super) async fn run(
        inboxes: std::sync::Weak<Self>,
        mut changed: tokio::sync::mpsc::UnboundedReceiver<Option<String>>,
    ) {
        while let Some(path) = changed.recv().await {
            let Some(inboxes) = inboxes.upgrade() else {
                return;
            };
            let clients = match path {
                Some(path) => inboxes.paths.client_of(&path).into_iter().collect(),
                None => {
                    if let Err(error) = inboxes.register().await {
                        tracing::debug!(%error, "clients are registered later");
                    }
                    inboxes.registered.lock().await.1.clone()
                }
            };
            for client in clients {
                if let Err(error) = inboxes.receive(client).await {
                    tracing::debug!(%error, "messages are read later");
                    inboxes.hub.interrupted();
                }
            }
        }
    }

    /// Delivers the messages to a client, and watches for the next one.
    async fn receive(&self, client: ClientId) -> Result<()> {
        let inbox = self.paths.inbox(client);
        let messages = self.children(&inbox, true).await?;
        let calls = messages.into_iter().map(|name| {
            let path = format!("{inbox}/{name}");
            let read = self.session.call(Request::get(&path));
            (read, self.session.call(Request::delete(&path)))
        });
        for (read, deleted) in calls.collect::<Vec<_>>() {
            let (read, deleted) = (read.await, deleted.await);
            // One that cannot be deleted is delivered again, and is a hint then.
            drop(deleted);
            let Some((message, _)) = read_data(&read?) else {
                continue;
            };
            if let Some(Some(listener)) = self.hub.listener(client) {
                for event in message::read(&message, client) {
                    listener.notify(event);
                }
            }
        }
        Ok(())
    }

    /// The names of the children of a node, in order. Without the node, none.
    pub(super) async fn children(&self, path: &str, watch: bool) -> Result<Vec<String>> {
        match self.session.call(Request::children(path, watch)).await {
            Ok(reply) => {
                let mut names = Reader(&reply).texts().unwrap_or_default();
                names.sort_unstable();
                Ok(names)
            }
            Err(Failed::Refused(code::NO_NODE)) => Ok(Vec::new()),
            Err(failed) => Err(failed.into()),
        }
    }

    /// Deletes an inbox with its messages.
    async fn empty(&self, inbox: &str) -> Result<()> {
        let children = self.children(inbox, false).await?;
        let paths = children.into_iter().map(|name| format!("{inbox}/{name}"));
        let calls: Vec<_> = paths
            .chain([inbox.to_owned()])
            .map(|path| self.session.call(Request::delete(&path)))
            .collect();
        for call in calls {
            let _ = call.await;
        }
        Ok(())
    }

    /// Deletes the inboxes of clients that are gone.
    pub(super) async fn clean(&self) -> Result<()> {
        let inboxes = self.children(&self.paths.inboxes(), false).await?;
        for inbox in inboxes {
            let Ok(client) = inbox.parse::<ClientId>() else {
                continue;
            };
            let found = self
                .session
                .call(Request::exists(&self.paths.client(client)))
                .await;
            if let Err(Failed::Refused(code::NO_NODE)) = found {
                self.empty(&self.paths.inbox(client)).await?;
            }
        }
        Ok(())
    }
}
