//! The session of a client with one node.

use std::time::Duration;

use super::registrations::{Changes, Registrations};
use super::terms::Terms;
use crate::contention::upper_half;
use crate::time::Instant;

/// How long changes are collected if no task waits for them: a lease that is registered and unregistered in that
/// time is never sent, and the tasks that acquire locks pay next to nothing.
const LINGER: Duration = Duration::from_millis(10);

/// How many leases a batch has at most: with the longest names its frame is not too long.
const BATCH_MAX: usize = 100;

/// How many further processes may be sent before the first is acknowledged.
const PROCESSES_IN_FLIGHT: usize = 4;

/// The bounds of the interval between two attempts to connect.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// The session of a client with one node, over all its connections.
///
/// It is a state machine without I/O. Its host does what [`NodeSession::poll`] returns, passes the results and the
/// messages of the node in, and polls again after each of them, after every other call and at
/// [`NodeSession::next_timeout`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeSession<T> {
    registrations: Registrations<T>,
    connection: Connection,
    /// How many further processes must have ended before the client counts as dead.
    processes: usize,
    linger: Duration,
    /// Whether the next changes are collected first.
    lingers: bool,
    closed: bool,
    /// The interval between the next failed attempt to connect and the one after it.
    retry: Duration,
    fails_permanently: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Connection {
    /// There is none. The next attempt is at this instant.
    Closed(Instant),
    /// The host connects.
    Opening,
    /// The node has accepted it.
    Open {
        /// How many further processes were sent.
        sent: usize,
        /// How many of them the node has acknowledged.
        joined: usize,
    },
    /// The node was requested to forget the client, and closes the connection then.
    Closing,
    /// There is none, and will be none.
    Ended,
}

/// What the host does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionAction<T> {
    /// Connects: [`NodeSession::connected`] or [`NodeSession::disconnected`].
    Connect,
    /// Sends the further process with this number, from 0.
    Process(usize),
    /// Sends these changes.
    Changes(Changes<T>),
    /// Sends a heartbeat.
    Heartbeat,
    /// Requests that the node forgets the client.
    Disconnect,
    /// Calls [`NodeSession::end_pause`] after this time, or when the session is closed.
    Pause(Duration),
    /// Waits.
    Wait,
    /// Nothing more: the session has ended.
    End,
}

/// A session that sends changes immediately: tasks wait for them.
impl<T> Default for NodeSession<T> {
    fn default() -> Self {
        Self {
            registrations: Registrations::default(),
            connection: Connection::Closed(Instant::default()),
            processes: 0,
            linger: Duration::ZERO,
            lingers: false,
            closed: false,
            retry: RETRY_MIN,
            fails_permanently: false,
        }
    }
}

impl<T: Clone> NodeSession<T> {
    /// A session that collects changes for a moment, since no task waits for them.
    #[must_use]
    pub fn lingering() -> Self {
        Self {
            linger: LINGER,
            ..Self::default()
        }
    }

    /// Registers a lease, or changes its terms. Returns whether there is something to send.
    pub fn register(&mut self, number: u64, terms: Terms, lease: T) -> bool {
        self.registrations.register(number, terms, lease);
        self.registrations.has_changes()
    }

    /// Unregisters a lease. Returns whether there is something to send.
    pub fn unregister(&mut self, number: u64) -> bool {
        self.registrations.unregister(number);
        self.registrations.has_changes()
    }

    /// Adds a further process.
    pub const fn add_process(&mut self) {
        self.processes += 1;
    }

    /// Ends the session, after the node has received all changes.
    pub const fn close(&mut self) {
        self.closed = true;
    }

    /// Whether it was closed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether it has ended after it was closed.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        matches!(self.connection, Connection::Ended)
    }

    /// Whether the node has accepted a connection that has not ended.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        matches!(
            self.connection,
            Connection::Open { .. } | Connection::Closing
        )
    }

    /// Whether the next attempt to connect is expected to fail like the last one.
    #[must_use]
    pub const fn fails_permanently(&self) -> bool {
        self.fails_permanently
    }

    /// Whether the node has acknowledged that it watches a lease.
    #[must_use]
    pub fn is_watched(&self, number: u64) -> bool {
        self.registrations.is_watched(number)
    }

    /// Returns what the host does next.
    #[must_use]
    pub fn poll(&mut self, now: Instant) -> SessionAction<T> {
        match &mut self.connection {
            Connection::Closed(_) if self.closed => {
                self.connection = Connection::Ended;
                SessionAction::End
            }
            Connection::Closed(at) if *at <= now => {
                self.connection = Connection::Opening;
                SessionAction::Connect
            }
            Connection::Closed(_) | Connection::Opening | Connection::Closing => {
                SessionAction::Wait
            }
            Connection::Open { sent, joined } if *sent < self.processes => {
                if sent.saturating_sub(*joined) < PROCESSES_IN_FLIGHT {
                    *sent += 1;
                    return SessionAction::Process(*sent - 1);
                }
                // A node that does not watch every process would declare a living client dead.
                self.poll_end(now)
            }
            Connection::Open { .. } => {
                if self.registrations.has_changes() {
                    if self.lingers && !self.closed {
                        return SessionAction::Pause(self.linger);
                    }
                    if let Some(changes) = self.registrations.next_changes(BATCH_MAX, now) {
                        return SessionAction::Changes(changes);
                    }
                }
                self.lingers = !self.linger.is_zero();
                self.poll_end(now)
            }
            Connection::Ended => SessionAction::End,
        }
    }

    fn poll_end(&mut self, now: Instant) -> SessionAction<T> {
        if self.closed {
            self.connection = Connection::Closing;
            SessionAction::Disconnect
        } else if self.registrations.heartbeat(now) {
            SessionAction::Heartbeat
        } else {
            SessionAction::Wait
        }
    }

    /// When to poll again without another call. `None`: never.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        match self.connection {
            Connection::Closed(at) => Some(at),
            Connection::Open { .. } => self.registrations.next_heartbeat(),
            Connection::Opening | Connection::Closing | Connection::Ended => None,
        }
    }

    /// The pause has passed.
    pub const fn end_pause(&mut self) {
        self.lingers = false;
    }

    /// The node has accepted a connection, and acknowledged so many further processes on it.
    pub fn connected(&mut self, processes: usize, now: Instant) {
        self.registrations.connected(now);
        self.connection = Connection::Open {
            sent: processes,
            joined: processes,
        };
        self.lingers = false;
        self.fails_permanently = false;
    }

    /// The node has acknowledged a further process, or cannot watch one.
    pub const fn joined(&mut self) {
        if let Connection::Open { joined, .. } = &mut self.connection {
            *joined += 1;
        }
    }

    /// The node has acknowledged a batch of changes, and `refused` some of its leases. Returns those that it watches from
    /// now on, and did not before.
    #[must_use]
    pub fn acknowledged(&mut self, batch: u64, refused: &[u64]) -> Vec<T> {
        let watched = self.registrations.acknowledged(batch, refused);
        self.leases(watched)
    }

    /// The connection has ended, or could not be opened; `permanently` if the next attempt is expected to fail as well.
    /// Returns the leases that the node watched until now. `spread` is a random number from 0 to 1, so that clients that
    /// lose their connections together do not connect together.
    pub fn disconnected(&mut self, permanently: bool, now: Instant, spread: f64) -> Vec<T> {
        if self.is_connected() {
            self.retry = RETRY_MIN;
        }
        self.connection = match self.closed {
            true => Connection::Ended,
            false => Connection::Closed(now.after(upper_half(self.retry, spread))),
        };
        self.retry = (self.retry * 2).min(RETRY_MAX);
        self.fails_permanently = permanently;
        let unwatched = self.registrations.disconnected();
        self.leases(unwatched)
    }

    fn leases(&self, numbers: Vec<u64>) -> Vec<T> {
        let leases = numbers.into_iter();
        leases
            .filter_map(|number| self.registrations.lease(number).cloned())
            .collect()
    }

    /// The same by a clock that is `span` behind, for a model that lets the clock stand still. The instant of the next
    /// attempt to connect stays.
    #[doc(hidden)]
    pub fn back(&mut self, span: Duration) {
        self.registrations.back(span);
    }
}

#[cfg(test)]
mod tests;
