//! Subscribes to the messages of a server: the channels of the clients, and the tracking of keys.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::{FutureExt as _, StreamExt as _};
use leasehold_core::ClientId;
use redis::aio::{MultiplexedConnection, PubSubSink};
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::task::JoinSet;

use super::notifications::Notifications;
use super::session_state::SessionState;
use super::tracking::{self, KeyTracking};
use crate::store::api::WakeupMode;
use crate::store::lock::lock;
use crate::store::redis::errors::{self, Refusal};
use crate::store::redis::wire::keys::namespace;

/// The subscriptions of one connection.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    transport: Transport,
    /// The version of the notifications that is subscribed.
    settled: AtomicU64,
    /// Held while the clients are subscribed, because each concurrent caller would subscribe all of them.
    pub(crate) settling: tokio::sync::Mutex<()>,
    pub(crate) tracking: Arc<KeyTracking>,
    state: Mutex<SubscriptionState>,
}

/// The transport of messages.
#[derive(Debug)]
enum Transport {
    /// The connection itself: RESP3.
    Shared,
    /// A second connection for subscriptions only: RESP2.
    Separate(PubSub),
}

#[derive(Debug)]
struct PubSub {
    sink: PubSubSink,
    /// The task that reads messages. Dropping it stops the task.
    _reader: JoinSet<()>,
}

/// A command that the server refused.
type Refused = (Step, Refusal);

/// The channels of the clients.
type Channels = HashMap<ClientId, Vec<String>>;

#[derive(Debug, Default)]
struct SubscriptionState {
    channels: Channels,
    /// The task that tracks records and notifies observers. Empty: not started yet, or not supported. Dropping it stops
    /// the task.
    tracker: JoinSet<()>,
    /// Why queues cannot be used. Permanent for the connection, unless a permission is missing.
    no_queue: Option<Refusal>,
    /// Why changes cannot be detected. Permanent for the connection.
    no_tracking: Option<String>,
}

/// The events that clients receive over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscribedTo {
    All,
    /// No messages: another connection receives them.
    Changes,
}

/// A command of [`Subscriptions::settle`], with its channel.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Track,
    Caching,
    /// Has no effect; it is the command that the one before applies to.
    Pass,
    Unsubscribe(String),
    Subscribe(String),
    /// Publishes to ourselves, to check that messages arrive.
    Publish(String),
    /// Runs a command on one of our keys, to check that the server supports it.
    Find(String),
}

impl Subscriptions {
    /// Subscriptions on the connection itself, with the tracking on it.
    pub(crate) fn shared(tracking: Arc<KeyTracking>) -> Self {
        Self::new(Transport::Shared, tracking)
    }

    /// Subscriptions on a second connection. They end together.
    pub(crate) fn separate(pubsub: redis::aio::PubSub, state: &Arc<SessionState>) -> Self {
        let (sink, mut stream) = pubsub.split();
        let state = Arc::clone(state).end_on_drop();
        let mut reader = JoinSet::new();
        reader.spawn(async move {
            while let Some(message) = stream.next().await {
                if state.is_replaced() {
                    break;
                }
                let channel = message.get_channel_name().as_bytes();
                let message = message.get_payload_bytes();
                state.notifications.handle_message(channel, message);
            }
        });
        let transport = Transport::Separate(PubSub {
            sink,
            _reader: reader,
        });
        Self::new(transport, Arc::default())
    }

    fn new(transport: Transport, tracking: Arc<KeyTracking>) -> Self {
        Self {
            transport,
            settled: AtomicU64::new(0),
            settling: tokio::sync::Mutex::default(),
            tracking,
            state: Mutex::default(),
        }
    }

    /// Whether all current clients are subscribed.
    pub(crate) fn settled(&self, notifications: &Notifications) -> bool {
        self.settled.load(Ordering::Acquire) == notifications.version()
    }

    /// Subscribes all current clients, before any other request is sent. What the server refuses is done without.
    pub(crate) async fn settle(
        &self,
        connection: &mut MultiplexedConnection,
        notifications: &Arc<Notifications>,
        target: &impl fmt::Display,
        subscribed_to: SubscribedTo,
    ) -> RedisResult<()> {
        let version = notifications.version();
        let clients = notifications.clients.all();
        let has_clients = !clients.is_empty();
        let clients = clients
            .into_iter()
            .filter(|_| subscribed_to == SubscribedTo::All);
        let wanted: Channels = clients
            .map(|(client, space)| (client, notifications.channels(&space, client)))
            .collect();
        let (new, old) = lock(&self.state).compared_with(&wanted);
        let mut refused = Vec::new();
        if let Transport::Separate(pubsub) = &self.transport {
            refused = pubsub.subscribe(&new, &old).await?;
        }
        let wants_changes = has_clients || notifications.clients.observers.in_use();
        let steps = self.steps(&new, &old, wants_changes);
        let tracked = steps.contains(&Step::Track);
        let mut pipeline = Pipeline::new();
        for step in &steps {
            pipeline.add_command(step.command());
        }
        let replies = match steps.len() {
            0 => Vec::new(),
            count => connection.send_packed_commands(&pipeline, 0, count).await?,
        };
        refused.extend(steps.into_iter().zip(&replies).filter_map(|(step, reply)| {
            let refusal = step.refusal(reply)?;
            Some((step, refusal))
        }));
        if let Some((step, refusal)) = refused.iter().find(|(_, refusal)| !refusal.lasting) {
            // For example, it is loading. The next batch tries again.
            let why = &refusal.words;
            tracing::debug!(store = %target, ?step, %why, "not subscribed yet");
            return Ok(());
        }
        let denied = match notifications.queueless {
            true => HashMap::new(),
            false => denied(&refused),
        };
        {
            let mut state = lock(&self.state);
            state.settled(wanted, &new, refused, &denied);
            if tracked && state.no_tracking.is_none() {
                let (tracking, connection) = (Arc::clone(&self.tracking), connection.clone());
                let notifications = Arc::clone(notifications);
                tracking.turn_on();
                state.tracker.spawn(async move {
                    let observers = notifications.clients.observers.run();
                    tokio::join!(tracking.run(connection, &notifications), observers);
                });
            }
            if has_clients && subscribed_to == SubscribedTo::All {
                let mode = self.wakeup_mode(&state, notifications.queueless);
                state.report(mode, notifications, target);
            }
        }
        if subscribed_to == SubscribedTo::All {
            let denied = denied.into_iter().map(|(space, refusal)| {
                let error = errors::denied_notifications(&space, &refusal.words);
                (space, error)
            });
            notifications.set_denied(denied.collect());
        }
        self.settled.store(version, Ordering::Release);
        Ok(())
    }

    /// The commands on the connection itself.
    fn steps(&self, new: &[String], old: &[String], wants_changes: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        if matches!(self.transport, Transport::Shared) {
            let decided = {
                let state = lock(&self.state);
                !state.tracker.is_empty() || state.no_tracking.is_some()
            };
            if wants_changes && !decided {
                steps.extend([Step::Track, Step::Caching]);
                // It applies to the next command, which must not read.
                steps.extend(new.is_empty().then_some(Step::Pass));
            }
            // One command per channel, as the client library expects one reply per command.
            steps.extend(old.iter().cloned().map(Step::Unsubscribe));
            steps.extend(new.iter().cloned().map(Step::Subscribe));
        }
        steps.extend(new.iter().cloned().map(Step::Publish));
        let find = |channels: &[String]| Step::Find(channels[0].clone());
        steps.extend(by_namespace(new).map(find));
        steps
    }

    fn wakeup_mode(&self, state: &SubscriptionState, queueless: bool) -> WakeupMode {
        let queue = state.no_queue.is_none() && !queueless;
        match (&self.transport, &state.no_tracking) {
            _ if queue => WakeupMode::Grants,
            (Transport::Shared, None) => WakeupMode::Changes,
            _ => WakeupMode::Nothing,
        }
    }

    /// Ends a subscription without waiting. If it cannot be sent immediately, it is sent before the next batch.
    pub(crate) fn unsubscribe(&self, connection: &MultiplexedConnection, client: ClientId) {
        let Some(channels) = lock(&self.state).channels.remove(&client) else {
            return;
        };
        let sent = match &self.transport {
            Transport::Shared => channels.iter().all(|channel| {
                let mut cmd = redis::cmd("UNSUBSCRIBE");
                cmd.arg(channel).set_no_response(true);
                let mut connection = connection.clone();
                let sent = async move { connection.send_packed_command(&cmd).await };
                sent.now_or_never().is_some()
            }),
            Transport::Separate(pubsub) => {
                let (mut sink, channels) = (pubsub.sink.clone(), channels.clone());
                // The first poll sends it; the rest waits for the reply.
                let _ = async move { sink.unsubscribe(channels).await }.now_or_never();
                true
            }
        };
        if !sent {
            lock(&self.state).channels.insert(client, channels);
        }
    }
}

impl SubscriptionState {
    /// The channels to subscribe, and those to unsubscribe.
    fn compared_with(&self, wanted: &Channels) -> (Vec<String>, Vec<String>) {
        let without = |all: &Channels, others: &Channels| {
            let left = all
                .iter()
                .filter(|(client, _)| !others.contains_key(client));
            left.flat_map(|(_, channels)| channels.clone()).collect()
        };
        let mut new: Vec<_> = without(wanted, &self.channels);
        new.sort_unstable();
        (new, without(&self.channels, wanted))
    }

    /// Records the result of subscribing the `new` channels. Those of a namespace that is denied are repeated.
    fn settled(
        &mut self,
        wanted: Channels,
        new: &[String],
        refused: Vec<Refused>,
        denied: &HashMap<String, Refusal>,
    ) {
        let is_denied = |channel: &String| denied.contains_key(namespace(channel));
        self.channels = wanted;
        let channels = &mut self.channels;
        channels.retain(|_, channels| !channels.iter().any(is_denied));
        if !new.iter().all(is_denied) {
            self.no_queue = None;
        }
        for (step, refusal) in refused {
            match step {
                // Not those of a denied namespace.
                Step::Subscribe(channel) | Step::Publish(channel) | Step::Find(channel)
                    if is_denied(&channel) => {}
                Step::Track | Step::Caching => self.no_tracking = Some(refusal.words),
                Step::Subscribe(_) | Step::Publish(_) | Step::Find(_) => {
                    self.no_queue.get_or_insert(refusal);
                }
                Step::Unsubscribe(_) | Step::Pass => {}
            }
        }
        if self.channels.is_empty() {
            let refusal = denied.values().next().cloned();
            self.no_queue = refusal.or_else(|| self.no_queue.take());
        }
    }

    fn report(&self, wakes: WakeupMode, notifications: &Notifications, target: &impl fmt::Display) {
        let no_queue = self.no_queue.as_ref().map(|refusal| &*refusal.words);
        let no_tracking = self.no_tracking.as_deref();
        if notifications.set_wakeup_mode(wakes) {
            tracing::info!(store = %target, no_queue, no_tracking, "waiters are woken: {wakes}");
        } else {
            tracing::debug!(store = %target, no_queue, no_tracking, "waiters are woken: {wakes}");
        }
    }
}

impl Step {
    fn command(&self) -> Cmd {
        let mut cmd = Cmd::new();
        match self {
            // Only selected keys, and not our own changes.
            Self::Track => cmd.arg(&["CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"][..]),
            Self::Caching => cmd.arg(&tracking::START[..]),
            // Every user may send it.
            Self::Pass => cmd.arg("HELLO"),
            Self::Unsubscribe(channel) => cmd.arg("UNSUBSCRIBE").arg(channel),
            Self::Subscribe(channel) => cmd.arg("SUBSCRIBE").arg(channel),
            Self::Publish(channel) => cmd.arg("PUBLISH").arg(channel).arg(""),
            Self::Find(channel) => cmd.arg("LPOS").arg(channel).arg(""),
        };
        cmd
    }

    /// The refusal in a reply, if it is one.
    fn refusal(&self, reply: &Value) -> Option<Refusal> {
        match (self, reply) {
            (Self::Publish(_), Value::Int(0)) => Some(Refusal {
                words: "messages do not arrive".to_owned(),
                lasting: true,
                denied: false,
            }),
            // The key is not a list, or is on another node: the command is supported.
            (Self::Find(_), Value::ServerError(error))
                if matches!(error.code(), "WRONGTYPE" | "MOVED" | "ASK" | "CLUSTERDOWN") =>
            {
                None
            }
            (_, reply) => errors::refusal(reply),
        }
    }
}

impl PubSub {
    async fn subscribe(&self, new: &[String], old: &[String]) -> RedisResult<Vec<Refused>> {
        let mut sink = self.sink.clone();
        // An error reply is a refusal; any other error ends the connection.
        let refusal = |result: RedisResult<()>| match result {
            Err(error) if error.code().is_none() => Err(error),
            result => Ok(result.err().map(|error: RedisError| Refusal {
                words: error.to_string(),
                lasting: true,
                denied: error.code() == Some(errors::DENIED),
            })),
        };
        if !old.is_empty() {
            refusal(sink.unsubscribe(old).await)?;
        }
        let mut refused = Vec::new();
        for channels in by_namespace(new) {
            let refusal = refusal(sink.subscribe(channels).await)?;
            refused.extend(refusal.map(|why| (Step::Subscribe(channels[0].clone()), why)));
        }
        Ok(refused)
    }
}

/// The channels in order, grouped by namespace.
fn by_namespace(channels: &[String]) -> impl Iterator<Item = &[String]> {
    channels.chunk_by(|a, b| namespace(a) == namespace(b))
}

/// The namespaces whose clients lack the permission to be notified.
fn denied(refused: &[Refused]) -> HashMap<String, Refusal> {
    let mut denied = HashMap::new();
    for (step, refusal) in refused {
        if let Step::Subscribe(channel) | Step::Publish(channel) | Step::Find(channel) = step
            && refusal.denied
        {
            let namespace = namespace(channel).to_owned();
            denied.entry(namespace).or_insert_with(|| refusal.clone());
        }
    }
    denied
}
