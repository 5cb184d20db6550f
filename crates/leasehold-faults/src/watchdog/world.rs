//! The world of a scenario: a server, nodes of the watchdog, and a client that waits for locks.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use leasehold::__private::{observer::Observer, wire::ClientStatus};
use leasehold::Client;
use leasehold_testkit::{Helper, RedisServer, eventually};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::clock::{self, MILLI, Nanos};
use crate::history::{
    self, Event, Fault, FaultEvent, HoldEvent, Journal, LeaseState, Note, ObservationKind,
};
use crate::holder;
use crate::node::NodeConfig;
use crate::scenario::{Outcome, Run};
use crate::world::Recording;

/// How long something may take on a machine that is busy with other scenarios.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// The ttl of the client that waits for locks.
const TTL_MS: u64 = 30_000;

/// How often a server is asked for a reply, and the shortest time without one that is recorded: much less than the time
/// that a holder has for a renewal.
const INTERVAL: Duration = Duration::from_millis(20);
const SILENCE: Nanos = 300 * MILLI;

/// A server, its history, and a client of this process that waits for locks.
pub(super) struct World {
    pub(super) server: RedisServer,
    pub(super) client: Client,
    pub(super) recording: Recording,
    waiters: Arc<Journal>,
    runtime: Runtime,
    /// The number of the next holder process, and of the next waiter.
    next: AtomicU64,
}

impl World {
    pub(super) fn new() -> Self {
        let server = RedisServer::start();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let client = Client::builder().ttl(Duration::from_millis(TTL_MS));
        let client = runtime.block_on(client.connect(&server.url())).unwrap();
        let recording = Recording::start();
        let waiters = Journal::open(&history::file_of(&recording.directory(), "waiters"));
        waiters.record(&Event::Started {
            ttl_ms: TTL_MS,
            handoff: true,
        });
        record_silence(&server, Arc::clone(&recording.journal));
        Self {
            server,
            client,
            recording,
            waiters: Arc::new(waiters),
            runtime,
            next: AtomicU64::new(0),
        }
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Starts a node on this machine.
    pub(super) fn node(&self, name: &str) -> Node {
        Node::start(self.node_config(name))
    }

    /// The settings of a node on this machine.
    pub(super) fn node_config(&self, name: &str) -> NodeConfig {
        let socket = self.recording.directory().join(format!("{name}.sock"));
        NodeConfig {
            listen: vec![format!("unix:{}", socket.display())],
            url: self.server.url(),
            store: None,
            tls: None,
        }
    }

    /// A waiter that is in the queue of a lock, which is held.
    pub(super) fn waiter(&self, name: &str) -> Waiter {
        let waiter = self.wait(name);
        let queue = format!("{}:queue", record(name));
        eventually(TIMEOUT, || {
            self.server.try_cli(&["LLEN", &queue]).as_deref() == Ok("2")
        });
        waiter
    }

    /// Waits for a lock, and releases it when it is granted.
    pub(super) fn wait(&self, name: &str) -> Waiter {
        let (hold, journal) = (self.next_number(), Arc::clone(&self.waiters));
        let mutex = self.client.mutex(name).unwrap();
        let request = HoldEvent::Requested {
            name: name.to_owned(),
            fixed: false,
            reenters: None,
        };
        journal.record_hold(hold, request);
        let (sender, granted) = channel();
        let task = self.runtime.spawn(async move {
            let guard = mutex.lock().await.unwrap();
            let before = clock::now();
            let at = journal.record_hold(hold, holder::granted(&guard, TTL_MS));
            let state = LeaseState::Held(guard.deadline().as_nanos());
            let observed = HoldEvent::Observed {
                before,
                state,
                kind: ObservationKind::Check,
            };
            journal.record_hold(hold, observed);
            let _ = sender.send(at);
            journal.record_hold(hold, HoldEvent::Releasing);
            let _ = guard.release().await;
        });
        Waiter { granted, task }
    }

    /// Checks the history so far, and adds its violations to an outcome.
    pub(super) fn check(&self, run: &Run, watched: bool, outcome: &mut Outcome) {
        let world = history::WorldInfo {
            servers: 1,
            watched,
            ..history::WorldInfo::default()
        };
        outcome
            .report
            .merge(self.recording.check(run, "", false, world));
    }
}

/// Records each time in which a server does not reply to anybody, until it ends.
fn record_silence(server: &RedisServer, journal: Arc<Journal>) {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    thread::spawn(move || {
        let mut last = clock::now();
        let mut reply = *b"+PONG\r\n";
        while stream.write_all(b"PING\r\n").is_ok() && stream.read_exact(&mut reply).is_ok() {
            let now = clock::now();
            if now - last > SILENCE {
                let time = (last, now);
                let event = FaultEvent::new(Fault::SlowServer, None, time, time);
                journal.record(&Note::Fault(event));
            }
            last = now;
            thread::sleep(INTERVAL);
        }
    });
}

/// The record of a lock.
pub(super) fn record(name: &str) -> String {
    format!("leasehold:{{default:{name}}}")
}

/// A waiter for a lock, in this process.
pub(super) struct Waiter {
    granted: Receiver<Nanos>,
    task: JoinHandle<()>,
}

impl Waiter {
    /// When the lock was granted to it. `None`: it takes longer.
    pub(super) fn granted_within(&self, timeout: Duration) -> Option<Nanos> {
        match self.granted.recv_timeout(timeout) {
            Ok(at) => Some(at),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("a waiter has failed"),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // While it waits, this leaves the queue. While it releases, the guard does the rest.
        self.task.abort();
    }
}

/// A node in a process of its own.
pub(super) struct Node {
    config: NodeConfig,
    pub(super) helper: Helper,
}

impl Node {
    /// Starts a node that listens at a socket first.
    pub(super) fn start(config: NodeConfig) -> Self {
        let helper = launch(&config);
        Self { config, helper }
    }

    /// Starts it again after its end.
    pub(super) fn restart(&mut self) {
        self.helper = launch(&self.config);
    }

    /// Its address for clients of this machine.
    pub(super) fn address(&self) -> String {
        self.config.listen[0].clone()
    }

    /// The clients that it monitors. None while it does not reply.
    pub(super) fn clients(&self) -> Vec<ClientStatus> {
        let socket = self.config.listen[0].trim_start_matches("unix:");
        let status = Observer::connect(Path::new(socket)).and_then(|mut node| node.status());
        status.unwrap_or_default()
    }

    /// Ends it in good order.
    pub(super) fn end(&mut self) {
        self.helper.send("stop");
        eventually(TIMEOUT, || self.helper.ended().is_some());
    }
}

fn launch(config: &NodeConfig) -> Helper {
    let helper = Helper::start();
    let config = serde_json::to_string(config).unwrap();
    assert_eq!(helper.request(&format!("node {config}")), "ready");
    helper
}

/// A duration in milliseconds.
pub(super) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
