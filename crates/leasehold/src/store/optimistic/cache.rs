//! Documents as this process has seen them.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::record::{End, Environment};
use leasehold_core::{Instant, LeaseId, Rows, StoreTime};

use super::document_text::{self, Header};
use super::documents::{Document, Version};
use super::ends::Ends;
use crate::store::api::Key;
use crate::store::rows::DamagedText;

/// The number of documents that are kept.
const NAMES_MAX: usize = 4_096;

/// How far the time of a document is behind the wall clock before jobs count by that. Times are rounded, and clocks differ.
const LAG_MIN: Duration = Duration::from_secs(1);

/// A version of a document, and when it was received.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) version: Version,
    pub(super) rows: Result<Rows, DamagedText>,
    /// Its time is that at `received`.
    pub(super) header: Header,
    pub(super) received: Instant,
}

impl Entry {
    /// A document that was received at this instant.
    pub(super) fn new(document: Document, received: Instant) -> Self {
        let text = document.text.as_deref().map(document_text::read);
        let (rows, mut header) = match text {
            None => (Ok(Rows::default()), Header::default()),
            Some(Ok((rows, header))) => (Ok(rows), header),
            Some(Err(damaged)) => (Err(damaged), Header::default()),
        };
        header.time = header.time.after_span(document.age);
        Self {
            version: document.version,
            rows,
            header,
            received,
        }
    }

    /// The store's time at a local instant. While nobody holds or waits, the wall clock moves it on.
    pub(super) fn now(&self, local: Instant, wall: StoreTime) -> StoreTime {
        let now = self.header.time.after_span(local.since(self.received));
        match self.is_used(now) {
            true => now,
            false => now.max(wall),
        }
    }

    /// The environment of the rule at a local instant. Jobs count by the wall clock while somebody holds or waits.
    pub(super) fn environment(&self, local: Instant, wall: StoreTime) -> Environment {
        let now = self.now(local, wall);
        let calendar = match now.until(wall) > LAG_MIN {
            true => wall,
            false => now,
        };
        Environment { now, calendar }
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
            let stamp = *self.header.stamps.get(&holder.lease)?;
            let End::At(end) = holder.end;
            let end = self.received.after(self.header.time.until(end));
            Some((holder.lease, stamp, end))
        })
    }

    /// Its text.
    pub(super) fn to_text(&self) -> String {
        match &self.rows {
            Ok(rows) => document_text::write(rows, &self.header),
            Err(_) => document_text::write(&Rows::default(), &self.header),
        }
    }

    /// Whether nothing in it was needed at a time of a wall clock, nor was it written later. Leases end by its own time.
    pub(super) fn is_unused(&self, before: StoreTime) -> bool {
        let environment = Environment::at(before);
        let is_needed = |rows: &Rows| rows.is_needed(&environment);
        self.header.time < before
            && !self.is_used(self.header.time)
            && self.rows.as_ref().is_ok_and(|rows| !is_needed(rows))
    }
}

/// The documents that were seen last.
#[derive(Debug, Default)]
pub(super) struct Cache {
    pub(super) entries: HashMap<Key, Entry>,
    /// When the leases of the holders of documents end, by all versions that were seen.
    ends: HashMap<Key, Ends>,
    /// The number of names from which ends are looked through for those that nobody needs.
    ends_max: usize,
    /// The names whose observers are registered, and since when.
    pub(super) watched: HashMap<Key, Instant>,
    /// The versions that writes without a reply would replace.
    pub(super) pending: HashMap<Key, Version>,
}

impl Cache {
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
                    && known
                        .header
                        .time
                        .after_span(entry.received.since(known.received))
                        >= entry.header.time =>
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
