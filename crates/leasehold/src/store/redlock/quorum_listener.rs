//! The events of all masters, combined for one client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use leasehold_core::quorum::{Masters, Size};

use crate::store::api::{Event, EventScope, Key, Listener};
use crate::store::lock::lock;

/// The number of names kept of which too few masters have reported a change. More are forgotten: waiters
/// have timers.
const NAMES_MAX: usize = 4_096;

/// The listener of one client at all masters. The client is notified of a change when a majority has reported
/// it: a minority can neither grant a lock nor take one away.
#[derive(Debug)]
pub(super) struct QuorumListener {
    listener: Weak<dyn Listener>,
    size: Size,
    changed: Mutex<HashMap<Key, Masters>>,
}

/// The listener at one master.
#[derive(Debug)]
pub(super) struct MasterListener {
    pub(super) listener: Arc<QuorumListener>,
    pub(super) master: usize,
}

impl QuorumListener {
    pub(super) fn new(listener: Weak<dyn Listener>, size: Size) -> Self {
        Self {
            listener,
            size,
            changed: Mutex::default(),
        }
    }

    fn handle(&self, master: usize, event: Event) {
        let event = match event {
            Event::Changed(key) => match self.has_majority(master, &key) {
                true => Event::Changed(key),
                false => return,
            },
            // The master may have missed events of any name.
            Event::Interrupted(_) => Event::Interrupted(EventScope::Store),
            other => other,
        };
        if let Some(listener) = self.listener.upgrade() {
            listener.notify(event);
        }
    }

    /// Counts a change. Returns whether a majority has reported it.
    fn has_majority(&self, master: usize, key: &Key) -> bool {
        let mut changed = lock(&self.changed);
        let mut masters = changed.remove(key).unwrap_or_default();
        masters.insert(master);
        if masters.len() >= self.size.majority() {
            return true;
        }
        if changed.len() >= NAMES_MAX {
            changed.clear();
        }
        changed.insert(key.clone(), masters);
        false
    }
}

impl Listener for MasterListener {
    fn notify(&self, event: Event) {
        self.listener.handle(self.master, event);
    }
}
