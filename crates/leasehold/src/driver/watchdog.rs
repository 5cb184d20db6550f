//! Registers the leases of this client with the nodes of the watchdog, and sends them heartbeats.
//!
//! The renewer registers its leases here without waiting: a task for each node sends the changes in batches. A
//! lease that is registered and unregistered between two batches is never sent.

mod refusal;
mod session;
mod transport;

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use leasehold_core::{Instant, Name};
use ring::digest::{SHA256, digest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::session::{Session, SessionHost};
use super::active_lease::ActiveLease;
use super::primitives::{JoinHandle, Mutex, Runtime, lock};
use crate::clock::Clock;
use crate::store::{ClientInfo, Keyspace, Store};
use crate::watchdog::wire::{self, ClientSecret, Hello, Role};
use crate::watchdog::{Watchdog, WatchdogStatus};
use crate::{Error, ErrorKind, Result};

/// How long a client that requires its watchdog waits at its start where no node listens or all refuse it.
const START_TIMEOUT: Duration = Duration::from_millis(200);

/// How long a client that ends waits for a node to forget it.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

const NOT_ACCEPTED: &str = "no watchdog node accepts this client";

/// The nodes of the watchdog of a client. `None`: it has no watchdog.
#[derive(Clone, Default)]
pub(crate) struct WatchdogClient(Option<Arc<Nodes>>);

struct Nodes {
    nodes: Vec<Arc<SessionHost>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    processes: Arc<Processes>,
    required: bool,
    clock: Arc<dyn Clock>,
}

/// Further processes that must have ended before this client counts as dead, by number. `None`: it has ended.
pub(super) type Processes = Mutex<Vec<Option<Arc<OwnedFd>>>>;

/// A lease as a node has it registered.
#[derive(Clone)]
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
        (secret, space, info): (ClientSecret, &Keyspace, &ClientInfo),
    ) -> Result<Self> {
        let client_info = wire::ClientInfo {
            process_nonce: process_nonce()?,
            store: watchdog.store.unwrap_or_else(|| store.to_string()),
            namespace: space.namespace().to_string(),
            tenant: space.tenant().to_string(),
            host: info.host.clone(),
            pid: info.pid,
            program: info.program.clone(),
            label: info.label.clone(),
        };
        let hello = Hello {
            token: watchdog.token,
            role: Role::Client(secret, client_info),
        };
        let required = watchdog.required;
        let session = |address| {
            let (hello, ca_file) = (hello.clone(), watchdog.ca_file.clone());
            let clock = Arc::clone(clock);
            Arc::new(SessionHost::new(address, hello, ca_file, required, clock))
        };
        let nodes: Vec<_> = watchdog.nodes.into_iter().map(session).collect();
        let processes = Arc::<Processes>::default();
        let tasks = nodes
            .iter()
            .map(|node| runtime.spawn(Arc::clone(node).run(Arc::clone(&processes))));
        Ok(Self(Some(Arc::new(Nodes {
            tasks: Mutex::new(tasks.collect()),
            nodes,
            processes,
            required,
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

    /// Waits until the client is connected to a node, if it has a watchdog.
    pub(crate) async fn ready(&self, timeout: Duration) -> Result<()> {
        let Some(nodes) = &self.0 else { return Ok(()) };
        nodes
            .any(timeout, Session::is_connected, NOT_ACCEPTED)
            .await
    }

    /// The same at the start of a client that requires its watchdog, which fails after [`START_TIMEOUT`] if no node can
    /// be expected to accept it.
    pub(crate) async fn ready_at_start(&self, timeout: Duration) -> Result<()> {
        let Some(nodes) = &self.0 else { return Ok(()) };
        tokio::select! {
            biased;
            ready = nodes.any(timeout, Session::is_connected, NOT_ACCEPTED) => ready,
            () = nodes.all_failed_permanently() => Err(nodes.error(NOT_ACCEPTED)),
        }
    }

    /// The connections to the nodes.
    pub(crate) fn status(&self) -> WatchdogStatus {
        let nodes = self.0.iter().flat_map(|nodes| &nodes.nodes);
        WatchdogStatus(nodes.map(|node| (node.to_string(), node.state())).collect())
    }

    /// Waits until a node has registered a lease, if the watchdog is required.
    pub(crate) async fn watched(&self, lease: &ActiveLease, timeout: Duration) -> Result<()> {
        let is_watched = |session: &Session| session.is_watched(lease.id.number);
        let message = "no watchdog node has registered the lease";
        match self.0.as_ref().filter(|nodes| nodes.required) {
            Some(nodes) => nodes.any(timeout, is_watched, message).await,
            None => Ok(()),
        }
    }

    /// Has the nodes wait for the end of another process before this client counts as dead. Returns whether
    /// there is a node.
    pub(crate) fn add_process(&self, process: OwnedFd) -> bool {
        let Some(nodes) = &self.0 else { return false };
        let mut processes = lock(&nodes.processes);
        for known in &mut *processes {
            known.take_if(|known| has_ended(known));
        }
        processes.push(Some(Arc::new(process)));
        drop(processes);
        for node in &nodes.nodes {
            node.change(Session::add_process);
        }
        true
    }

    /// Disconnects, after all leases were unregistered, and waits until the nodes have forgotten this client. Without
    /// the wait, a process that ends immediately could count as dead.
    pub(crate) async fn disconnect(&self) {
        let Some(nodes) = &self.0 else { return };
        self.close();
        let ends = nodes.nodes.iter().map(|node| node.wait(Session::has_ended));
        let _ = tokio::time::timeout(DISCONNECT_TIMEOUT, join_all(ends)).await;
    }

    /// Disconnects, after all leases were unregistered.
    pub(crate) fn close(&self) {
        let Some(nodes) = &self.0 else { return };
        for node in &nodes.nodes {
            node.change(Session::close);
        }
    }
}

impl Nodes {
    /// Waits until `enough` is true of a node.
    async fn any(
        &self,
        timeout: Duration,
        enough: impl Fn(&Session) -> bool,
        message: &str,
    ) -> Result<()> {
        let end = self.clock.now().after(timeout);
        let any = async {
            let waits = self.nodes.iter().map(|node| Box::pin(node.wait(&enough)));
            select_all(waits).await;
        };
        tokio::select! {
            biased;
            () = any => Ok(()),
            () = self.clock.sleep_until(end) => Err(self.error(message)),
        }
    }

    fn error(&self, message: &str) -> Error {
        let cause = self.nodes.iter().find_map(|node| node.last_error());
        let error = Error::new(ErrorKind::NoWatchdog, message);
        match cause {
            Some(cause) => error.with_source(cause),
            None => error,
        }
    }

    /// Waits until every node has failed permanently, and at least [`START_TIMEOUT`].
    async fn all_failed_permanently(&self) {
        let start = self.clock.now().after(START_TIMEOUT);
        self.clock.sleep_until(start).await;
        while !self
            .nodes
            .iter()
            .all(|node| node.is(Session::fails_permanently))
        {
            let nodes = self.nodes.iter();
            join_all(nodes.map(|node| node.wait(Session::fails_permanently))).await;
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // The task of a closed session ends by itself, after its last message.
        for (node, task) in self.nodes.iter().zip(lock(&self.tasks).drain(..)) {
            if !node.is_closed() {
                task.abort();
            }
        }
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut pidfd = [PollFd::new(process, PollFlags::IN)];
    poll(&mut pidfd, Some(&Timespec::default())).is_ok_and(|readable| readable > 0)
}

/// A number that distinguishes this program from another that replaced it in the same process.
///
/// It is the hash of where the kernel has placed the program in memory, which is random for each. So all
/// copies of this library in one program have the same number, and a node that receives another number knows
/// that the first program has ended. The hash keeps the kernel's random bytes undisclosed.
fn process_nonce() -> Result<[u8; 16]> {
    static NONCE: OnceLock<[u8; 16]> = OnceLock::new();
    if let Some(nonce) = NONCE.get() {
        return Ok(*nonce);
    }
    let auxv = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let nonce = match digest(&SHA256, &auxv).as_ref().first_chunk() {
        Some(hash) if !auxv.is_empty() => *hash,
        _ => crate::random::bytes("the watchdog")?,
    };
    Ok(*NONCE.get_or_init(|| nonce))
}

#[cfg(all(test, target_os = "linux", not(feature = "__shuttle")))]
mod tests {
    use std::process::Command;

    use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

    use super::*;
    use crate::clock::BootClock;

    #[test]
    fn the_descriptor_of_a_process_that_has_ended_is_closed() {
        let processes = Arc::<Processes>::default();
        let client = WatchdogClient(Some(Arc::new(Nodes {
            nodes: Vec::new(),
            tasks: Mutex::new(Vec::new()),
            processes: Arc::clone(&processes),
            required: false,
            clock: Arc::new(BootClock),
        })));
        let open = |pid| pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        assert!(client.add_process(open(Pid::from_child(&child))));
        child.wait().unwrap();
        assert!(client.add_process(open(getpid())));
        assert_eq!(lock(&processes).iter().flatten().count(), 1);
    }
}
