//! The session with one node of the watchdog, which reconnects whenever its connection ends.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::Instant;
use leasehold_core::watchdog::{Registrations, Terms};
use tokio::sync::{Notify, watch};

use super::refusal::{NodeRefusal, store_refusal, unexpected};
use super::transport::{self, Reader, Writer};
use super::{Processes, RegisteredLease};
use crate::Error;
use crate::ErrorKind;
use crate::clock::Clock;
use crate::driver::active_lease::ActiveLease;
use crate::driver::primitives::{Mutex, lock, report};
use crate::fork::Process;
use crate::watchdog::wire::{self, Hello, Refusal, Registration, Role, ToClient, ToNode};
use crate::watchdog::{Address, NodeState};

/// How long changes are collected if no task waits for them: a lease that is registered and unregistered in that
/// time is never sent, and the tasks that acquire locks pay next to nothing.
const LINGER: Duration = Duration::from_millis(10);

/// How many leases a frame has at most: with the longest names it is not too long.
const BATCH_MAX: usize = 100;

/// How long a node has to accept the connection, and to take in each message.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How many further processes may be sent before the first is acknowledged.
const PROCESSES_IN_FLIGHT: usize = 4;

/// The bounds of the interval between two attempts to connect.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);

pub(super) struct NodeSession {
    address: Address,
    hello: Hello,
    ca_file: Option<PathBuf>,
    linger: Duration,
    clock: Arc<dyn Clock>,
    registrations: Mutex<Registrations<RegisteredLease>>,
    /// Wakes the task that writes.
    wakeup: Notify,
    /// Notified whenever the node accepts the connection or acknowledges a batch, and after the end of a connection.
    progress: Notify,
    state: watch::Sender<NodeState>,
    connected: AtomicBool,
    /// Whether the next attempt to connect is expected to fail like the last one.
    fails_permanently: AtomicBool,
    closed: AtomicBool,
    /// Whether it has ended after it was closed.
    ended: AtomicBool,
    /// How many further processes it has acknowledged on this connection.
    joined: AtomicUsize,
    process: Process,
}

impl NodeSession {
    pub(super) fn new(
        address: Address,
        hello: Hello,
        ca_file: Option<PathBuf>,
        required: bool,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            address,
            hello,
            ca_file,
            linger: if required { Duration::ZERO } else { LINGER },
            clock,
            registrations: Mutex::default(),
            wakeup: Notify::new(),
            progress: Notify::new(),
            state: watch::Sender::new(NodeState::Connecting),
            connected: AtomicBool::new(false),
            fails_permanently: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            joined: AtomicUsize::new(0),
            process: Process::current(),
        }
    }

    pub(super) fn register(&self, number: u64, terms: Terms, lease: RegisteredLease) {
        self.change(|registrations| registrations.register(number, terms, lease));
    }

    pub(super) fn unregister(&self, number: u64) {
        self.change(|registrations| registrations.unregister(number));
    }

    fn change(&self, change: impl FnOnce(&mut Registrations<RegisteredLease>)) {
        let mut registrations = lock(&self.registrations);
        change(&mut registrations);
        if registrations.has_changes() {
            drop(registrations);
            self.wakeup.notify_one();
        }
    }

    /// Has the task find out what is to be sent.
    pub(super) fn wake(&self) {
        self.wakeup.notify_one();
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    pub(super) fn is_watched(&self, number: u64) -> bool {
        lock(&self.registrations).is_watched(number)
    }

    /// Waits until `enough` is true.
    pub(super) async fn wait(&self, enough: impl Fn(&Self) -> bool) {
        loop {
            let progress = self.progress.notified();
            if enough(self) {
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

    pub(super) fn fails_permanently(&self) -> bool {
        self.fails_permanently.load(Ordering::Acquire)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wakeup.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || !self.process.is_current()
    }

    /// Whether it is closed by the process that opened it, and not in a fork, which shares the connection.
    fn must_disconnect(&self) -> bool {
        self.closed.load(Ordering::Acquire) && self.process.is_current()
    }

    /// Keeps the node up to date until the session is closed.
    pub(super) async fn run(self: Arc<Self>, processes: Arc<Processes>) {
        self.stay_connected(&processes).await;
        self.ended.store(true, Ordering::Release);
        self.progress.notify_waiters();
    }

    async fn stay_connected(self: &Arc<Self>, processes: &Processes) {
        let mut interval = RETRY_MIN;
        while !self.is_closed() {
            let ended = self.serve(processes).await;
            let was_connected = self.connected.swap(false, Ordering::AcqRel);
            self.set_unwatched();
            if self.is_closed() {
                return;
            }
            if was_connected {
                interval = RETRY_MIN;
            }
            self.report(ended, was_connected);
            let end = self
                .clock
                .now()
                .after(interval.mul_f64(0.5 + fastrand::f64() / 2.0));
            tokio::select! {
                () = self.clock.sleep_until(end) => {}
                () = self.closing() => return,
            }
            interval = (interval * 2).min(RETRY_MAX);
        }
    }

    async fn closing(&self) {
        while !self.is_closed() {
            self.wakeup.notified().await;
        }
    }

    /// Collects changes for a moment.
    async fn linger(&self) {
        tokio::select! {
            () = tokio::time::sleep(self.linger) => {}
            () = self.closing() => {}
        }
    }

    /// Notes that the node does not watch the leases any more.
    fn set_unwatched(&self) {
        let unwatched = {
            let mut registrations = lock(&self.registrations);
            let numbers = registrations.disconnected();
            numbers
                .into_iter()
                .filter_map(|number| registrations.lease(number).cloned())
                .collect::<Vec<_>>()
        };
        let now = self.clock.now();
        for lease in unwatched
            .iter()
            .filter_map(|watched| watched.lease.upgrade())
        {
            lease.set_watched(false, now);
        }
    }

    fn gauge(&self) -> metrics::Gauge {
        metrics::gauge!("leasehold_watchdog_connected", "node" => self.address.to_string())
    }

    /// Logs and publishes the reason why the node does not watch this client.
    fn report(&self, ended: io::Error, was_connected: bool) {
        let refusal = NodeRefusal::of(&ended);
        let is_permanent = refusal.map(NodeRefusal::is_permanent);
        let is_local = matches!(self.address, Address::Unix(_));
        let nobody = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        let is_absent = is_local && !was_connected && nobody.contains(&ended.kind());
        self.fails_permanently
            .store(is_permanent.unwrap_or(is_absent), Ordering::Release);
        let state = match is_permanent {
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
        lock(&self.registrations).connected(self.clock.now());
        self.fails_permanently.store(false, Ordering::Release);
        self.connected.store(true, Ordering::Release);
        self.state.send_replace(NodeState::Connected);
        self.progress.notify_waiters();
        // The node does not know the leases that were registered before.
        self.wakeup.notify_one();
        report(|| {
            self.gauge().set(1.0);
            tracing::info!(node = %self, name, "connected to a watchdog node");
        });
        self.joined.store(sent, Ordering::Release);
        let ended = tokio::select! {
            ended = self.read(&mut reader) => ended,
            ended = self.write(DisconnectOnDrop::new(self, writer), processes, sent) => ended,
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
                ToClient::Joined => {
                    self.joined.fetch_add(1, Ordering::AcqRel);
                    self.wakeup.notify_one();
                }
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
        let watched: Vec<Arc<ActiveLease>> = {
            let mut registrations = lock(&self.registrations);
            let watched = registrations.acknowledged(batch, &numbers).into_iter();
            watched
                .filter_map(|number| registrations.lease(number)?.lease.upgrade())
                .collect()
        };
        let now = self.clock.now();
        for lease in watched {
            lease.set_watched(true, now);
        }
        self.progress.notify_waiters();
    }

    /// Sends what the node must know. The first `sent` processes are known to it.
    async fn write(
        &self,
        mut connection: DisconnectOnDrop<'_>,
        processes: &Processes,
        mut sent: usize,
    ) -> io::Result<()> {
        loop {
            let writer = &mut connection.writer;
            // A fork shares the connection, but the node watches the first process.
            self.process.check().map_err(io::Error::other)?;
            let all = self.send_processes(writer, processes, &mut sent);
            let all = all.await?;
            while all && let Some(changes) = self.next_changes() {
                within(writer.send(&ToNode::Changes(changes))).await?;
            }
            if self.is_closed() {
                within(writer.send(&ToNode::Disconnect)).await?;
                connection.has_disconnected = true;
                return Ok(());
            }
            if lock(&self.registrations).heartbeat(self.clock.now()) {
                within(writer.send(&ToNode::Heartbeat)).await?;
            }
            let Some(heartbeat) = lock(&self.registrations).next_heartbeat() else {
                return Ok(());
            };
            tokio::select! {
                () = self.wakeup.notified() => self.linger().await,
                () = self.clock.sleep_until(heartbeat) => {}
            }
        }
    }

    /// Sends the processes that were added since. Returns whether the node has all of them.
    async fn send_processes(
        &self,
        writer: &mut Writer,
        processes: &Processes,
        sent: &mut usize,
    ) -> io::Result<bool> {
        loop {
            let next = lock(processes).get(*sent).cloned();
            let Some(process) = next else {
                return Ok(true);
            };
            if sent.saturating_sub(self.joined.load(Ordering::Acquire)) >= PROCESSES_IN_FLIGHT {
                return Ok(false);
            }
            if !within(writer.send_process(process.as_fd())).await? {
                self.joined.fetch_add(1, Ordering::AcqRel);
            }
            *sent += 1;
        }
    }

    fn next_changes(&self) -> Option<wire::Changes> {
        let now = self.clock.now();
        let changes = lock(&self.registrations).next_changes(BATCH_MAX, now)?;
        let register = changes.register.into_iter();
        let register =
            register.map(|(number, terms, lease)| registration(number, terms, &lease, now));
        Some(wire::Changes {
            batch: changes.batch,
            register: register.collect(),
            unregister: changes.unregister,
        })
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
    for process in &known {
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
/// cannot send any more.
struct DisconnectOnDrop<'a> {
    session: &'a NodeSession,
    writer: Writer,
    has_disconnected: bool,
}

impl<'a> DisconnectOnDrop<'a> {
    fn new(session: &'a NodeSession, writer: Writer) -> Self {
        Self {
            session,
            writer,
            has_disconnected: false,
        }
    }
}

impl Drop for DisconnectOnDrop<'_> {
    fn drop(&mut self) {
        if self.session.must_disconnect() && !self.has_disconnected {
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

impl fmt::Display for NodeSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}
