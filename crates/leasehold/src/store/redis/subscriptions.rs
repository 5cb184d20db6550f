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

/// The channels of those who listen.
type Channels = HashMap<ClientId, Vec<String>>;

#[derive(Debug, Default)]
struct State {
    channels: Channels,
    /// What has the server watch records. `None`: it was not asked yet, or does not.
    watcher: Option<JoinHandle<()>>,
    /// Why there is no queue for us. If it is for want of a right, it is asked again with the next batch; else
    /// it sticks to the connection.
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
        let mut no_queue = None;
        if let Way::Beside(beside) = &self.way {
            no_queue = beside.subscribe(&new, &old).await?;
        }
        let (pipeline, steps) = self.steps(&new, &old, heard);
        let count = pipeline.len();
        let answers = match count {
            0 => Vec::new(),
            _ => connection.send_packed_commands(&pipeline, 0, count).await?,
        };
        let refusals = steps
            .iter()
            .zip(&answers)
            .filter_map(|(step, answer)| Some((*step, step.refusal(answer)?)));
        let refusals: Vec<_> = refusals.collect();
        if let Some((step, refusal)) = refusals.iter().find(|(_, refusal)| !refusal.lasting) {
            // It is loading, say. The next batch tries again.
            let why = &refusal.words;
            tracing::debug!(store = %target, ?step, %why, "not yet told of anything");
            return Ok(());
        }
        {
            let mut state = self.state();
            let channels = std::mem::replace(&mut state.channels, wanted);
            if !new.is_empty() {
                state.no_queue = no_queue;
            }
            state.refused(refusals);
            if steps.contains(&Step::Track) && state.no_watch.is_none() {
                state.watcher = Some(self.watcher(connection.clone(), Arc::clone(notifications)));
            }
            if !state.channels.is_empty() {
                let wakes = self.wakeup_mode(&state, notifications.queueless());
                state.tell(wakes, notifications, target);
                let denied = state.no_queue.as_ref().filter(|refusal| refusal.denied);
                let denied = denied.filter(|_| !notifications.queueless());
                let error = denied.map(|refusal| errors::denied_notifications(&refusal.words));
                let is_denied = error.is_some();
                notifications.set_denied(error);
                if is_denied {
                    state.channels = channels;
                    return Ok(());
                }
            }
        }
        self.settled.store(version, Ordering::Release);
        Ok(())
    }

    /// What has to be asked on the connection itself.
    fn steps(&self, new: &[String], old: &[String], heard: bool) -> (Pipeline, Vec<Step>) {
        let (mut pipeline, mut steps) = (Pipeline::new(), Vec::new());
        let mut ask = |step: Step, words: &[&str]| {
            let mut cmd = Cmd::new();
            cmd.arg(words);
            pipeline.add_command(cmd);
            steps.push(step);
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
                    &["CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"],
                );
                ask(Step::KeyTracking, &tracking::START);
                if new.is_empty() {
                    // It concerns the next command, which shall be none that reads.
                    ask(Step::Pass, &["WAIT", "0", "1"]);
                }
            }
            // One command each: the client library expects one answer to a command.
            for channel in old {
                ask(Step::Unsubscribe, &["UNSUBSCRIBE", channel]);
            }
            for channel in new {
                ask(Step::Subscribe, &["SUBSCRIBE", channel]);
            }
        }
        for channel in new {
            ask(Step::Publish, &["PUBLISH", channel, ""]);
        }
        if let Some(channel) = new.first() {
            ask(Step::Find, &["LPOS", channel, ""]);
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
        (
            without(wanted, &self.channels),
            without(&self.channels, wanted),
        )
    }

    fn refused(&mut self, refusals: Vec<(Step, Refusal)>) {
        for (step, refusal) in refusals {
            match step {
                Step::Track | Step::KeyTracking => self.no_watch = Some(refusal.words),
                Step::Subscribe | Step::Publish | Step::Find => {
                    self.no_queue.get_or_insert(refusal);
                }
                Step::Unsubscribe | Step::Pass => {}
            }
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
    async fn subscribe(&self, new: &[String], old: &[String]) -> RedisResult<Option<Refusal>> {
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
        if new.is_empty() {
            return Ok(None);
        }
        refusal(sink.subscribe(new).await)
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

/// Does what a future does before it first waits, and answers whether that was all.
fn poll_once(future: impl Future) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    pin!(future).poll(&mut context).is_ready()
}
