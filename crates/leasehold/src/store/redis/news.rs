//! What makes a server tell without being asked: subscriptions to the channels of those who listen,
//! and the tracking of keys.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use futures_core::Stream;
use leasehold_core::ClientId;
use redis::aio::{MultiplexedConnection, PubSubSink};
use redis::{Client, Pipeline, RedisError, RedisResult, Value};
use tokio::task::JoinHandle;

use super::address::Address;
use super::dialed::Standing;
use super::errors;
use super::keys::ClientKey;
use super::listeners::Listeners;
use super::watch;
use crate::store::Wakes;

/// The news that come with one connection.
#[derive(Debug)]
pub(super) struct News {
    way: Way,
    /// Whether the server tells of the next change of a key that it is asked to watch.
    watches: AtomicBool,
    /// The version of the listeners for which all is done.
    settled: AtomicU64,
    subscribed: Mutex<Subscribed>,
}

/// How messages come.
#[derive(Debug)]
enum Way {
    /// Between the answers: RESP3.
    Within,
    /// On a second connection, which can do nothing else: RESP2.
    Beside(Beside),
    /// Not at all.
    None,
}

#[derive(Debug)]
struct Beside {
    sink: PubSubSink,
    reader: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Subscribed {
    channels: HashMap<ClientId, String>,
    /// Why no grants can be told.
    refused: Option<String>,
}

impl News {
    /// News on the connection itself. Asks the server to tell of changes of those keys that it will
    /// be asked to watch, unless the change is our own.
    pub(super) async fn within(
        connection: &mut MultiplexedConnection,
        address: &Address,
    ) -> RedisResult<Self> {
        let mut pipeline = Pipeline::with_capacity(2);
        // Not of everything that is read: the script reads much that nobody waits for, and reads for
        // people would fill the server's table.
        let tracking = pipeline.cmd("CLIENT").arg("TRACKING").arg("ON");
        tracking.arg("OPTIN").arg("NOLOOP");
        watch::add_start(&mut pipeline);
        let answers = connection.send_packed_commands(&pipeline, 0, 2).await?;
        let refused = answers.iter().find_map(errors::refusal);
        if let Some(why) = &refused {
            tracing::info!(store = %address, why, "the store cannot tell of losses");
        }
        Ok(Self::new(Way::Within, refused.is_none()))
    }

    /// News on a second connection, if there can be one. They end together.
    pub(super) async fn beside(
        client: &Client,
        standing: &Arc<Standing>,
        listeners: &Arc<Listeners>,
        address: &Address,
    ) -> Self {
        let way = match client.get_async_pubsub().await {
            Ok(pubsub) => {
                let (sink, mut stream) = pubsub.split();
                let (standing, listeners) = (Arc::clone(standing), Arc::clone(listeners));
                let reader = tokio::spawn(async move {
                    while let Some(message) =
                        poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await
                    {
                        let channel = message.get_channel_name().as_bytes();
                        listeners.hear_message(channel, message.get_payload_bytes());
                    }
                    standing.end();
                });
                Way::Beside(Beside { sink, reader })
            }
            Err(error) => {
                tracing::info!(store = %address, %error, "no second connection for messages");
                Way::None
            }
        };
        Self::new(way, false)
    }

    fn new(way: Way, watches: bool) -> Self {
        Self {
            way,
            watches: AtomicBool::new(watches),
            settled: AtomicU64::new(0),
            subscribed: Mutex::default(),
        }
    }

    /// Whether somebody wants to know of changes, and the server tells of them.
    pub(super) fn watches(&self) -> bool {
        self.settled.load(Ordering::Acquire) > 0 && self.watches.load(Ordering::Relaxed)
    }

    /// Makes the server tell all that those want to hear who listen now. Costs nothing if they are
    /// the same as before.
    ///
    /// What the server refuses is done without.
    pub(super) async fn settle(
        &self,
        connection: &MultiplexedConnection,
        listeners: &Listeners,
        address: &Address,
    ) -> RedisResult<()> {
        let version = listeners.version();
        if self.settled.load(Ordering::Acquire) == version {
            return Ok(());
        }
        let clients = listeners.clients().into_iter();
        let wanted: HashMap<_, _> = clients
            .map(|(client, space)| (client, ClientKey(&space, client).to_string()))
            .collect();
        let (new, old) = self.subscribed().compared_with(&wanted);
        if !(new.is_empty() && old.is_empty()) {
            let refused = self.subscribe(connection.clone(), &new, &old).await?;
            self.subscribed().changed(&wanted, refused);
        }
        if !wanted.is_empty() {
            self.tell_wakes(listeners, address);
        }
        self.settled.store(version, Ordering::Release);
        Ok(())
    }

    /// Changes the subscriptions, and tries whether messages arrive and the server knows what queues
    /// need. Answers what was refused.
    async fn subscribe(
        &self,
        mut connection: MultiplexedConnection,
        new: &[String],
        old: &[String],
    ) -> RedisResult<Option<String>> {
        let mut pipeline = Pipeline::new();
        let mut refused = None;
        match &self.way {
            // One command each: the client library expects one answer to a command.
            Way::Within => {
                for channel in old {
                    pipeline.cmd("UNSUBSCRIBE").arg(channel);
                }
                for channel in new {
                    pipeline.cmd("SUBSCRIBE").arg(channel);
                }
            }
            Way::Beside(beside) => refused = beside.subscribe(new, old).await?,
            Way::None => refused = Some("there is no connection for messages".to_owned()),
        }
        let confirmations = pipeline.len();
        for channel in new {
            pipeline.cmd("PUBLISH").arg(channel).arg("");
        }
        if let Some(channel) = new.first() {
            // A key of this namespace. Whether it holds a list does not matter.
            pipeline.cmd("LPOS").arg(channel).arg("");
            pipeline.cmd("EXISTS").arg(channel);
        }
        if pipeline.is_empty() {
            return Ok(refused);
        }
        let count = pipeline.len();
        let answers = connection.send_packed_commands(&pipeline, 0, count).await?;
        let (subscribed, tried) = answers.split_at(confirmations.min(answers.len()));
        refused = refused.or_else(|| subscribed.iter().find_map(errors::refusal));
        if let Some((exists, tried)) = tried.split_last() {
            if errors::refusal(exists).is_some() {
                self.watches.store(false, Ordering::Relaxed);
            }
            let refusal = |answer: &Value| match answer {
                Value::Int(0) => Some("messages do not arrive".to_owned()),
                // The key of `LPOS` may hold something else.
                Value::ServerError(error) if error.code() == "WRONGTYPE" => None,
                answer => errors::refusal(answer),
            };
            refused = refused.or_else(|| tried.iter().find_map(refusal));
        }
        Ok(refused)
    }

    fn tell_wakes(&self, listeners: &Listeners, address: &Address) {
        let refused = self.subscribed().refused.clone();
        let wakes = match (&refused, self.watches.load(Ordering::Relaxed)) {
            (None, _) => Wakes::Grants,
            (Some(_), true) => Wakes::Changes,
            (Some(_), false) => Wakes::Nothing,
        };
        let news = listeners.set_wakes(wakes);
        let why = refused.map(tracing::field::display);
        if news {
            tracing::info!(store = %address, why, "how waiters are woken: {wakes}");
        } else {
            tracing::debug!(store = %address, why, "how waiters are woken: {wakes}");
        }
    }

    /// Ends a subscription without waiting for it. If it cannot be sent at once, it is sent before
    /// the next batch.
    pub(super) fn unsubscribe(&self, connection: &MultiplexedConnection, client: ClientId) {
        let Some(channel) = self.subscribed().channels.remove(&client) else {
            return;
        };
        let sent = match &self.way {
            Way::Within => {
                let mut cmd = redis::cmd("UNSUBSCRIBE");
                cmd.arg(&channel).set_no_response(true);
                let mut connection = connection.clone();
                poll_once(async move { connection.send_packed_command(&cmd).await })
            }
            Way::Beside(beside) => {
                let (mut sink, channel) = (beside.sink.clone(), channel.clone());
                // It is under way with the first poll; what follows is the wait for the answer.
                poll_once(async move { sink.unsubscribe(channel).await });
                true
            }
            Way::None => true,
        };
        if !sent {
            self.subscribed().channels.insert(client, channel);
        }
    }

    fn subscribed(&self) -> MutexGuard<'_, Subscribed> {
        self.subscribed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscribed {
    /// The channels that are wanted and missing, and those that are there and not wanted.
    fn compared_with(&self, wanted: &HashMap<ClientId, String>) -> (Vec<String>, Vec<String>) {
        let without = |all: &HashMap<ClientId, String>, others: &HashMap<ClientId, String>| {
            let left = all
                .iter()
                .filter(|(client, _)| !others.contains_key(client));
            left.map(|(_, channel)| channel.clone()).collect()
        };
        (
            without(wanted, &self.channels),
            without(&self.channels, wanted),
        )
    }

    fn changed(&mut self, wanted: &HashMap<ClientId, String>, refused: Option<String>) {
        self.channels.clone_from(wanted);
        if refused.is_some() {
            self.refused = refused;
        }
    }
}

impl Beside {
    async fn subscribe(&self, new: &[String], old: &[String]) -> RedisResult<Option<String>> {
        let mut sink = self.sink.clone();
        // What the server says is known from now on; what broke the connection ends it.
        let refusal = |result: RedisResult<()>| match result {
            Err(error) if error.code().is_none() => Err(error),
            result => Ok(result.err().map(|error: RedisError| error.to_string())),
        };
        if !old.is_empty() {
            refusal(sink.unsubscribe(old).await)?;
        }
        if new.is_empty() {
            return Ok(None);
        }
        refusal(sink.subscribe(new).await)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Does what a future does before it first waits, and answers whether that was all.
fn poll_once(future: impl Future) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    pin!(future).poll(&mut context).is_ready()
}
