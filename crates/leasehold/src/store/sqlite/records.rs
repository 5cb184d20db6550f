//! The records of the file in one transaction.

use leasehold_core::record::{Head, Note};
use leasehold_core::{ClientId, Environment, Name, Notice, Slot, StoreTime};
use rusqlite::{Connection, params};

use super::error::Fault;
use super::notify::Outbox;
use super::rows::{self, StoredRecord, text};
use super::watchers;
use crate::Error;
use crate::store::api::{Key, Keyspace};
use crate::store::records::{ListPart, Record, Records, Transaction};
use crate::store::rows::class::NOTE;
use crate::store::tables::{listed_head, listed_note, signed};

/// The number of rows of a list that are read at once, so that a long one does not delay other commands.
const ROWS_MAX: u32 = 1_000;

pub(super) const HEADS: &str = "
    SELECT name, value FROM heads
    WHERE namespace = ?1 AND tenant = ?2 AND name > ?3
    ORDER BY name LIMIT ?4";

pub(super) const COMPLETIONS: &str = "
    SELECT name, id, value FROM members
    WHERE class = ?1 AND namespace = ?2 AND tenant = ?3 AND (name, id) > (?4, ?5)
      AND id <> ?6 AND until > ?7
    ORDER BY name, id LIMIT ?8";

/// The records of the file, and the notifications of a transaction.
pub(super) struct FileRecords<'d, 'o> {
    pub(super) db: &'d Connection,
    pub(super) now: StoreTime,
    pub(super) outbox: Outbox<'o>,
}

impl Records for FileRecords<'_, '_> {
    type Error = Fault;

    fn environment(&self, _: &Key) -> Environment {
        Environment::at(self.now)
    }

    fn record<'a, F>(&'a mut self, key: &'a Key, mut reaches: F) -> impl Record<Error = Fault> + 'a
    where
        F: FnMut(ClientId) -> Option<bool> + 'a,
    {
        let Self { db, outbox, .. } = self;
        StoredRecord::new(db, key, move |client| match reaches(client) {
            Some(is_alive) => is_alive,
            None => outbox.reaches(client),
        })
    }

    fn heads(&mut self, space: &Keyspace, after: &str) -> Result<ListPart<(Name, Head)>, Fault> {
        let (namespace, tenant) = (space.namespace().as_str(), space.tenant().as_str());
        let range = params![namespace, tenant, after, ROWS_MAX];
        let entries = rows::select(self.db, HEADS, range, |row| {
            let value = text(row, "value").unwrap_or_default();
            Ok(listed_head(text(row, "name")?, value)?)
        })?;
        Ok(ListPart::limited(ROWS_MAX as usize, entries))
    }

    fn completions(
        &mut self,
        space: &Keyspace,
        (after, id): (&str, &str),
    ) -> Result<ListPart<(Name, Slot, Note)>, Fault> {
        let (namespace, tenant) = (space.namespace().as_str(), space.tenant().as_str());
        let (value, now) = (Slot::Value.id(), signed(self.now.as_micros()));
        let range = params![NOTE, namespace, tenant, after, id, value, now, ROWS_MAX];
        let entries = rows::select(self.db, COMPLETIONS, range, |row| {
            let [id, value] = ["id", "value"].map(|column| text(row, column).unwrap_or_default());
            Ok(listed_note(text(row, "name")?, id, value)?)
        })?;
        Ok(ListPart::limited(ROWS_MAX as usize, entries))
    }

    fn damage(fault: Fault) -> Result<Error, Fault> {
        match fault {
            Fault::Damaged(damaged) => Ok(damaged.into()),
            fault => Err(fault),
        }
    }
}

impl Transaction for FileRecords<'_, '_> {
    fn can_wait(&self) -> bool {
        self.outbox.is_reachable()
    }

    fn waits(&mut self) {
        self.outbox.add_waiter();
    }

    fn notify(&mut self, key: &Key, notice: Notice) {
        self.outbox.add(key, notice);
    }

    fn changed(&mut self, key: &Key) -> Result<(), Fault> {
        watchers::notify(self.db, key, self.now, &mut self.outbox)
    }
}
