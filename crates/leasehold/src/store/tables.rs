//! Records in tables: a head for each name, and members beside it.

use leasehold_core::Name;
use leasehold_core::record::text::Damaged;
use leasehold_core::record::{
    Body, Change, Changes, Class, Head, LeaseKind, Note, Op, Part, QueueHead, Removal, Row, Slot,
    Source, Whom,
};

use super::api::Key;
use super::rows::class::{ARRIVAL, HOLDER, WAITER};
use super::rows::{Damage, DamagedText, class, read_head};
use crate::{Error, Result};

/// The record of a name in the tables.
pub(super) trait Table: Source {
    /// The head as it is stored, which was read before.
    fn stored_head(&mut self) -> Result<Head, Self::Error>;

    fn put_head(&mut self, head: Head) -> Result<(), Self::Error>;

    /// Stores a member, in the place of one with the same id or place.
    fn put(&mut self, part: &Part, row: Row) -> Result<(), Self::Error>;

    fn remove(&mut self, part: &Part) -> Result<(), Self::Error>;

    /// Removes all members of a class.
    fn clear(&mut self, class: u8) -> Result<(), Self::Error>;

    /// The same if the head says that there are none.
    fn clear_lost(&mut self, class: u8) -> Result<(), Self::Error> {
        self.clear(class)
    }

    /// Stores the changes of an operation.
    fn store_changes(&mut self, changes: Changes) -> Result<(), Self::Error> {
        for class in [HOLDER, WAITER, ARRIVAL] {
            let is_put = |change: &Change| match change {
                Change::Put(part, _) => self::class(part) == class,
                _ => false,
            };
            // Rows that a lost head has left behind must not appear beside the next one.
            if changes.rows.iter().any(is_put) && !has_members(&self.stored_head()?, class) {
                self.clear_lost(class)?;
            }
        }
        for change in changes.rows {
            match change {
                Change::Put(part, row) => self.put(&part, row)?,
                Change::Remove(part) => self.remove(&part)?,
                Change::Clear(Class::Waiters) => self.clear(WAITER)?,
                Change::Clear(Class::Arrivals) => self.clear(ARRIVAL)?,
            }
        }
        changes.head.map_or(Ok(()), |head| self.put_head(head))
    }

    /// Repairs damage, if that is what the operation is for. A revocation removes everything except the notes, and
    /// keeps the counter and the holder of a mutex if they can be read.
    fn repair_damage(&mut self, op: &Op, damage: Damage) -> Result<bool, Self::Error> {
        match (op, damage) {
            (Op::Revoke(Whom::All), _) => {
                let mut head = self.stored_head().unwrap_or_default();
                head.queue = QueueHead::default();
                if !matches!(head.body, Body::Leases(leases) if leases.kind == LeaseKind::Mutex) {
                    head.body = Body::Free;
                }
                for class in [HOLDER, WAITER, ARRIVAL] {
                    self.clear(class)?;
                }
                self.put_head(head)?;
            }
            (Op::Remove(Removal::Latch), Damage::Latch) => {
                self.clear(ARRIVAL)?;
                self.put_head(Head::default())?;
            }
            (Op::Remove(Removal::Note(slot)), Damage::Note) => {
                self.remove(&Part::Note(slot.clone()))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Whether a head has members of a class.
const fn has_members(head: &Head, class: u8) -> bool {
    match head.body {
        Body::Leases(leases) if class == HOLDER => leases.used > 0,
        Body::Latch(latch) if class == ARRIVAL => latch.arrived > 0,
        _ => class == WAITER && head.queue.len > 0,
    }
}

/// Reads the text of a member, whose place must be the one by which it was found.
pub(super) fn read_member(part: &Part, text: &str, at: Option<i64>) -> Result<Row, DamagedText> {
    let damaged = |word| DamagedText(Damage::of(part), word);
    let row = Row::from_text(part, text).map_err(|Damaged(word)| damaged(word))?;
    match place(&row) == at {
        true => Ok(row),
        false => Err(damaged("place")),
    }
}

/// An entry of a list of heads. A damaged latch hides no lock.
pub(super) fn listed_head(name: &str, value: &str) -> Result<(Name, Head)> {
    let name = listed_name(name)?;
    match read_head(value) {
        Ok(head) => Ok((name, head)),
        Err(DamagedText(Damage::Latch, _)) => Ok((name, Head::default())),
        Err(damaged) => Err(Error::from(damaged).for_lock(&name)),
    }
}

/// An entry of a list of notes.
pub(super) fn listed_note(name: &str, id: &str, value: &str) -> Result<(Name, Slot, Note)> {
    let name = listed_name(name)?;
    let damaged = |word| Error::from(DamagedText(Damage::Note, word)).for_lock(&name);
    let slot = Slot::from_id(id).ok_or_else(|| damaged("id"))?;
    match read_member(&Part::Note(slot.clone()), value, None) {
        Ok(Row::Note(note)) => Ok((name, slot, note)),
        Ok(_) => Err(damaged("class")),
        Err(DamagedText(_, word)) => Err(damaged(word)),
    }
}

fn listed_name(name: &str) -> Result<Name> {
    Name::parse(name).map_err(|_| DamagedText(Damage::Lock, "name").into())
}

/// The place of a waiter.
pub(super) fn place(row: &Row) -> Option<i64> {
    match row {
        Row::Waiter(waiter) => Some(signed(waiter.place)),
        _ => None,
    }
}

/// A number as a database stores it. Every larger number means "never", as its largest does.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The primary key of a record.
pub(super) fn columns(key: &Key) -> (&str, &str, &str) {
    let space = &key.space;
    (
        space.namespace().as_str(),
        space.tenant().as_str(),
        key.name.as_str(),
    )
}
