//! The leases that a client has registered with one node.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::terms::{Terms, back};
use crate::time::Instant;

/// The interval between two heartbeats of a client without leases.
const IDLE_HEARTBEAT: Duration = Duration::from_secs(60);

/// The leases that one node is to watch, and those that it watches. `T` identifies a lease for the node, besides
/// its terms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Registrations<T> {
    wanted: BTreeMap<u64, (Terms, T)>,
    /// The registrations that were sent on this connection.
    sent: BTreeMap<u64, Terms>,
    /// The leases that the node has acknowledged.
    watched: BTreeSet<u64>,
    /// The leases that the node may still watch: they were registered once, on this connection or an earlier
    /// one, and the node has not acknowledged that they were unregistered.
    stale: BTreeSet<u64>,
    /// The leases whose registration may differ from what was sent.
    changed: BTreeSet<u64>,
    connected: bool,
    batches: u64,
    /// The batches that are not acknowledged.
    in_flight: VecDeque<Batch>,
    last_sent: Instant,
    heartbeat: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Batch {
    number: u64,
    registered: Vec<u64>,
    unregistered: Vec<u64>,
}

/// One batch of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes<T> {
    /// Its number on this connection. The node acknowledges it.
    pub batch: u64,
    /// Leases to watch from now on, or with other terms.
    pub register: Vec<(u64, Terms, T)>,
    /// Leases that are no longer watched.
    pub unregister: Vec<u64>,
}

impl<T> Default for Registrations<T> {
    fn default() -> Self {
        Self {
            wanted: BTreeMap::new(),
            sent: BTreeMap::new(),
            watched: BTreeSet::new(),
            stale: BTreeSet::new(),
            changed: BTreeSet::new(),
            connected: false,
            batches: 0,
            in_flight: VecDeque::new(),
            last_sent: Instant::default(),
            heartbeat: IDLE_HEARTBEAT,
        }
    }
}

impl<T: Clone> Registrations<T> {
    /// Registers a lease, or changes its terms.
    pub(super) fn register(&mut self, number: u64, terms: Terms, lease: T) {
        let wanted = self.wanted.get(&number);
        if wanted.is_some_and(|(wanted, _)| *wanted == terms) {
            return;
        }
        self.heartbeat = self.heartbeat.min(terms.heartbeat());
        self.wanted.insert(number, (terms, lease));
        self.changed.insert(number);
    }

    /// Unregisters a lease.
    pub(super) fn unregister(&mut self, number: u64) {
        if self.wanted.remove(&number).is_none() {
            return;
        }
        match self.sent.contains_key(&number) || self.stale.contains(&number) {
            true => self.changed.insert(number),
            // The node has never known it.
            false => self.changed.remove(&number),
        };
    }

    /// The node has accepted a connection: every registration is sent anew, and so are the leases that were
    /// unregistered. It may be the same node, and have missed that.
    pub(super) fn connected(&mut self, now: Instant) {
        self.disconnected();
        self.connected = true;
        self.last_sent = now;
        self.changed = self.wanted.keys().chain(&self.stale).copied().collect();
    }

    /// Notes the end of the connection. Returns the leases that the node watched until now.
    pub(super) fn disconnected(&mut self) -> Vec<u64> {
        self.connected = false;
        self.in_flight.clear();
        self.stale
            .extend(std::mem::take(&mut self.sent).into_keys());
        std::mem::take(&mut self.watched).into_iter().collect()
    }

    /// Whether the node has acknowledged that it watches a lease.
    pub(super) fn is_watched(&self, number: u64) -> bool {
        self.watched.contains(&number)
    }

    /// A registered lease.
    pub(super) fn lease(&self, number: u64) -> Option<&T> {
        self.wanted.get(&number).map(|(_, lease)| lease)
    }

    /// Whether there are changes to send.
    pub(super) fn has_changes(&self) -> bool {
        self.connected && !self.changed.is_empty()
    }

    /// The next batch of changes, of so many leases at most. `None`: there are no changes.
    pub(super) fn next_changes(&mut self, max: usize, now: Instant) -> Option<Changes<T>> {
        if !self.connected {
            return None;
        }
        let mut changes = Changes {
            batch: self.batches,
            register: Vec::new(),
            unregister: Vec::new(),
        };
        while changes.register.len() + changes.unregister.len() < max
            && let Some(number) = self.changed.pop_first()
        {
            match (self.wanted.get(&number), self.sent.get(&number)) {
                (Some((terms, _)), Some(sent)) if terms == sent => {}
                (Some((terms, lease)), _) => {
                    changes.register.push((number, *terms, lease.clone()));
                    self.sent.insert(number, *terms);
                    self.stale.remove(&number);
                }
                (None, _) => {
                    changes.unregister.push(number);
                    self.sent.remove(&number);
                    self.watched.remove(&number);
                    self.stale.insert(number);
                }
            }
        }
        if changes.register.is_empty() && changes.unregister.is_empty() {
            return None;
        }
        let registered = changes.register.iter().map(|(number, ..)| *number);
        self.in_flight.push_back(Batch {
            number: changes.batch,
            registered: registered.collect(),
            unregistered: changes.unregister.clone(),
        });
        self.batches += 1;
        self.last_sent = now;
        Some(changes)
    }

    /// The node acknowledged a batch, and `refused` some of its leases. Returns the leases that it watches
    /// from now on, and did not before.
    pub(super) fn acknowledged(&mut self, batch: u64, refused: &[u64]) -> Vec<u64> {
        let mut watched = Vec::new();
        let acknowledged = self.in_flight.partition_point(|sent| sent.number <= batch);
        for batch in self.in_flight.drain(..acknowledged) {
            for lease in batch.unregistered {
                self.stale.remove(&lease);
            }
            for lease in batch.registered {
                if refused.contains(&lease) {
                    // It still counts as sent: sent again immediately, it would be refused again.
                    continue;
                }
                if self.sent.contains_key(&lease) && self.watched.insert(lease) {
                    watched.push(lease);
                }
            }
        }
        watched
    }

    /// When a heartbeat is due if nothing else is sent until then. `None`: there is no connection.
    pub(super) fn next_heartbeat(&self) -> Option<Instant> {
        self.connected.then(|| self.last_sent.after(self.heartbeat))
    }

    /// Returns whether a heartbeat is due, which then counts as sent.
    pub(super) fn heartbeat(&mut self, now: Instant) -> bool {
        let due = self.next_heartbeat().is_some_and(|due| now >= due);
        if due {
            self.last_sent = now;
            // A lease that was unregistered may have needed a shorter interval.
            let intervals = self.wanted.values().map(|(terms, _)| terms.heartbeat());
            self.heartbeat = intervals
                .min()
                .unwrap_or(IDLE_HEARTBEAT)
                .min(IDLE_HEARTBEAT);
        }
        due
    }

    /// The same by a clock that is `span` behind. Only durations matter here, so a model that visits all
    /// states lets the clock stand still and this pass.
    pub(super) fn back(&mut self, span: Duration) {
        back(&mut self.last_sent, span);
        let wanted = self.wanted.values_mut().map(|(terms, _)| terms);
        let sent = self.sent.values_mut();
        wanted.chain(sent).for_each(|terms| terms.back(span));
    }
}

#[cfg(test)]
mod tests;
