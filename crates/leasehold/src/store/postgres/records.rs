//! The records of one transaction, and the notices that it sends.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use leasehold_core::record::{Head, Note};
use leasehold_core::{ClientId, Environment, Name, Notice, Slot, StoreTime};

use super::cache::{Cached, CachedRecord};
use super::error::Fault;
use super::need::Need;
use crate::store::api::{Event, Key, Keyspace};
use crate::store::message;
use crate::store::records::{ListPart, Record, Records, Transaction};
use crate::store::rows::class::WATCHER;
use crate::store::tables::{listed_head, listed_note};
use crate::{Error, Result};

/// The number of entries of a list that are read at once, so that a long one does not delay others.
pub(super) const ROWS_MAX: usize = 1_000;

/// The maximum length of a notification: PostgreSQL takes less than 8,000 bytes.
const MESSAGE_MAX: usize = 7_900;

/// An entry of a list of notes: its name, its id and its value.
pub(super) type NoteRow = (String, String, String);

/// What is loaded of the records, and what is changed in them.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadedRecords {
    pub(super) now: StoreTime,
    pub(super) records: HashMap<Key, Cached>,
    /// Whether clients of other processes listen.
    pub(super) alive: HashMap<ClientId, bool>,
    /// The next heads of the list that is read: names and values.
    pub(super) heads: Option<Vec<(String, String)>>,
    /// The next notes of the list that is read.
    pub(super) notes: Option<Vec<NoteRow>>,
    /// Whether other processes can notify the clients of this one.
    pub(super) can_wait: bool,
    /// The client that is notified for the observers of this store.
    pub(super) watcher: Option<ClientId>,
    pub(super) messages: BTreeMap<ClientId, Vec<String>>,
    /// The changes that are in the messages.
    pub(super) changes: BTreeSet<(ClientId, Key)>,
}

impl LoadedRecords {
    /// Writes the head of a record even if it is the same: a commit that writes nothing does not wait for the standby,
    /// which may lack what the replies confirm.
    pub(super) fn write_head(&mut self, key: &Key) {
        if let Some(cached) = self.records.get_mut(key)
            && let Some(Ok(head)) = cached.head
        {
            cached.changed.head.get_or_insert(head);
        }
    }

    fn add(&mut self, client: ClientId, event: &Event) {
        message::write(self.messages.entry(client).or_default(), event, MESSAGE_MAX);
    }
}

impl Records for LoadedRecords {
    type Error = Fault;

    fn environment(&self, _: &Key) -> Environment {
        Environment::at(self.now)
    }

    fn record<'a, F>(&'a mut self, key: &'a Key, reaches: F) -> impl Record<Error = Fault> + 'a
    where
        F: FnMut(ClientId) -> Option<bool> + 'a,
    {
        CachedRecord {
            key,
            cached: self.records.entry(key.clone()).or_default(),
            alive: &self.alive,
            now: self.now,
            reaches,
        }
    }

    fn heads(&mut self, space: &Keyspace, after: &str) -> Result<ListPart<(Name, Head)>, Fault> {
        let Some(rows) = &self.heads else {
            return Err(Fault::Missing(Need::Heads(space.clone(), after.to_owned())));
        };
        let entries = rows.iter().map(|(name, value)| listed_head(name, value));
        let entries: Result<_> = entries.collect();
        Ok(ListPart::limited(ROWS_MAX, entries.map_err(Fault::Found)?))
    }

    fn completions(
        &mut self,
        space: &Keyspace,
        (after, id): (&str, &str),
    ) -> Result<ListPart<(Name, Slot, Note)>, Fault> {
        let Some(rows) = &self.notes else {
            let after = (after.to_owned(), id.to_owned());
            return Err(Fault::Missing(Need::Completions(space.clone(), after)));
        };
        let entries = rows
            .iter()
            .map(|(name, id, value)| listed_note(name, id, value));
        let entries: Result<_> = entries.collect();
        Ok(ListPart::limited(ROWS_MAX, entries.map_err(Fault::Found)?))
    }

    fn damage(fault: Fault) -> Result<Error, Fault> {
        match fault {
            Fault::Damaged(damaged) => Ok(damaged.into()),
            fault => Err(fault),
        }
    }
}

impl Transaction for LoadedRecords {
    fn can_wait(&self) -> bool {
        self.can_wait
    }

    fn notify(&mut self, key: &Key, notice: Notice) {
        self.add(notice.lease().client, &Event::Notice(key.clone(), notice));
    }

    fn changed(&mut self, key: &Key) -> Result<(), Fault> {
        let members = self.records.get(key).map(|cached| &cached.members);
        let watchers = members.into_iter().flat_map(BTreeMap::keys);
        let watchers = watchers.filter(|(class, _)| *class == WATCHER);
        // A client that cannot be read is none of ours.
        let watchers: Vec<ClientId> = watchers.filter_map(|(_, id)| id.parse().ok()).collect();
        for watcher in watchers {
            let is_other = self.watcher != Some(watcher);
            if is_other && self.changes.insert((watcher, key.clone())) {
                self.add(watcher, &Event::Changed(key.clone()));
            }
        }
        Ok(())
    }
}
