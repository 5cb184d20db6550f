//! What one node is told, over a connection that is made again whenever it ends.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::Instant;
use leasehold_core::watchdog::{Changes, Registrations, Terms};
use tokio::sync::Notify;

use super::transport::{self, Reader, Writer};
use super::{Processes, RegisteredLease};
use crate::Error;
use crate::ErrorKind;
use crate::driver::clock::Clock;
use crate::driver::lease::active_lease::ActiveLease;
use crate::driver::sync::{Mutex, lock, report};
use crate::process::Process;
use crate::watchdog::Address;
use crate::watchdog::wire::{self, Hello, Refusal, Registration, ToClient, ToNode};

/// How long news are collected, where nobody waits for them: what comes and goes in that time is never told,
/// and telling costs the tasks that take locks next to nothing.
const LINGER: Duration = Duration::from_millis(10);

/// How many leases a frame is about: with the longest names it is not too long.
const BATCH_MAX: usize = 100;

/// How long a node has to let us in, to take what is said to it, and to acknowledge it.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many further processes may be sent before the first is answered for.
const PROCESSES_OPEN: usize = 4;

/// The pause before the first try to connect again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

pub(super) struct NodeSession {
    address: Address,
    hello: Hello,
    ca_file: Option<PathBuf>,
    linger: Duration,
    clock: Arc<dyn Clock>,
    registry: Mutex<Registrations<RegisteredLease>>,
    news: Notify,
    /// Told whenever it connects or acknowledges something.
    better: Notify,
    connected: AtomicBool,
    closed: AtomicBool,
    /// How many further processes it has answered for on this connection.
    joined: AtomicUsize,
    trouble: Mutex<Option<Error>>,
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
            registry: Mutex::default(),
            news: Notify::new(),
            better: Notify::new(),
            connected: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            joined: AtomicUsize::new(0),
            trouble: Mutex::new(None),
            process: Process::current(),
        }
    }

    pub(super) fn register(&self, number: u64, terms: Terms, lease: RegisteredLease) {
        let mut registry = lock(&self.registry);
        registry.want(number, terms, lease);
        if registry.has_news() {
            drop(registry);
            self.news.notify_one();
        }
    }

    pub(super) fn unregister(&self, number: u64) {
        let mut registry = lock(&self.registry);
        registry.leave(number);
        if registry.has_news() {
            drop(registry);
            self.news.notify_one();
        }
    }

    pub(super) fn has_news(&self) {
        self.news.notify_one();
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    pub(super) fn is_watched(&self, number: u64) -> bool {
        lock(&self.registry).is_watched(number)
    }

    /// Waits until something is so.
    pub(super) async fn wait(&self, so: impl Fn(&Self) -> bool) {
        loop {
            let better = self.better.notified();
            if so(self) {
                return;
            }
            better.await;
        }
    }

    /// Why it does not look after us.
    pub(super) fn trouble(&self) -> Option<Error> {
        lock(&self.trouble).clone()
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.news.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || !self.process.is_current()
    }

    /// Keeps the node told until it is closed.
    pub(super) async fn run(self: Arc<Self>, processes: Arc<Processes>) {
        let mut pause = PAUSES.0;
        while !self.is_closed() {
            let ended = self.serve(&processes).await;
            let was_there = self.connected.swap(false, Ordering::AcqRel);
            self.left_alone();
            if self.is_closed() {
                return;
            }
            if was_there {
                pause = PAUSES.0;
            }
            self.report(ended, was_there);
            let end = self
                .clock
                .now()
                .after(pause.mul_f64(0.5 + fastrand::f64() / 2.0));
            tokio::select! {
                () = self.clock.sleep_until(end) => {}
                () = self.closing() => return,
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    async fn closing(&self) {
        while !self.is_closed() {
            self.news.notified().await;
        }
    }

    /// Nobody looks after the leases any more; who wakes from a pause now does not know that yet.
    fn left_alone(&self) {
        let alone = {
            let mut registry = lock(&self.registry);
            let numbers = registry.disconnected();
            numbers
                .into_iter()
                .filter_map(|number| registry.subject(number).cloned())
                .collect::<Vec<_>>()
        };
        let now = self.clock.now();
        for held in alone.iter().filter_map(|subject| subject.lease.upgrade()) {
            held.set_watched(false, now);
        }
    }

    fn report(&self, ended: io::Error, was_there: bool) {
        let error = Error::new(ErrorKind::Unreachable, format!("the watchdog at {self}"));
        let error = error.with_source(ended);
        let known = lock(&self.trouble).replace(error.clone()).is_some();
        report(|| {
            metrics::gauge!("leasehold_watchdog_connected", "node" => self.address.to_string())
                .set(0.0);
            let source = std::error::Error::source(&error).map(ToString::to_string);
            let why = source.unwrap_or_default();
            if known && !was_there {
                tracing::debug!(node = %self, why, "still no watchdog");
            } else {
                tracing::warn!(node = %self, why, "no watchdog; leases are renewed as without");
            }
        });
    }

    /// One connection, from its beginning to its end. Answers why it ended.
    async fn serve(self: &Arc<Self>, processes: &Processes) -> io::Error {
        let connected = async {
            let (mut ear, mut mouth) =
                transport::connect(&self.address, self.ca_file.as_deref()).await?;
            mouth.say(&ToNode::Hello(self.hello.clone())).await?;
            match ear.next().await? {
                ToClient::Welcome { node, .. } => Ok((node, ear, mouth)),
                ToClient::Refused(why) => Err(refused(why)),
                _ => Err(io::ErrorKind::InvalidData.into()),
            }
        };
        let (name, ear, mouth) = match tokio::time::timeout(PATIENCE, connected).await {
            Ok(Ok(line)) => line,
            Ok(Err(error)) => return error,
            Err(_) => return io::ErrorKind::TimedOut.into(),
        };
        lock(&self.registry).connected(self.clock.now());
        *lock(&self.trouble) = None;
        self.connected.store(true, Ordering::Release);
        self.better.notify_waiters();
        // What was wanted before is news to it.
        self.news.notify_one();
        report(|| {
            metrics::gauge!("leasehold_watchdog_connected", "node" => self.address.to_string())
                .set(1.0);
            tracing::info!(node = %self, name, "a watchdog looks after our leases");
        });
        self.joined.store(0, Ordering::Release);
        let hear = self.hear(ear);
        let speak = self.speak(mouth, processes);
        let ended = tokio::select! {
            ended = hear => ended,
            ended = speak => ended,
        };
        ended
            .err()
            .unwrap_or_else(|| io::ErrorKind::ConnectionAborted.into())
    }

    async fn hear(&self, mut ear: Reader) -> io::Result<()> {
        loop {
            match ear.next().await? {
                ToClient::Acknowledged { batch, refused } => self.acknowledged(batch, &refused),
                ToClient::Joined(refused) => {
                    if let Some(why) = refused {
                        report(|| tracing::warn!(node = %self, %why, "a process is not watched"));
                    }
                    self.joined.fetch_add(1, Ordering::AcqRel);
                    self.news.notify_one();
                }
                ToClient::Refused(why) => return Err(refused(why)),
                ToClient::Closing => return Err(io::Error::other("it stops")),
                ToClient::Welcome { .. } | ToClient::Kept(_) | ToClient::Status { .. } => {}
            }
        }
    }

    fn acknowledged(&self, batch: u64, refused: &[(u64, Refusal)]) {
        if let Some((_, why)) = refused.first() {
            let count = refused.len();
            report(|| tracing::warn!(node = %self, count, %why, "leases are not watched"));
        }
        let numbers: Vec<_> = refused.iter().map(|(number, _)| *number).collect();
        let taken: Vec<Arc<ActiveLease>> = {
            let mut registry = lock(&self.registry);
            let taken = registry.acknowledged(batch, &numbers).into_iter();
            taken
                .filter_map(|number| registry.subject(number)?.lease.upgrade())
                .collect()
        };
        let now = self.clock.now();
        for held in taken {
            held.set_watched(true, now);
        }
        self.better.notify_waiters();
    }

    async fn speak(&self, mut mouth: Writer, processes: &Processes) -> io::Result<()> {
        let mut handed = 0;
        loop {
            // A fork shares the connection, and is another process than the one that is watched.
            self.process.check().map_err(io::Error::other)?;
            self.tell_processes(&mut mouth, processes, &mut handed)
                .await?;
            while let Some(changes) = self.next_changes() {
                within(mouth.say(&ToNode::Changes(changes))).await?;
            }
            if self.is_closed() {
                return within(mouth.say(&ToNode::Farewell)).await;
            }
            if lock(&self.registry).beat(self.clock.now()) {
                within(mouth.say(&ToNode::Beat)).await?;
            }
            let Some(beat) = lock(&self.registry).next_beat() else {
                return Ok(());
            };
            tokio::select! {
                () = self.news.notified() => tokio::time::sleep(self.linger).await,
                () = self.clock.sleep_until(beat) => {}
            }
        }
    }

    async fn tell_processes(
        &self,
        mouth: &mut Writer,
        processes: &Processes,
        handed: &mut usize,
    ) -> io::Result<()> {
        loop {
            let open = handed.saturating_sub(self.joined.load(Ordering::Acquire));
            let next = lock(processes).get(*handed).cloned();
            let Some(process) = next.filter(|_| open < PROCESSES_OPEN) else {
                return Ok(());
            };
            within(mouth.hand(process.as_fd())).await?;
            *handed += 1;
        }
    }

    fn next_changes(&self) -> Option<wire::Changes> {
        let now = self.clock.now();
        let changes = lock(&self.registry).next_changes(BATCH_MAX, now)?;
        let Changes {
            batch,
            register,
            unregister,
        } = changes;
        let register = register.into_iter();
        let register =
            register.map(|(number, terms, subject)| registration(number, terms, &subject, now));
        Some(wire::Changes {
            batch,
            register: register.collect(),
            unregister,
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
        patience_ms: millis(terms.patience),
        keep_ms: match terms.keep_until == Terms::NO_END {
            true => None,
            false => Some(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX)),
        },
    }
}

fn refused(why: Refusal) -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("it refused us: {why}"),
    )
}

/// A node that is stopped takes nothing, and is none.
async fn within<T>(said: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(PATIENCE, said).await {
        Ok(said) => said,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

impl fmt::Display for NodeSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl fmt::Debug for NodeSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeSession")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
