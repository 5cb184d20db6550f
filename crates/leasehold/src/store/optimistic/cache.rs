//! Documents as this process has seen them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use leasehold_core::record::{End, Environment};
use leasehold_core::{ClientId, Instant, LeaseId, Rows, StoreTime};

use super::document_text::{self, DocumentText};
use super::documents::{Document, Version};
use super::ends::Ends;
use crate::store::api::Key;
use crate::store::rows::DamagedText;

/// The number of documents that are kept.
const NAMES_MAX: usize = 4_096;

/// A version of a document, and when it was received.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) version: Version,
    pub(super) rows: Result<Rows, DamagedText>,
    /// The clients that are notified of changes for observers, and until when.
    pub(super) watchers: BTreeMap<ClientId, StoreTime>,
    /// The write from which the client of each holder counts.
    pub(super) stamps: BTreeMap<LeaseId, u64>,
    /// The store's time at `received`.
    pub(super) time: StoreTime,
    /// How often the document was written, so that no two texts are the same.
    pub(super) commits: u64,
    pub(super) received: Instant,
}

impl Entry {
    /// A document that was received at this instant.
    pub(super) fn new(document: Document, received: Instant) -> Self {
        let text = document.text.as_deref().map(document_text::read);
        let (rows, text) = match text {
            None => (Ok(Rows::default()), DocumentText::default()),
            Some(Ok((rows, text))) => (Ok(rows), text),
            Some(Err(damaged)) => (Err(damaged), DocumentText::default()),
        };
        Self {
            version: document.version,
            rows,
            watchers: text.watchers,
            stamps: text.stamps,
            time: text.time.after_span(document.age),
            commits: text.commits,
            received,
        }
    }

    /// The store's time at a local instant. While nobody holds or waits, the wall clock moves it on.
    pub(super) fn now(&self, local: Instant, wall: StoreTime) -> StoreTime {
        let now = self.time.after_span(local.since(self.received));
        match self.is_used(now) {
            true => now,
            false => now.max(wall),
        }
    }

    /// Whether somebody holds or waits at a time.
    fn is_used(&self, now: StoreTime) -> bool {
        let environment = Environment::at(now);
        self.rows.as_ref().is_ok_and(|rows| {
            rows.holders(&environment).next().is_some()
                || rows.waiters(&environment).next().is_some()
        })
    }

    /// The leases of its holders, their stamps, and when they end by this version.
    fn ends(&self) -> impl Iterator<Item = (LeaseId, u64, Instant)> {
        let holders = self.rows.iter().flat_map(Rows::all_holders);
        holders.filter_map(|holder| {
            let stamp = *self.stamps.get(&holder.lease)?;
            let End::At(end) = holder.end;
            let end = self.received.after(self.time.until(end));
            Some((holder.lease, stamp, end))
        })
    }

    /// The stamps of the next version, in which the clients of some leases count anew.
    pub(super) fn next_stamps(
        &self,
        before: &Rows,
        rows: &Rows,
        timed: &BTreeSet<LeaseId>,
    ) -> BTreeMap<LeaseId, u64> {
        let unchanged: HashSet<_> = before.all_holders().collect();
        let next = self.commits.wrapping_add(1);
        let stamps = rows.all_holders().map(|holder| {
            let is_same = unchanged.contains(holder) && !timed.contains(&holder.lease);
            let stamp = self.stamps.get(&holder.lease).filter(|_| is_same);
            (holder.lease, stamp.copied().unwrap_or(next))
        });
        stamps.collect()
    }

    /// Its text.
    pub(super) fn to_text(&self) -> String {
        let rows = self.rows.clone().unwrap_or_default();
        let head = DocumentText {
            time: self.time,
            commits: self.commits,
            watchers: self.watchers.clone(),
            stamps: self.stamps.clone(),
        };
        document_text::write(&rows, &head)
    }

    /// How many rows and watchers it has.
    pub(super) fn lines(&self) -> usize {
        let rows = self.rows.as_ref();
        rows.map_or(0, |rows| rows.parts().count()) + self.watchers.len()
    }

    /// Whether nothing in it was needed at a time of a wall clock, nor was it written later. Leases end by its own time.
    pub(super) fn is_unused(&self, before: StoreTime) -> bool {
        let environment = Environment::at(before);
        let is_needed = |rows: &Rows| rows.is_needed(&environment);
        self.time < before
            && !self.is_used(self.time)
            && self.rows.as_ref().is_ok_and(|rows| !is_needed(rows))
    }
}

/// The documents that were seen last.
#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: HashMap<Key, Entry>,
    /// When the leases of the holders of documents end, by all versions that were seen.
    ends: HashMap<Key, Ends>,
    /// The number of names from which ends are looked through for those that nobody needs.
    ends_max: usize,
    /// The names whose observers are registered, and since when.
    watched: HashMap<Key, Instant>,
    /// The versions that writes without a reply would replace.
    pending: HashMap<Key, Version>,
}

impl Cache {
    pub(super) fn has(&self, key: &Key) -> bool {
        self.entries.contains_key(key)
    }

    pub(super) fn get(&self, key: &Key) -> Option<Entry> {
        self.entries.get(key).cloned()
    }

    /// Keeps a document, or forgets it. The ends of its leases stay known.
    pub(super) fn put(&mut self, key: Key, entry: Option<Entry>) {
        let Some(entry) = entry else {
            self.entries.remove(&key);
            return;
        };
        if self.entries.len() >= NAMES_MAX && !self.entries.contains_key(&key) {
            self.entries.clear();
        }
        // Another version is there, so no write that replaces the one before is applied any later.
        let is_replaced = |replaced: &Version| *replaced != entry.version;
        if self.pending.get(&key).is_some_and(is_replaced) {
            self.pending.remove(&key);
        }
        let known = self.known(&key, entry);
        self.update_ends(&key, &known);
        self.entries.insert(key, known);
    }

    /// The same document as it was seen first in this version.
    pub(super) fn known(&self, key: &Key, entry: Entry) -> Entry {
        match self.entries.get(key) {
            Some(known)
                if known.version == entry.version
                    && known.time.after_span(entry.received.since(known.received))
                        >= entry.time =>
            {
                known.clone()
            }
            _ => entry,
        }
    }

    /// Notes when the leases in a document end.
    pub(super) fn update_ends(&mut self, key: &Key, entry: &Entry) {
        let mut ends = self.ends.remove(key).unwrap_or_default();
        ends.update(entry.ends());
        if ends.is_empty() {
            return;
        }
        if self.ends.len() >= self.ends_max.max(NAMES_MAX) {
            let now = entry.received;
            self.ends.retain(|_, ends| ends.is_recent(now));
            self.ends_max = self.ends.len() * 2;
        }
        self.ends.insert(key.clone(), ends);
    }

    /// When the leases of the holders of a document end.
    pub(super) fn ends(&self, key: &Key) -> Ends {
        self.ends.get(key).cloned().unwrap_or_default()
    }

    /// A write is sent that replaces this version.
    pub(super) fn sent(&mut self, key: Key, replaced: Version) {
        if self.pending.len() >= NAMES_MAX {
            self.pending.clear();
        }
        self.pending.insert(key, replaced);
    }

    /// The version that a write without a reply would replace.
    pub(super) fn pending(&self, key: &Key) -> Option<&Version> {
        self.pending.get(key)
    }

    pub(super) fn watched(&self, key: &Key) -> Option<Instant> {
        self.watched.get(key).copied()
    }

    pub(super) fn watch(&mut self, key: Key, since: Instant) {
        if self.watched.len() >= NAMES_MAX {
            self.watched.clear();
        }
        self.watched.insert(key, since);
    }
}
