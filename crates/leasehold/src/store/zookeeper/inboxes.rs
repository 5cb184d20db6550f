//! The messages to the clients of this process.
//!
//! A client that listens has an ephemeral node, which shows that it can be notified, and an inbox: a node whose children are
//! messages. Whoever writes a document creates them in the same step. This process reads and deletes them.
//!
//! A client that has its node has an inbox, at every moment: both are created in one step, and an inbox is only deleted in one
//! step with a proof that the node is absent. Otherwise a client that waits would be taken for dead.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use leasehold_core::ClientId;
use tokio::sync::Mutex as AsyncMutex;

use super::error;
use super::jute::Reader;
use super::paths::Paths;
use super::request::{Access, Mode, Multi, Request, code, read_data, read_multi};
use super::session::{Failed, Session, of_node};
use crate::Result;
use crate::store::hub::Hub;
use crate::store::tasks;

/// How often the nodes of a client are created, if one of them appears or disappears meanwhile.
const ATTEMPTS: usize = 8;

/// How many nodes are deleted in one step.
const DELETED_MAX: usize = 1_000;

/// The inboxes of this process.
#[derive(Debug)]
pub(super) struct Inboxes {
    pub(super) session: Session,
    hub: Arc<Hub>,
    paths: Paths,
    access: Access,
    /// The clients that are notified, in the session with this number.
    registered: AsyncMutex<(u64, BTreeSet<ClientId>)>,
}

impl Inboxes {
    pub(super) fn new(session: Session, hub: Arc<Hub>, paths: Paths, access: Access) -> Self {
        Self {
            session,
            hub,
            paths,
            access,
            registered: AsyncMutex::default(),
        }
    }

    /// Registers all clients of this process that are not, so that whoever reads that they wait can notify them.
    pub(super) async fn register(self: &Arc<Self>) -> Result<()> {
        let Some(number) = self.session.number() else {
            return Ok(());
        };
        if *self.registered.lock().await == (number, self.hub.clients()) {
            return Ok(());
        }
        // In a task: a caller that gives up in the middle would leave an inbox without a watch, or messages deleted unread.
        let inboxes = Arc::clone(self);
        let registered = tasks::spawn(async move { inboxes.register_all().await }).await;
        registered.unwrap_or_else(|_| Err(error::no_session()))
    }

    async fn register_all(&self) -> Result<()> {
        let mut registered = self.registered.lock().await;
        let Some(number) = self.session.number() else {
            return Ok(());
        };
        if registered.0 != number {
            *registered = (number, BTreeSet::new());
        }
        let wanted = self.hub.clients();
        let added: Vec<_> = wanted.difference(&registered.1).copied().collect();
        let removed: Vec<_> = registered.1.difference(&wanted).copied().collect();
        for client in added {
            self.begin(client).await?;
            self.receive(client).await?;
            registered.1.insert(client);
        }
        for client in removed {
            let delete = Request::delete(&self.paths.client(client));
            let _ = self.session.call(delete).await;
            self.discard(client).await?;
            registered.1.remove(&client);
        }
        Ok(())
    }

    /// Creates the node of a client and its inbox in one step. One of an earlier session, or of a request without a reply, is
    /// replaced in that step.
    async fn begin(&self, client: ClientId) -> Result<()> {
        let (node, inbox) = (self.paths.client(client), self.paths.inbox(client));
        let (mut has_node, mut has_inbox) = (false, false);
        for _ in 0..ATTEMPTS {
            let mut requests = Vec::new();
            if has_node {
                requests.push(Request::delete(&node));
            }
            requests.push(Request::create(&node, &[], Mode::Ephemeral, self.access));
            requests.push(match has_inbox {
                true => Request::check(&inbox),
                false => Request::create(&inbox, &[], Mode::Persistent, self.access),
            });
            let reply = self.session.call(Request::multi(&requests)).await?;
            match read_multi(&reply).ok_or_else(error::not_zookeeper)? {
                Multi::Done(_) => return Ok(()),
                Multi::Failed(nth, code::NODE_EXISTS | code::NO_NODE) => {
                    match nth + 1 == requests.len() {
                        true => has_inbox = !has_inbox,
                        false => has_node = !has_node,
                    }
                }
                Multi::Failed(_, code) => return Err(error::described(code)),
            }
        }
        Err(error::described(code::NO_NODE))
    }

    /// Receives messages until the store is dropped: `changed` has the paths of inboxes, and `None` for all of them.
    pub(super) async fn run(
        inboxes: Weak<Self>,
        mut changed: tokio::sync::mpsc::UnboundedReceiver<Option<String>>,
    ) {
        while let Some(path) = changed.recv().await {
            let Some(inboxes) = inboxes.upgrade() else {
                return;
            };
            let clients = match path {
                Some(path) => inboxes.paths.client_of(&path).into_iter().collect(),
                None => {
                    if let Err(error) = inboxes.resume().await {
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

    /// Registers the clients with another server. That may be behind the one before, so that it has not all inboxes yet, and
    /// one that it does not have cannot be watched.
    async fn resume(&self) -> Result<()> {
        self.session.call(Request::sync(&self.paths.0)).await?;
        self.register_all().await
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
        let mut received = Ok(());
        for (read, deleted) in calls.collect::<Vec<_>>() {
            let (read, deleted) = (read.await, deleted.await);
            // One that cannot be deleted is delivered again, and is a hint then.
            drop(deleted);
            let reply = match read {
                Ok(reply) => reply,
                // It was delivered meanwhile.
                Err(Failed::Refused(code::NO_NODE)) => continue,
                // Those behind it may be deleted, so they are delivered first.
                Err(failed) => {
                    received = Err(failed.into());
                    continue;
                }
            };
            let Some((message, _)) = read_data(&reply) else {
                continue;
            };
            self.hub.deliver(client, &message);
        }
        received
    }

    /// The names of the children of a node, in order. Without the node, none.
    pub(super) async fn children(&self, path: &str, watch: bool) -> Result<Vec<String>> {
        let call = self.session.call(Request::children(path, watch));
        let Some(reply) = of_node(call.await)? else {
            return Ok(Vec::new());
        };
        let names = Reader(&reply).texts();
        let mut names = names.ok_or_else(error::not_zookeeper)?;
        names.sort_unstable();
        Ok(names)
    }

    /// Deletes the inboxes of clients that are dead.
    pub(super) async fn clean(&self) -> Result<()> {
        let inboxes = self.children(&self.paths.inboxes(), false).await?;
        let clients = inboxes.iter().filter_map(|inbox| inbox.parse().ok());
        let call = |client: ClientId| {
            let exists = Request::exists(&self.paths.client(client));
            (client, self.session.call(exists))
        };
        for (client, call) in clients.map(call).collect::<Vec<_>>() {
            if let Err(Failed::Refused(code::NO_NODE)) = call.await {
                self.discard(client).await?;
            }
        }
        Ok(())
    }

    /// Deletes the inbox of a client with its messages, unless the client is alive.
    async fn discard(&self, client: ClientId) -> Result<()> {
        let (node, inbox) = (self.paths.client(client), self.paths.inbox(client));
        let messages = self.children(&inbox, false).await?;
        let messages = messages.iter().map(|name| format!("{inbox}/{name}"));
        let paths: Vec<_> = messages.chain([inbox.clone()]).collect();
        for part in paths.chunks(DELETED_MAX) {
            // It fails if the node exists.
            let mut requests = vec![Request::create(&node, &[], Mode::Persistent, self.access)];
            requests.extend(part.iter().map(|path| Request::delete(path)));
            requests.push(Request::delete(&node));
            let reply = self.session.call(Request::multi(&requests)).await?;
            if !matches!(read_multi(&reply), Some(Multi::Done(_))) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::store::api::fixture::key;
    use crate::store::api::{Event, Listener};
    use crate::store::lock::lock;
    use crate::store::message;
    use crate::store::zookeeper::jute::Writer;
    use crate::store::zookeeper::scripted_server::ScriptedServer;

    const OWN: Access = Access::Everybody;

    #[derive(Debug, Default)]
    struct Recorder(Mutex<Vec<Event>>);

    impl Listener for Recorder {
        fn notify(&self, event: Event) {
            lock(&self.0).push(event);
        }
    }

    fn client() -> ClientId {
        ClientId::from_random([1; 16])
    }

    async fn connected(hub: &Arc<Hub>) -> (Inboxes, ScriptedServer) {
        let mut server = ScriptedServer::new().await;
        let session = server.session(hub, 10_000).await;
        let paths = Paths("/leasehold".to_owned());
        let inboxes = Inboxes::new(session, Arc::clone(hub), paths, OWN);
        (inboxes, server)
    }

    /// The nodes of the client.
    fn nodes(inboxes: &Inboxes) -> (String, String) {
        let paths = &inboxes.paths;
        (paths.client(client()), paths.inbox(client()))
    }

    fn done() -> (i32, Writer) {
        (0, Writer::default().int(-1).flag(true).int(-1))
    }

    /// The request with this number of a multi fails.
    fn failed(nth: usize, code: i32) -> (i32, Writer) {
        let before = (0..nth).fold(Writer::default(), |reply, _| {
            reply.int(-1).flag(false).int(0).int(0)
        });
        (0, before.int(-1).flag(false).int(code).int(code))
    }

    #[tokio::test]
    async fn the_nodes_of_a_client_are_replaced_in_one_step() {
        let (inboxes, mut server) = connected(&Arc::default()).await;
        let exists = code::NODE_EXISTS;
        let replies = [failed(1, exists), failed(0, exists), done()];
        let (begun, requests) = tokio::join!(inboxes.begin(client()), server.reply(replies));
        begun.unwrap();
        let (node, inbox) = nodes(&inboxes);
        let last = Request::multi(&[
            Request::delete(&node),
            Request::create(&node, &[], Mode::Ephemeral, OWN),
            Request::check(&inbox),
        ]);
        assert_eq!(requests.last(), Some(&last.body));
    }

    #[tokio::test]
    async fn an_inbox_is_deleted_in_one_step_with_a_proof_that_its_client_is_dead() {
        let (inboxes, mut server) = connected(&Arc::default()).await;
        let messages = (0, Writer::default().int(1).text("m-0"));
        let replies = [messages, failed(0, code::NODE_EXISTS)];
        let (discarded, requests) = tokio::join!(inboxes.discard(client()), server.reply(replies));
        discarded.unwrap();
        let (node, inbox) = nodes(&inboxes);
        let last = Request::multi(&[
            Request::create(&node, &[], Mode::Persistent, OWN),
            Request::delete(&format!("{inbox}/m-0")),
            Request::delete(&inbox),
            Request::delete(&node),
        ]);
        assert_eq!(requests.last(), Some(&last.body));
    }

    /// The messages behind it are deleted when it is found to be missing.
    #[tokio::test]
    async fn a_message_that_is_missing_loses_no_other_one() {
        let (hub, recorder) = (Arc::<Hub>::default(), Arc::new(Recorder::default()));
        let listener = Arc::downgrade(&recorder);
        hub.add(client(), listener);
        let (inboxes, mut server) = connected(&hub).await;
        let event = Event::Changed(key("a"));
        let mut messages = Vec::new();
        message::write(&mut messages, &event, 1_024);
        let mut message = Writer::default().text(&messages[0]);
        message.0.extend([0; 68]);
        let replies = [
            (0, Writer::default().int(2).text("m-0").text("m-1")),
            (code::NO_NODE, Writer::default()),
            (code::NO_NODE, Writer::default()),
            (0, message),
            (0, Writer::default()),
        ];
        let (received, _) = tokio::join!(inboxes.receive(client()), server.reply(replies));
        received.unwrap();
        assert_eq!(*lock(&recorder.0), [event]);
    }
}
