//! What a client has told one node of its leases.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::terms::{Terms, back};
use crate::time::Instant;

/// The pause between two signs of life of a client that has no lease to look after.
const QUIET_BEAT: Duration = Duration::from_secs(60);

/// What one node is to know, and what it knows. `T` is what it must be told of a lease beside its terms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Registrations<T> {
    wanted: BTreeMap<u64, (Terms, T)>,
    /// What was told on this connection.
    told: BTreeMap<u64, Terms>,
    /// What the node has said it looks after.
    watched: BTreeSet<u64>,
    /// What the node may look after because it was told so once, on this connection or an earlier one,
    /// and has not acknowledged that it is to stop.
    left: BTreeSet<u64>,
    /// What may be another than what was told.
    changed: BTreeSet<u64>,
    connected: bool,
    batches: u64,
    /// What was told and is not acknowledged.
    unanswered: VecDeque<Unanswered>,
    /// When something was said last.
    said: Instant,
    beat: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Unanswered {
    batch: u64,
    registered: Vec<u64>,
    unregistered: Vec<u64>,
}

/// One batch of news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes<T> {
    /// Its number on this connection. The node acknowledges it.
    pub batch: u64,
    /// Leases to look after from now on, or on other terms.
    pub register: Vec<(u64, Terms, T)>,
    /// Leases to look after no more.
    pub unregister: Vec<u64>,
}

impl<T> Default for Registrations<T> {
    fn default() -> Self {
        Self {
            wanted: BTreeMap::new(),
            told: BTreeMap::new(),
            watched: BTreeSet::new(),
            left: BTreeSet::new(),
            changed: BTreeSet::new(),
            connected: false,
            batches: 0,
            unanswered: VecDeque::new(),
            said: Instant::default(),
            beat: QUIET_BEAT,
        }
    }
}

impl<T: Clone> Registrations<T> {
    /// The node is to look after a lease, on these terms.
    pub fn want(&mut self, number: u64, terms: Terms, subject: T) {
        if self
            .wanted
            .get(&number)
            .is_some_and(|(wanted, _)| *wanted == terms)
        {
            return;
        }
        self.beat = self.beat.min(terms.beat());
        self.wanted.insert(number, (terms, subject));
        self.changed.insert(number);
    }

    /// The node is not to look after a lease any more.
    pub fn leave(&mut self, number: u64) {
        if self.wanted.remove(&number).is_some() || self.told.contains_key(&number) {
            self.changed.insert(number);
        }
    }

    /// A connection to the node stands: it is told everything anew, also what it is not to look after any
    /// more. It may be the same node, and have missed that.
    pub fn connected(&mut self, now: Instant) {
        self.disconnected();
        self.connected = true;
        self.said = now;
        self.changed = self.wanted.keys().chain(&self.left).copied().collect();
    }

    /// The connection ended. Answers which leases it looked after until now.
    pub fn disconnected(&mut self) -> Vec<u64> {
        self.connected = false;
        self.unanswered.clear();
        self.left.extend(std::mem::take(&mut self.told).into_keys());
        std::mem::take(&mut self.watched).into_iter().collect()
    }

    /// Whether the node has said that it looks after a lease.
    #[must_use]
    pub fn is_watched(&self, number: u64) -> bool {
        self.watched.contains(&number)
    }

    /// What is told of a lease that is wanted.
    #[must_use]
    pub fn subject(&self, number: u64) -> Option<&T> {
        self.wanted.get(&number).map(|(_, subject)| subject)
    }

    /// Whether there is something to tell.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.connected && !self.changed.is_empty()
    }

    /// The next news, about so many leases at most. `None`: there are none.
    pub fn next_changes(&mut self, max: usize, now: Instant) -> Option<Changes<T>> {
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
            match (self.wanted.get(&number), self.told.get(&number)) {
                (Some((terms, _)), Some(told)) if terms == told => {}
                (Some((terms, subject)), _) => {
                    changes.register.push((number, *terms, subject.clone()));
                    self.told.insert(number, *terms);
                    self.left.remove(&number);
                }
                (None, told) => {
                    if told.is_some() || self.left.contains(&number) {
                        changes.unregister.push(number);
                        self.told.remove(&number);
                        self.watched.remove(&number);
                        self.left.insert(number);
                    }
                }
            }
        }
        if changes.register.is_empty() && changes.unregister.is_empty() {
            return None;
        }
        let registered = changes.register.iter().map(|(number, ..)| *number);
        self.unanswered.push_back(Unanswered {
            batch: changes.batch,
            registered: registered.collect(),
            unregistered: changes.unregister.clone(),
        });
        self.batches += 1;
        self.said = now;
        Some(changes)
    }

    /// The node acknowledged a batch, but for those that it `refused`. Answers which leases it looks
    /// after from now on, and did not before.
    pub fn acknowledged(&mut self, batch: u64, refused: &[u64]) -> Vec<u64> {
        let mut watched = Vec::new();
        while let Some(told) = self.unanswered.pop_front_if(|told| told.batch <= batch) {
            for lease in told.unregistered {
                self.left.remove(&lease);
            }
            for lease in told.registered {
                if refused.contains(&lease) {
                    // It stays told: asked again at once it would be refused again.
                    continue;
                }
                if self.told.contains_key(&lease) && self.watched.insert(lease) {
                    watched.push(lease);
                }
            }
        }
        watched
    }

    /// When a sign of life is due if nothing else is said until then. `None`: there is no connection.
    #[must_use]
    pub fn next_beat(&self) -> Option<Instant> {
        self.connected.then(|| self.said.after(self.beat))
    }

    /// Whether a sign of life is due; it is given with the answer.
    pub fn beat(&mut self, now: Instant) -> bool {
        let due = self.next_beat().is_some_and(|due| now >= due);
        if due {
            self.said = now;
            // Leases that are gone may have asked for more.
            let beats = self.wanted.values().map(|(terms, _)| terms.beat());
            self.beat = beats.min().unwrap_or(QUIET_BEAT).min(QUIET_BEAT);
        }
        due
    }

    /// The same by a clock that is `span` behind. Only spans matter to a registrations, so whoever visits all
    /// of its states lets the clock stand still and this pass.
    #[doc(hidden)]
    pub fn back(&mut self, span: Duration) {
        back(&mut self.said, span);
        let wanted = self.wanted.values_mut().map(|(terms, _)| terms);
        let told = self.told.values_mut();
        wanted.chain(told).for_each(|terms| terms.back(span));
    }
}

#[cfg(test)]
mod tests;
