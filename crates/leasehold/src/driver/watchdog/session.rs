//! The session with one node of the watchdog, which reconnects whenever its connection ends.
//!
//! The protocol is [`leasehold_core::watchdog`]. Here is its host: a task that connects, sends, receives and waits.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Instant;
use leasehold_core::watchdog::{Changes, NodeSession, SessionAction, Terms};
use tokio::sync::{Notify, watch};

use super::refusal::{NodeRefusal, store_refusal, unexpected};
use super::transport::{self, Reader, Writer};
use super::{Processes, RegisteredLease};
use crate::Error;
use crate::ErrorKind;
use crate::clock::Clock;
use crate::driver::primitives::{Mutex, MutexGuard, lock, report};
use crate::fork::Process;
use crate::watchdog::wire::{self, Hello, Refusal, Registration, Role, ToClient, ToNode};
use crate::watchdog::{Address, NodeState};

/// How long a node has to accept the connection, and to take in each message.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The protocol of a session.
pub(super) type Session = NodeSession<RegisteredLease>;

/// The host of a session.
pub(super) struct SessionHost {
    address: Address,
    hello: Hello,
    ca_file: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    session: Mutex<Session>,
    /// Wakes the task.
    wakeup: Notify,
    /// Notified whenever the node accepts the connection or acknowledges a batch, and after the end of a connection.
    progress: Notify,
    state: watch::Sender<NodeState>,
    process: Process,
}

impl SessionHost {
    pub(super) fn new(
        address: Address,
        hello: Hello,
        ca_file: Option<PathBuf>,
        required: bool,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let session = match required {
            true => Session::default(),
            false => Session::lingering(),
        };
        Self {
            address,
            hello,
            ca_file,
            clock,
            session: Mutex::new(session),
            wakeup: Notify::new(),
            progress: Notify::new(),
            state: watch::Sender::new(NodeState::Connecting),
            process: Process::current(),
        }
    }

    pub(super) fn register(&self, number: u64, terms: Terms, lease: RegisteredLease) {
        let sends = self.lock().register(number, terms, lease);
        if sends {
            self.wakeup.notify_one();
        }
    }

    pub(super) fn unregister(&self, number: u64) {
        let sends = self.lock().unregister(number);
        if sends {
            self.wakeup.notify_one();
        }
    }

    /// A further process was added, or the session is closed.
    pub(super) fn change(&self, change: impl FnOnce(&mut Session)) {
        change(&mut self.lock());
        self.wakeup.notify_one();
    }

    pub(super) fn is(&self, state: impl Fn(&Session) -> bool) -> bool {
        state(&self.lock())
    }

    /// Waits until the session is in a state.
    pub(super) async fn wait(&self, state: impl Fn(&Session) -> bool) {
        loop {
            let progress = self.progress.notified();
            if self.is(&state) {
                return;
            }
            progress.await;
        }
    }

    /// Why the node does not watch this client.
    pub(super) fn last_error(&self) -> Option<Error> {
        match &*self.state.borrow() {
            NodeState::Connecting | NodeState::Connected => None,
            NodeState::Unreachable(error) | NodeState::Refused(error) => Some(error.clone()),
        }
    }

    /// The state of the connection, and its changes.
    pub(super) fn state(&self) -> watch::Receiver<NodeState> {
        let mut state = self.state.subscribe();
        if !matches!(*state.borrow(), NodeState::Connecting) {
            state.mark_changed();
        }
        state
    }

    pub(super) fn is_closed(&self) -> bool {
        // First: in a fork, nothing may unlock the session.
        !self.process.is_current() || self.is(Session::is_closed)
    }

    /// Keeps the node up to date until the session is closed.
    pub(super) async fn run(self: Arc<Self>, processes: Arc<Processes>) {
        while self.process.is_current() {
            match self.poll() {
                (SessionAction::Connect, _) => {
                    let ended = self.serve(&processes).await;
                    self.disconnected(ended);
                }
                (SessionAction::Wait, next) => self.wait_until(next).await,
                _ => break,
            }
        }
        self.progress.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Session> {
        lock(&self.session)
    }

    /// What to do next, and when to poll again.
    fn poll(&self) -> (SessionAction<RegisteredLease>, Option<Instant>) {
        let now = self.clock.now();
        let mut session = self.lock();
        (session.poll(now), session.next_timeout())
    }

    async fn wait_until(&self, next: Option<Instant>) {
        tokio::select! {
            () = self.wakeup.notified() => {}
            () = self.clock.sleep_until(next.unwrap_or_default()), if next.is_some() => {}
        }
    }

    async fn closing(&self) {
        while !self.is_closed() {
            self.wakeup.notified().await;
        }
    }

    /// Notes that the node no longer watches the leases, and reports why unless the session has ended.
    fn disconnected(&self, ended: io::Error) {
        let now = self.clock.now();
        let (was_connected, unwatched) = {
            let mut session = self.lock();
            let was_connected = session.is_connected();
            let permanently = self.is_permanent(&ended, was_connected);
            let unwatched = session.disconnected(permanently, now, fastrand::f64());
            (was_connected, unwatched)
        };
        self.set_watched(&unwatched, false);
        if !self.is_closed() {
            self.report(ended, was_connected);
        }
    }

    fn set_watched(&self, leases: &[RegisteredLease], watched: bool) {
        let now = self.clock.now();
        for lease in leases.iter().filter_map(|it| it.lease.upgrade()) {
            lease.set_watched(watched, now);
        }
    }

    /// Whether the next attempt to connect is expected to fail as well: the node refuses, or does not listen on this
    /// machine.
    fn is_permanent(&self, ended: &io::Error, was_connected: bool) -> bool {
        let is_local = matches!(self.address, Address::Unix(_));
        let nobody = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        let is_absent = is_local && !was_connected && nobody.contains(&ended.kind());
        NodeRefusal::of(ended).map_or(is_absent, NodeRefusal::is_permanent)
    }

    fn gauge(&self) -> metrics::Gauge {
        metrics::gauge!("leasehold_watchdog_connected", "node" => self.address.to_string())
    }

    /// Logs and publishes the reason why the node does not watch this client.
    fn report(&self, ended: io::Error, was_connected: bool) {
        let state = match NodeRefusal::of(&ended) {
            Some(_) => NodeState::Refused(self.refused(ended)),
            None => NodeState::Unreachable(self.unreachable(ended, was_connected)),
        };
        let known = {
            let before = &*self.state.borrow();
            std::mem::discriminant(before) == std::mem::discriminant(&state)
        };
        self.state.send_if_modified(|before| {
            *before = state;
            !known
        });
        self.progress.notify_waiters();
        report(|| {
            self.gauge().set(0.0);
            let error = self.last_error();
            let why = error.as_ref().map(ToString::to_string).unwrap_or_default();
            let source = error.as_ref().and_then(std::error::Error::source);
            let cause = source.map(ToString::to_string).unwrap_or_default();
            if known {
                tracing::debug!(node = %self, why, cause, "still no watchdog node");
            } else {
                tracing::warn!(node = %self, why, cause, "no watchdog node; only this process renews its leases");
            }
        });
    }

    fn unreachable(&self, ended: io::Error, was_connected: bool) -> Error {
        let message = match was_connected {
            true => format!("the connection to the watchdog at {self} has ended"),
            false => format!("no watchdog at {self}"),
        };
        Error::new(ErrorKind::Unreachable, message).with_source(ended)
    }

    fn refused(&self, ended: io::Error) -> Error {
        let message = match (NodeRefusal::of(&ended), &self.hello.role) {
            (Some(refusal), Role::Client(_, client)) if !refusal.stores.is_empty() => {
                let message = format!(
                    "the watchdog at {self} does not serve {} (it serves: {}); set \
                     Watchdog::store_name",
                    client.store,
                    refusal.stores.join(", ")
                );
                return Error::new(ErrorKind::NoWatchdog, message);
            }
            _ => format!("the watchdog at {self} refuses this client"),
        };
        Error::new(ErrorKind::NoWatchdog, message).with_source(ended)
    }

    /// Serves one connection. Returns why it ended.
    async fn serve(self: &Arc<Self>, processes: &Processes) -> io::Error {
        let connected = async {
            let (mut reader, mut writer) =
                transport::connect(&self.address, self.ca_file.as_deref()).await?;
            writer.send(&ToNode::Hello(self.hello.clone())).await?;
            let name = match reader.next().await? {
                ToClient::Welcome { node, .. } => node,
                ToClient::Stores(stores) => {
                    return Err(store_refusal(&mut reader, stores).await);
                }
                other => return Err(unexpected(other)),
            };
            // A node that does not watch every process would declare a living client dead.
            let sent = send_known_processes(&mut reader, &mut writer, processes).await?;
            Ok((name, sent, reader, writer))
        };
        let connected = tokio::select! {
            connected = within(connected) => connected,
            () = self.closing() => Err(io::ErrorKind::ConnectionAborted.into()),
        };
        let (name, sent, mut reader, writer) = match connected {
            Ok(connected) => connected,
            Err(error) => return error,
        };
        self.lock().connected(sent, self.clock.now());
        self.state.send_replace(NodeState::Connected);
        self.progress.notify_waiters();
        report(|| {
            self.gauge().set(1.0);
            tracing::info!(node = %self, name, "connected to a watchdog node");
        });
        let ended = tokio::select! {
            ended = self.read(&mut reader) => ended,
            ended = self.write(DisconnectOnDrop::new(self, writer), processes) => ended,
        };
        if self.must_disconnect() {
            // The node closes the connection when it has forgotten this client.
            let _ = within(self.read(&mut reader)).await;
        }
        ended
            .err()
            .unwrap_or_else(|| io::ErrorKind::ConnectionAborted.into())
    }

    async fn read(&self, reader: &mut Reader) -> io::Result<()> {
        loop {
            match reader.next().await? {
                ToClient::Acknowledged { batch, refused } => self.acknowledged(batch, &refused),
                ToClient::Joined => self.change(Session::joined),
                other @ (ToClient::Refused(_) | ToClient::Closing) => {
                    return Err(unexpected(other));
                }
                ToClient::Welcome { .. }
                | ToClient::LeaseStatus(_)
                | ToClient::Status { .. }
                | ToClient::Stores(_) => {}
            }
        }
    }

    fn acknowledged(&self, batch: u64, refused: &[(u64, Refusal)]) {
        if let Some((_, reason)) = refused.first() {
            let count = refused.len();
            report(|| tracing::warn!(node = %self, count, why = %reason, "leases are not watched"));
        }
        let numbers: Vec<_> = refused.iter().map(|(number, _)| *number).collect();
        let watched = self.lock().acknowledged(batch, &numbers);
        self.set_watched(&watched, true);
        self.progress.notify_waiters();
    }

    /// Sends what the node must know.
    async fn write(
        &self,
        mut connection: DisconnectOnDrop<'_>,
        processes: &Processes,
    ) -> io::Result<()> {
        loop {
            // A fork shares the connection, but the node watches the first process.
            self.process.check().map_err(io::Error::other)?;
            let (action, next) = self.poll();
            let writer = &mut connection.writer;
            match action {
                SessionAction::Process(number) => {
                    let process = lock(processes).get(number).cloned().flatten();
                    let is_sent = match process {
                        Some(process) => within(writer.send_process(process.as_fd())).await?,
                        None => false,
                    };
                    if !is_sent {
                        self.lock().joined();
                    }
                }
                SessionAction::Changes(changes) => {
                    let changes = ToNode::Changes(encoded(changes, self.clock.now()));
                    within(writer.send(&changes)).await?;
                }
                SessionAction::Heartbeat => within(writer.send(&ToNode::Heartbeat)).await?,
                SessionAction::Disconnect => {
                    within(writer.send(&ToNode::Disconnect)).await?;
                    connection.has_disconnected = true;
                    return Ok(());
                }
                SessionAction::Pause(pause) => {
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = self.closing() => {}
                    }
                    self.lock().end_pause();
                }
                SessionAction::Wait => self.wait_until(next).await,
                SessionAction::Connect | SessionAction::End => return Ok(()),
            }
        }
    }

    /// Whether it is closed by the process that opened it, and not in a fork, which shares the connection.
    fn must_disconnect(&self) -> bool {
        self.process.is_current() && self.is(Session::is_closed)
    }
}

fn encoded(changes: Changes<RegisteredLease>, now: Instant) -> wire::Changes {
    let register = changes.register.into_iter();
    let register = register.map(|(number, terms, lease)| registration(number, terms, &lease, now));
    wire::Changes {
        batch: changes.batch,
        register: register.collect(),
        unregister: changes.unregister,
    }
}

fn registration(
    number: u64,
    terms: Terms,
    registered: &RegisteredLease,
    now: Instant,
) -> Registration {
    let millis = |span: Duration| u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
    let keep = now.until(terms.keep_until);
    Registration {
        number,
        name: registered.name.as_str().to_owned(),
        ttl_ms: millis(terms.ttl.as_duration()),
        silence_timeout_ms: millis(terms.silence_timeout),
        keep_ms: match terms.keep_until == Terms::NO_END {
            true => None,
            false => Some(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX)),
        },
    }
}

/// Sends the processes that are known at the beginning of a connection. Returns how many these are.
async fn send_known_processes(
    reader: &mut Reader,
    writer: &mut Writer,
    processes: &Processes,
) -> io::Result<usize> {
    let known = lock(processes).clone();
    for process in known.iter().flatten() {
        if writer.send_process(process.as_fd()).await? {
            match reader.next().await? {
                ToClient::Joined => {}
                other => return Err(unexpected(other)),
            }
        }
    }
    Ok(known.len())
}

/// The writer of a connection. Dropped with the runtime of a program that ends, it sends the disconnect that its task
/// can no longer send.
struct DisconnectOnDrop<'a> {
    host: &'a SessionHost,
    writer: Writer,
    has_disconnected: bool,
}

impl<'a> DisconnectOnDrop<'a> {
    fn new(host: &'a SessionHost, writer: Writer) -> Self {
        Self {
            host,
            writer,
            has_disconnected: false,
        }
    }
}

impl Drop for DisconnectOnDrop<'_> {
    fn drop(&mut self) {
        if self.host.must_disconnect() && !self.has_disconnected {
            self.writer.try_send(&ToNode::Disconnect);
        }
    }
}

/// A node that does not take in a message in time counts as disconnected.
async fn within<T>(sent: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(TIMEOUT, sent).await {
        Ok(sent) => sent,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

impl fmt::Display for SessionHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}
