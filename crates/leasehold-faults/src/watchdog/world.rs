//! What a case is played in: a server, its nodes, and those who wait.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::Client;
use leasehold::watchdog::{ClientStatus, Observer};
use leasehold_testkit::RedisServer;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::actor::{Actor, PATIENCE, wait_for};
use super::certs::Certs;
use super::waiter::Waiter;

/// A server, and a client of this process that waits for locks.
pub(super) struct World {
    pub(super) server: RedisServer,
    pub(super) runtime: Runtime,
    pub(super) client: Client,
    pub(super) folder: TempDir,
}

impl World {
    pub(super) fn new() -> Result<Self, String> {
        let server = RedisServer::start();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let client = runtime.block_on(Client::builder().connect(&server.url()));
        Ok(Self {
            client: client.map_err(|error| error.to_string())?,
            server,
            runtime,
            folder: tempfile::tempdir().map_err(|error| error.to_string())?,
        })
    }

    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    /// Starts a node on this machine.
    pub(super) fn node(&self, name: &str) -> Result<Node, String> {
        Node::start(self.plan(name))
    }

    /// How a node is started that listens at a socket of its own.
    pub(super) fn plan(&self, name: &str) -> Plan {
        Plan {
            socket: self.folder.path().join(format!("{name}.sock")),
            tcp: None,
            url: self.url(),
            store: None,
        }
    }

    /// Waits for a lock, which is waited for when this returns.
    pub(super) fn waits(&self, name: &str) -> Result<Waiter, String> {
        let waiter = Waiter::start(self, name)?;
        let queue = format!("{}:queue", record(name));
        wait_for("nobody is in the queue", || {
            self.server.try_cli(&["LLEN", &queue]).as_deref() == Ok("2")
        })?;
        Ok(waiter)
    }
}

/// The record of a lock.
pub(super) fn record(name: &str) -> String {
    format!("leasehold:{{default:{name}}}")
}

/// How a node is started.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) socket: PathBuf,
    /// The port where it also listens, its certificates and its token.
    pub(super) tcp: Option<(u16, std::sync::Arc<Certs>)>,
    pub(super) url: String,
    pub(super) store: Option<String>,
}

/// What lets clients in at nodes that are reached over TCP.
pub(super) const TOKEN: &str = "a-token-of-the-campaign";

/// A node in a process of its own.
pub(super) struct Node {
    plan: Plan,
    pub(super) actor: Actor,
}

impl Node {
    pub(super) fn start(plan: Plan) -> Result<Self, String> {
        let actor = launch(&plan)?;
        Ok(Self { plan, actor })
    }

    /// Its address for clients of this machine.
    pub(super) fn address(&self) -> String {
        format!("unix:{}", self.plan.socket.display())
    }

    pub(super) fn socket(&self) -> &Path {
        &self.plan.socket
    }

    /// The clients that it looks after. None while it does not answer.
    pub(super) fn clients(&self) -> Vec<ClientStatus> {
        let observed = Observer::connect(self.socket()).and_then(|mut node| node.status());
        observed.unwrap_or_default()
    }

    /// Starts it again, once it has ended.
    pub(super) fn start_again(&mut self) -> Result<(), String> {
        self.actor = launch(&self.plan)?;
        Ok(())
    }

    /// Has it end in good order.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.actor.order("stop")?;
        self.actor.ends()
    }
}

fn launch(plan: &Plan) -> Result<Actor, String> {
    let mut args = vec!["watchdog-node".to_owned()];
    let mut add = |name: &str, value: &str| args.extend([name.to_owned(), value.to_owned()]);
    add("--listen", &format!("unix:{}", plan.socket.display()));
    add("--url", &plan.url);
    if let Some(store) = &plan.store {
        add("--store", store);
    }
    if let Some((port, certs)) = &plan.tcp {
        add("--listen", &format!("tcp://127.0.0.1:{port}"));
        add("--cert", &certs.cert.to_string_lossy());
        add("--key", &certs.key.to_string_lossy());
        add("--token", TOKEN);
    }
    let actor = Actor::start(&args)?;
    match actor.line(PATIENCE)?.as_deref() {
        Some("ready") => Ok(actor),
        other => Err(format!("a node said {other:?}")),
    }
}

/// So long, in milliseconds.
pub(super) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
