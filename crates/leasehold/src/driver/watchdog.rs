//! Tells the nodes of the watchdog which leases this client has, and that it lives.
//!
//! What the renewer looks after is marked here, and nothing waits for that: a task for each node tells it in
//! batches. What comes and goes between two batches is never told.

mod session;
mod transport;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_core::{Instant, Name};

use self::session::NodeSession;
use super::clock::Clock;
use super::lease::active_lease::ActiveLease;
use super::sync::{JoinHandle, Mutex, Runtime, lock};
use crate::store::{About, Keyspace, Store};
use crate::watchdog::Watchdog;
use crate::watchdog::wire::{ClientSecret, Hello, Introduction, Role};
use crate::{Error, ErrorKind, Result};

/// The nodes that look after the leases of a client. None, if there is no watchdog.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchdogClient(Option<Arc<Nodes>>);

#[derive(Debug)]
struct Nodes {
    nodes: Vec<Arc<NodeSession>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    processes: Arc<Processes>,
    required: bool,
    clock: Arc<dyn Clock>,
}

/// Further processes that must be gone before this client is dead.
pub(super) type Processes = Mutex<Vec<Arc<OwnedFd>>>;

/// A lease as a node has it registered.
#[derive(Clone, Debug)]
pub(super) struct RegisteredLease {
    pub(super) name: Name,
    pub(super) lease: std::sync::Weak<ActiveLease>,
}

impl WatchdogClient {
    pub(crate) fn start(
        watchdog: Watchdog,
        store: &Arc<dyn Store>,
        clock: &Arc<dyn Clock>,
        runtime: &Runtime,
        (secret, space, about): (ClientSecret, &Keyspace, &About),
    ) -> Result<Self> {
        let introduction = Introduction {
            image: image()?,
            store: watchdog.store.unwrap_or_else(|| store.to_string()),
            namespace: space.namespace().to_string(),
            tenant: space.tenant().to_string(),
            host: about.host.clone(),
            pid: about.pid,
            program: about.program.clone(),
            label: about.label.clone(),
        };
        let hello = Hello {
            token: watchdog.token,
            role: Role::Client(secret, introduction),
        };
        let processes = Arc::<Processes>::default();
        let nodes = watchdog.nodes.into_iter().map(|address| {
            let tls = watchdog.ca_file.clone();
            let (hello, clock) = (hello.clone(), Arc::clone(clock));
            Arc::new(NodeSession::new(
                address,
                hello,
                tls,
                watchdog.required,
                clock,
            ))
        });
        let nodes: Vec<_> = nodes.collect();
        let tasks = nodes.iter().map(|node| {
            let (node, processes) = (Arc::clone(node), Arc::clone(&processes));
            runtime.spawn(node.run(processes))
        });
        Ok(Self(Some(Arc::new(Nodes {
            tasks: Mutex::new(tasks.collect()),
            nodes,
            processes,
            required: watchdog.required,
            clock: Arc::clone(clock),
        }))))
    }

    /// Registers a lease that the renewer renews, perhaps with other terms than before.
    pub(super) fn register(&self, lease: &Arc<ActiveLease>, now: Instant) {
        let Some(nodes) = &self.0 else { return };
        let terms = lease.lock().lease.watch_terms(now);
        for node in &nodes.nodes {
            let registered = RegisteredLease {
                name: lease.key.name.clone(),
                lease: Arc::downgrade(lease),
            };
            node.register(lease.id.number, terms, registered);
        }
    }

    /// Unregisters a lease that was lost, or is released now.
    pub(super) fn unregister(&self, lease: &ActiveLease) {
        for node in self.0.iter().flat_map(|nodes| &nodes.nodes) {
            node.unregister(lease.id.number);
        }
    }

    /// Waits until a node is there, if there is to be one.
    pub(crate) async fn ready(&self, patience: Duration) -> Result<()> {
        let is_there = |node: &NodeSession| node.is_connected();
        match &self.0 {
            Some(nodes) => {
                nodes
                    .any(patience, is_there, "no watchdog lets us in")
                    .await
            }
            None => Ok(()),
        }
    }

    /// Waits, where that is required, until a node looks after a lease.
    pub(crate) async fn watched(&self, lease: &ActiveLease, timeout: Duration) -> Result<()> {
        let is_watched = |node: &NodeSession| node.is_watched(lease.id.number);
        let message = "no watchdog looks after the lease";
        match self.0.as_ref().filter(|nodes| nodes.required) {
            Some(nodes) => nodes.any(timeout, is_watched, message).await,
            None => Ok(()),
        }
    }

    /// The client is not dead before this process is gone, too. Answers whether any node is to be told.
    pub(crate) fn add_process(&self, process: OwnedFd) -> bool {
        let Some(nodes) = &self.0 else { return false };
        lock(&nodes.processes).push(Arc::new(process));
        for node in &nodes.nodes {
            node.has_news();
        }
        true
    }

    /// Ends: what was marked is given back.
    pub(crate) fn close(&self) {
        let Some(nodes) = &self.0 else { return };
        for node in &nodes.nodes {
            node.close();
        }
    }
}

impl Nodes {
    /// Waits until a node is as it should be.
    async fn any(
        &self,
        patience: Duration,
        enough: impl Fn(&NodeSession) -> bool,
        message: &str,
    ) -> Result<()> {
        let end = self.clock.now().after(patience);
        let any = async {
            let waits = self.nodes.iter().map(|node| Box::pin(node.wait(&enough)));
            first(waits.collect()).await;
        };
        tokio::select! {
            biased;
            () = any => Ok(()),
            () = self.clock.sleep_until(end) => {
                let why = self.nodes.iter().find_map(|node| node.trouble());
                let error = Error::new(ErrorKind::Unreachable, message);
                Err(match why {
                    Some(why) => error.with_source(why),
                    None => error,
                })
            }
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // Those that were closed end by themselves when they have said so.
        for (node, task) in self.nodes.iter().zip(lock(&self.tasks).drain(..)) {
            if !node.is_closed() {
                task.abort();
            }
        }
    }
}

/// Waits for the first of some.
async fn first<F: Future<Output = ()> + Unpin>(mut futures: Vec<F>) {
    std::future::poll_fn(|context| {
        let done = |future: &mut F| std::pin::Pin::new(future).poll(context).is_ready();
        match futures.iter_mut().any(done) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

/// What tells this program from another that took its place in the same process.
///
/// It is made of where the kernel has put the program in memory, which it draws anew for each. So two copies
/// of this library in one program have the same, and a node that sees another knows that the first one is
/// gone.
fn image() -> Result<[u8; 16]> {
    static IMAGE: OnceLock<[u8; 16]> = OnceLock::new();
    if let Some(image) = IMAGE.get() {
        return Ok(*image);
    }
    let drawn = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let mut image = [0; 16];
    if drawn.is_empty() {
        getrandom::fill(&mut image).map_err(|error| {
            let message = "the system has no random numbers for the watchdog";
            Error::new(ErrorKind::Unsupported, message).with_source(error)
        })?;
    } else {
        for (half, bytes) in image.chunks_exact_mut(8).enumerate() {
            // What was drawn itself is nobody's business.
            let mut hasher = DefaultHasher::new();
            (half, &drawn).hash(&mut hasher);
            bytes.copy_from_slice(&hasher.finish().to_be_bytes());
        }
    }
    Ok(*IMAGE.get_or_init(|| image))
}

impl fmt::Display for WatchdogClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, node) in self.0.iter().flat_map(|nodes| &nodes.nodes).enumerate() {
            let comma = if nth == 0 { "" } else { ", " };
            write!(f, "{comma}{node}")?;
        }
        Ok(())
    }
}
