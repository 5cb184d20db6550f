//! What the masters tell, put together for one client.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use leasehold_core::quorum::{Masters, Size};

use crate::store::api::{Event, EventScope, Key, Listener};

/// How many names are remembered of which too few masters have told. More are forgotten: whoever waits
/// asks again by itself.
const NAMES_MAX: usize = 4_096;

/// The ears of one client at all masters. It is told of a change when a majority has told of it: with one
/// alone nothing can be won, and nothing is lost.
pub(super) struct QuorumListener {
    listener: Weak<dyn Listener>,
    size: Size,
    changed: Mutex<HashMap<Key, Masters>>,
    ears: Mutex<Vec<Arc<MasterListener>>>,
}

/// One of them.
struct MasterListener {
    listener: Weak<QuorumListener>,
    master: usize,
}

impl QuorumListener {
    pub(super) fn new(listener: Weak<dyn Listener>, size: Size) -> Self {
        Self {
            listener,
            size,
            changed: Mutex::default(),
            ears: Mutex::default(),
        }
    }

    /// The ear at a master. It hears as long as the listener lives.
    pub(super) fn ear(self: &Arc<Self>, master: usize) -> Weak<dyn Listener> {
        let ear = Arc::new(MasterListener {
            listener: Arc::downgrade(self),
            master,
        });
        let weak: Weak<MasterListener> = Arc::downgrade(&ear);
        let mut ears = self.ears.lock().unwrap_or_else(PoisonError::into_inner);
        ears.push(ear);
        weak
    }

    fn hear(&self, master: usize, event: Event) {
        let event = match event {
            Event::Changed(key) => match self.is_news(master, &key) {
                true => Event::Changed(key),
                false => return,
            },
            // It has told nothing for a while, and nobody knows of which names.
            Event::Interrupted(_) => Event::Interrupted(EventScope::Store),
            told => told,
        };
        if let Some(listener) = self.listener.upgrade() {
            listener.notify(event);
        }
    }

    fn is_news(&self, master: usize, key: &Key) -> bool {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
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

impl fmt::Debug for QuorumListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumListener").finish_non_exhaustive()
    }
}

impl fmt::Debug for MasterListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MasterListener")
            .field("master", &self.master)
            .finish_non_exhaustive()
    }
}

impl Listener for MasterListener {
    fn notify(&self, event: Event) {
        if let Some(listener) = self.listener.upgrade() {
            listener.hear(self.master, event);
        }
    }
}
