//! What makes a server tell without being asked: subscriptions to the channels of those who listen,
//! and the tracking of keys.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use futures_core::Stream;
use leasehold_core::ClientId;
use redis::aio::{MultiplexedConnection, PubSubSink};
use redis::{Client, Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::task::JoinHandle;

use super::errors::{self, Refusal};
use super::keys::namespace;
use super::notifications::Notifications;
use super::session_state::SessionState;
use super::tracking::{self, KeyTracking};
use crate::store::api::{Reply, Request, WakeupMode};

/// The subscriptions that come with one connection.
#[derive(Debug)]
pub(super) struct Subscriptions {
    way: Way,
    /// The version of the notifications for which all is done.
    settled: AtomicU64,
    watch: Arc<KeyTracking>,
    state: Mutex<State>,
}

/// How messages come.
#[derive(Debug)]
enum Way {
    /// Between the answers: RESP3.
    Within,
    /// On a second connection, which can do nothing else: RESP2.
    Beside(Beside),
}

#[derive(Debug)]
struct Beside {
    sink: PubSubSink,
    reader: JoinHandle<()>,
}

/// What the server does not do, and for which channel.
type Refused = (Step, String, Refusal);

/// The channels of those who listen.
type Channels = HashMap<ClientId, Vec<String>>;

#[derive(Debug, Default)]
struct State {
    channels: Channels,
    /// What has the server watch records. `None`: it was not asked yet, or does not.
    watcher: Option<JoinHandle<()>>,
    /// Why there is no queue for us. Sticks to the connection, unless it is for want of a right.
    no_queue: Option<Refusal>,
    /// Why nobody is told of changes. Sticks to the connection.
    no_watch: Option<String>,
}

/// What those who listen are told over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubscribedTo {
    All,
    /// Nothing that comes by messages: another connection brings them.
    Changes,
}

/// A command of [`Subscriptions::settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Track,
    KeyTracking,
    /// Nothing, for the sake of the one before.
    Pass,
    Unsubscribe,
    Subscribe,
    /// To ourselves: does a message arrive?
    Publish,
    /// Of some key of ours: does the server know the command?
    Find,
}

impl Subscriptions {
    /// Subscriptions on the connection itself. `watch` is what the server is to watch on it.
    pub(super) fn within(watch: Arc<KeyTracking>) -> Self {
        Self::new(Way::Within, watch)
    }

    /// Subscriptions on a second connection. They end together.
    ///
    /// # Errors
    ///
    /// If there can be none: without it, its clients would wait behind all others.
    pub(super) async fn beside(
        client: &Client,
        state: &Arc<SessionState>,
        notifications: &Arc<Notifications>,
    ) -> RedisResult<Self> {
        let pubsub = client.get_async_pubsub().await?;
        let (sink, mut stream) = pubsub.split();
        let (state, notifications) = (Arc::clone(state), Arc::clone(notifications));
        let reader = tokio::spawn(async move {
            let mut next =
                async || poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await;
            while let Some(message) = next().await {
                if state.is_replaced() {
                    break;
                }
                let channel = message.get_channel_name().as_bytes();
                notifications.hear_message(channel, message.get_payload_bytes());
            }
            state.end();
        });
        let way = Way::Beside(Beside { sink, reader });
        Ok(Self::new(way, Arc::default()))
    }

    fn new(way: Way, watch: Arc<KeyTracking>) -> Self {
        Self {
            way,
            settled: AtomicU64::new(0),
            watch,
            state: Mutex::default(),
        }
    }

    /// Whether the server tells all that those want to hear who listen now.
    pub(super) fn settled(&self, notifications: &Notifications) -> bool {
        self.settled.load(Ordering::Acquire) == notifications.version()
    }

    /// Notes what came of a batch, so that the server watches what is held.
    pub(super) fn note(&self, requests: &[Request], replies: &[Reply]) {
        self.watch.add(requests, replies);
    }

    /// Makes the server tell all that those want to hear who listen now, before it is asked anything
    /// else. What it refuses is done without.
    pub(super) async fn settle(
        &self,
        connection: &mut MultiplexedConnection,
        notifications: &Arc<Notifications>,
        target: &impl fmt::Display,
        told: SubscribedTo,
    ) -> RedisResult<()> {
        let version = notifications.version();
        let clients = notifications.clients();
        let heard = !clients.is_empty();
        let clients = clients.into_iter().filter(|_| told == SubscribedTo::All);
        let wanted: Channels = clients
            .map(|(client, space)| (client, notifications.channels(&space, client)))
            .collect();
        let (new, old) = self.state().compared_with(&wanted);
        let mut refused = Vec::new();
        if let Way::Beside(beside) = &self.way {
            refused = beside.subscribe(&new, &old).await?;
        }
        let (pipeline, steps) = self.steps(&new, &old, heard);
        let count = pipeline.len();
        let answers = match count {
            0 => Vec::new(),
            _ => connection.send_packed_commands(&pipeline, 0, count).await?,
        };
        let answered = steps.iter().zip(&answers);
        refused.extend(answered.filter_map(|((step, channel), answer)| {
            let refusal = step.refusal(answer)?;
            Some((*step, channel.clone(), refusal))
        }));
        if let Some((step, _, refusal)) = refused.iter().find(|(.., refusal)| !refusal.lasting) {
            // It is loading, say. The next batch tries again.
            let why = &refusal.words;
            tracing::debug!(store = %target, ?step, %why, "not yet told of anything");
            return Ok(());
        }
        let denied = match notifications.queueless() {
            true => HashMap::new(),
            false => denied(&refused),
        };
        {
            let mut state = self.state();
            let tracked = steps.iter().any(|(step, _)| *step == Step::Track);
            state.settled(wanted, &new, refused, &denied);
            if tracked && state.no_watch.is_none() {
                state.watcher = Some(self.watcher(connection.clone(), Arc::clone(notifications)));
            }
            if heard && told == SubscribedTo::All {
                let wakes = self.wakeup_mode(&state, notifications.queueless());
                state.tell(wakes, notifications, target);
            }
        }
        if told == SubscribedTo::All {
            let error = |refusal: Refusal| errors::denied_notifications(&refusal.words);
            let denied = denied.into_iter();
            notifications.set_denied(denied.map(|(space, why)| (space, error(why))).collect());
        }
        self.settled.store(version, Ordering::Release);
        Ok(())
    }

    /// What has to be asked on the connection itself.
    fn steps(
        &self,
        new: &[String],
        old: &[String],
        heard: bool,
    ) -> (Pipeline, Vec<(Step, String)>) {
        let (mut pipeline, mut steps) = (Pipeline::new(), Vec::new());
        let mut ask = |step: Step, channel: &str, words: &[&str]| {
            let mut cmd = Cmd::new();
            cmd.arg(words);
            pipeline.add_command(cmd);
            steps.push((step, channel.to_owned()));
        };
        if matches!(self.way, Way::Within) {
            let asked = {
                let state = self.state();
                state.watcher.is_some() || state.no_watch.is_some()
            };
            if heard && !asked {
                // Only of what it is asked to watch, and not of our own doing.
                ask(
                    Step::Track,
                    "",
                    &["CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"],
                );
                ask(Step::KeyTracking, "", &tracking::START);
                if new.is_empty() {
                    // It concerns the next command, which shall be none that reads.
                    ask(Step::Pass, "", &["WAIT", "0", "1"]);
                }
            }
            // One command each: the client library expects one answer to a command.
            for channel in old {
                ask(Step::Unsubscribe, channel, &["UNSUBSCRIBE", channel]);
            }
            for channel in new {
                ask(Step::Subscribe, channel, &["SUBSCRIBE", channel]);
            }
        }
        for channel in new {
            ask(Step::Publish, channel, &["PUBLISH", channel, ""]);
        }
        for channels in by_namespace(new) {
            let channel = &channels[0];
            ask(Step::Find, channel, &["LPOS", channel, ""]);
        }
        (pipeline, steps)
    }

    fn watcher(
        &self,
        connection: MultiplexedConnection,
        notifications: Arc<Notifications>,
    ) -> JoinHandle<()> {
        let watch = Arc::clone(&self.watch);
        watch.turn_on();
        tokio::spawn(async move { watch.run(connection, &notifications).await })
    }

    fn wakeup_mode(&self, state: &State, queueless: bool) -> WakeupMode {
        let queue = state.no_queue.is_none() && !queueless;
        match (&self.way, &state.no_watch) {
            _ if queue => WakeupMode::Grants,
            (Way::Within, None) => WakeupMode::Changes,
            _ => WakeupMode::Nothing,
        }
    }

    /// Ends a subscription without waiting for it. If it cannot be sent at once, it is sent before
    /// the next batch.
    pub(super) fn unsubscribe(&self, connection: &MultiplexedConnection, client: ClientId) {
        let Some(channels) = self.state().channels.remove(&client) else {
            return;
        };
        let sent = match &self.way {
            Way::Within => channels.iter().all(|channel| {
                let mut cmd = redis::cmd("UNSUBSCRIBE");
                cmd.arg(channel).set_no_response(true);
                let mut connection = connection.clone();
                poll_once(async move { connection.send_packed_command(&cmd).await })
            }),
            Way::Beside(beside) => {
                let (mut sink, channels) = (beside.sink.clone(), channels.clone());
                // It is under way with the first poll; what follows is the wait for the answer.
                poll_once(async move { sink.unsubscribe(channels).await });
                true
            }
        };
        if !sent {
            self.state().channels.insert(client, channels);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The channels that are wanted and missing, and those that are there and not wanted.
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

    /// Notes what came of asking for the `new` ones of the channels that are wanted. Those of a namespace that is
    /// denied are asked for again.
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
        for (step, channel, refusal) in refused {
            match step {
                // Not for those who may not hear of it.
                Step::Subscribe | Step::Publish | Step::Find if is_denied(&channel) => {}
                Step::Track | Step::KeyTracking => self.no_watch = Some(refusal.words),
                Step::Subscribe | Step::Publish | Step::Find => {
                    self.no_queue.get_or_insert(refusal);
                }
                Step::Unsubscribe | Step::Pass => {}
            }
        }
        if self.channels.is_empty() {
            let refusal = denied.values().next().cloned();
            self.no_queue = refusal.or_else(|| self.no_queue.take());
        }
    }

    fn tell(&self, wakes: WakeupMode, notifications: &Notifications, target: &impl fmt::Display) {
        let no_queue = self.no_queue.as_ref().map(|refusal| &*refusal.words);
        let no_watch = self.no_watch.as_deref();
        if notifications.set_wakeup_mode(wakes) {
            tracing::info!(store = %target, no_queue, no_watch, "waiters are woken: {wakes}");
        } else {
            tracing::debug!(store = %target, no_queue, no_watch, "waiters are woken: {wakes}");
        }
    }
}

impl Step {
    /// Why the server does not do it, if it does not.
    fn refusal(self, answer: &Value) -> Option<Refusal> {
        match (self, answer) {
            (Self::Publish, Value::Int(0)) => Some(Refusal {
                words: "messages do not arrive".to_owned(),
                lasting: true,
                denied: false,
            }),
            // The key holds something else than a list, or is on another node: the command is known.
            (Self::Find, Value::ServerError(error))
                if matches!(error.code(), "WRONGTYPE" | "MOVED" | "ASK" | "CLUSTERDOWN") =>
            {
                None
            }
            (_, answer) => errors::refusal(answer),
        }
    }
}

impl Beside {
    async fn subscribe(&self, new: &[String], old: &[String]) -> RedisResult<Vec<Refused>> {
        let mut sink = self.sink.clone();
        // What the server says is known from now on; what broke the connection ends it.
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
            refused.extend(refusal.map(|why| (Step::Subscribe, channels[0].clone(), why)));
        }
        Ok(refused)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(watcher) = &self.watcher {
            watcher.abort();
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Channels in their order, those of each namespace by themselves.
fn by_namespace(channels: &[String]) -> impl Iterator<Item = &[String]> {
    channels.chunk_by(|a, b| namespace(a) == namespace(b))
}

/// Why the clients of a namespace cannot be notified, where it is for want of a right.
fn denied(refused: &[Refused]) -> HashMap<String, Refusal> {
    let mut denied = HashMap::new();
    for (step, channel, refusal) in refused {
        let notifies = matches!(step, Step::Subscribe | Step::Publish | Step::Find);
        if notifies && refusal.denied {
            let namespace = namespace(channel).to_owned();
            denied.entry(namespace).or_insert_with(|| refusal.clone());
        }
    }
    denied
}

/// Does what a future does before it first waits, and answers whether that was all.
fn poll_once(future: impl Future) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    pin!(future).poll(&mut context).is_ready()
}
