//! The watchdog of a lock: what is reported of its nodes.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::path::Path;
use std::time::Duration;

use leasehold::watchdog::{NodeState, NodeStatus, Watchdog, WatchdogStatus, default_socket};
use leasehold::{Client, Error, ErrorKind};

use crate::args::LockWatchdogArgs;
use crate::exit::{self, Failure};
use crate::shell;

/// How long an exit waits for the first reply of a node, to report it.
const FIRST_REPLY_TIMEOUT: Duration = Duration::from_millis(200);

/// How long an exit waits until the nodes of the watchdog have forgotten this client.
const DISCONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// A failure to connect, with the command that starts a node if none listens.
pub(super) fn with_start_command(failure: Failure, watchdog: Option<&Watchdog>) -> Failure {
    match watchdog {
        Some(watchdog) if is_of_absent_node(&failure) => {
            failure.with_detail(&start_command(watchdog.socket()))
        }
        _ => failure,
    }
}

/// Whether a node of the watchdog did not reply, rather than refused this client.
fn is_of_absent_node(failure: &Failure) -> bool {
    let error = failure.library_error();
    let error = error.filter(|error| error.kind() == ErrorKind::NoWatchdog);
    let cause = error.and_then(|error| error.source()?.downcast_ref());
    cause.is_some_and(|cause: &Error| cause.kind() == ErrorKind::Unreachable)
}

/// How a node at a socket of this machine, or on another machine, is started.
pub(crate) fn start_command(socket: Option<&Path>) -> String {
    match socket {
        Some(socket) if socket == default_socket() => {
            "start one with leasehold watchdog".to_owned()
        }
        Some(socket) => {
            let address = shell::quote(&format!("unix:{}", socket.display()));
            format!("start one with leasehold watchdog --listen {address}")
        }
        None => "start one there with leasehold watchdog --listen tcp://HOST:PORT".to_owned(),
    }
}

/// Reports on stderr which nodes do not watch the lock, and when that changes, also with `--quiet`: the option has no
/// effect then.
pub(crate) struct WatchdogReport {
    status: WatchdogStatus,
    /// The nodes that were reported not to watch the lock.
    missing: BTreeSet<String>,
    required: bool,
}

impl WatchdogReport {
    pub(crate) fn new(client: &Client, args: &LockWatchdogArgs) -> Self {
        Self {
            status: client.watchdog_status(),
            missing: BTreeSet::new(),
            required: args.watchdog_required,
        }
    }

    /// Does work, and reports meanwhile.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let report = async {
            while let Some(change) = self.status.changed().await {
                self.report(&change);
            }
            std::future::pending().await
        };
        tokio::select! {
            biased;
            never = report => never,
            done = work => done,
        }
    }

    /// Reports also what a short run has not waited for, and disconnects the client: otherwise the nodes would take the
    /// end of this process for a death.
    pub(crate) async fn finish(mut self, client: &Client) {
        let is_connecting = |it: &NodeStatus| matches!(it.state, NodeState::Connecting);
        let first_replies = async {
            while self.status.nodes().iter().any(is_connecting)
                && let Some(change) = self.status.changed().await
            {
                self.report(&change);
            }
        };
        let _ = tokio::time::timeout(FIRST_REPLY_TIMEOUT, first_replies).await;
        let _ = client.shutdown(DISCONNECT_TIMEOUT).await;
    }

    fn report(&mut self, change: &NodeStatus) {
        let node = &change.node;
        match &change.state {
            NodeState::Connected if self.missing.remove(node) => {
                note!("leasehold: the watchdog at {node} watches the lock now");
            }
            NodeState::Unreachable(error) | NodeState::Refused(error) => {
                self.missing.insert(node.clone());
                note!("leasehold: {}; {}", reason(error), self.consequence());
            }
            _ => {}
        }
    }

    fn consequence(&self) -> &'static str {
        let nodes = self.status.nodes();
        let mut nodes = nodes.iter();
        if nodes.any(|it| matches!(it.state, NodeState::Connected)) {
            "another node watches the lock"
        } else if self.required {
            "the lock is not watched"
        } else {
            "the lock is not watched (--watchdog-required to insist)"
        }
    }
}

/// An error with its cause, which a user needs to see why a socket or a host does not reply.
fn reason(error: &Error) -> String {
    exit::with_options(match error.source() {
        Some(cause) => format!("{error} ({cause})"),
        None => error.to_string(),
    })
}
