//! The records of a transaction, as far as they are loaded, with what it changes in them.
//!
//! The rule runs without waiting. If it needs a part that is not loaded, it ends with [`Fault::Missing`], and runs again from
//! the start when the part is loaded.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use leasehold_core::record::{
    Body, Change, Changes, End, Environment, Head, Holder, Op, Part, Row, Source, Waiter, Whom,
};
use leasehold_core::{ClientId, LeaseId, StoreTime};

use super::error::Fault;
use super::need::{Need, Want};
use crate::store::api::Key;
use crate::store::records::Record;
use crate::store::rows::class::{HOLDER, WAITER};
use crate::store::rows::{self, Damage, DamagedText};
use crate::store::tables::{self, Table};

/// By how much a lease that has ended is extended at a time while a transaction of a user relies on it. Less than any ttl, so
/// that a renewal is stored.
const EXTENSION: Duration = Duration::from_millis(90);

/// A stored member.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) value: String,
    pub(super) place: Option<i64>,
}

/// A record, as far as it is loaded.
#[derive(Clone, Debug, Default)]
pub(super) struct Cached {
    /// Whether a transaction of a user relies on its holder.
    pub(super) is_relied_on: bool,
    pub(super) head: Option<Result<Head, DamagedText>>,
    /// By class and id. `None`: there is none.
    pub(super) members: BTreeMap<(u8, String), Option<Member>>,
    /// The classes of which all members are known.
    pub(super) complete: BTreeSet<u8>,
    /// The ids of waiters by place: all before `known_to`.
    pub(super) places: BTreeMap<i64, String>,
    pub(super) known_to: i64,
    pub(super) counts: HashMap<(i64, i64), u32>,
    /// What the transaction has changed.
    pub(super) changed: Changed,
}

/// What a transaction changes in a record.
#[derive(Clone, Debug, Default)]
pub(super) struct Changed {
    pub(super) head: Option<Head>,
    /// The classes that were cleared before the members were put.
    pub(super) cleared: BTreeSet<u8>,
    /// By class and id. `None`: removed.
    pub(super) members: BTreeMap<(u8, String), Option<Row>>,
}

impl Cached {
    /// Replaces a member, or removes it.
    fn set(&mut self, part: &Part, row: Option<Row>) {
        let id = (rows::class(part), part.id().into_owned());
        let member = row.as_ref().map(|row| Member {
            value: row.to_text(),
            place: tables::place(row),
        });
        let after = member.as_ref().and_then(|member| member.place);
        let replaced = self.members.insert(id.clone(), member).flatten();
        let before = replaced.and_then(|member| member.place);
        if let Some(place) = before {
            self.places.remove(&place);
        }
        if let Some(place) = after {
            self.places.insert(place, id.1.clone());
        }
        for ((from, to), count) in &mut self.counts {
            let counted =
                |place: Option<i64>| u32::from(place.is_some_and(|it| (*from..*to).contains(&it)));
            *count = (*count + counted(after)).saturating_sub(counted(before));
        }
        self.changed.members.insert(id, row);
    }

    fn clear(&mut self, class: u8) {
        self.members.retain(|(of, _), _| *of != class);
        self.complete.insert(class);
        if class == WAITER {
            self.places.clear();
            self.known_to = i64::MAX;
        }
        self.changed.cleared.insert(class);
        self.changed.members.retain(|(of, _), _| *of != class);
    }

    /// Whether all members of a class are known.
    fn knows_all(&self, class: u8) -> bool {
        self.complete.contains(&class) || (class == WAITER && self.known_to == i64::MAX)
    }
}

/// The record of a name in a transaction.
pub(super) struct CachedRecord<'a, F> {
    pub(super) key: &'a Key,
    pub(super) cached: &'a mut Cached,
    /// The clients of other processes that were asked for.
    pub(super) alive: &'a HashMap<ClientId, bool>,
    pub(super) now: StoreTime,
    pub(super) reaches: F,
}

impl<F> CachedRecord<'_, F> {
    fn missing(&self, want: Want) -> Fault {
        Fault::Missing(Need::Part(self.key.clone(), want))
    }

    /// The head without the extension of its holders.
    fn plain_head(&self) -> Result<Head, Fault> {
        let head = self.cached.head;
        Ok(head.ok_or_else(|| self.missing(Want::Head))??)
    }

    /// The end of a holder. One on which a transaction relies has not ended.
    fn extended(&self, end: End) -> End {
        match self.cached.is_relied_on {
            true => end.max(End::At(self.now.after_span(EXTENSION))),
            false => end,
        }
    }
}

impl<F: FnMut(ClientId) -> Option<bool>> CachedRecord<'_, F> {
    /// Whether changes end the hold of a lease, or a part of it.
    fn ends_hold(&mut self, changes: &Changes) -> bool {
        let sole = |head: &Head| match head.body {
            Body::Leases(leases) => leases.sole.map(|holder| holder.lease),
            _ => None,
        };
        let before = self.plain_head().ok().as_ref().and_then(sole);
        let after = changes.head.as_ref().map_or(before, sole);
        let ends = |change: &Change| match change {
            Change::Remove(Part::Holder(_)) => true,
            Change::Put(part, Row::Holder(after)) => match self.row(part) {
                Ok(Some(Row::Holder(before))) => after.weight < before.weight,
                _ => false,
            },
            _ => false,
        };
        (before.is_some() && before != after) || changes.rows.iter().any(ends)
    }
}

impl<F: FnMut(ClientId) -> Option<bool>> Source for CachedRecord<'_, F> {
    type Error = Fault;

    fn head(&mut self) -> Result<Head, Fault> {
        let mut head = self.plain_head()?;
        if let Body::Leases(leases) = &mut head.body {
            leases.earliest = leases.earliest.map(|end| self.extended(end));
            leases.sole = leases.sole.map(|holder| Holder {
                end: self.extended(holder.end),
                ..holder
            });
        }
        Ok(head)
    }

    fn row(&mut self, part: &Part) -> Result<Option<Row>, Fault> {
        let class = rows::class(part);
        let id = (class, part.id().into_owned());
        match self.cached.members.get(&id) {
            Some(Some(member)) => {
                let mut row = tables::read_member(part, &member.value, member.place)?;
                if let Row::Holder(holder) = &mut row {
                    holder.end = self.extended(holder.end);
                }
                Ok(Some(row))
            }
            Some(None) => Ok(None),
            None if self.cached.knows_all(class) => Ok(None),
            None => Err(self.missing(Want::Member(class, id.1))),
        }
    }

    fn holders(&mut self) -> Result<Vec<Holder>, Fault> {
        if !self.cached.complete.contains(&HOLDER) {
            return Err(self.missing(Want::Class(HOLDER)));
        }
        let members = self.cached.members.keys();
        let ids = members.filter(|(class, _)| *class == HOLDER);
        let leases: Vec<_> = ids.map(|(_, id)| lease(id)).collect::<Result<_, _>>()?;
        let mut holders = Vec::with_capacity(leases.len());
        for lease in leases {
            holders.extend(self.holder(lease)?);
        }
        // As everywhere: the texts of leases have another order.
        holders.sort_by_key(|holder| holder.lease);
        Ok(holders)
    }

    fn waiter_from(&mut self, place: u64) -> Result<Option<Waiter>, Fault> {
        let (cached, from) = (&*self.cached, tables::signed(place));
        let first = cached.places.range(from..).next();
        if first.map_or(i64::MAX, |(place, _)| *place) > cached.known_to {
            return Err(self.missing(Want::Waiters(cached.known_to, WAITERS)));
        }
        match first.map(|(_, id)| lease(id)).transpose()? {
            Some(lease) => self.waiter(lease),
            None => Ok(None),
        }
    }

    fn waiters_between(&mut self, from: u64, to: u64) -> Result<u32, Fault> {
        let (cached, from, to) = (&*self.cached, tables::signed(from), tables::signed(to));
        if to <= cached.known_to {
            let known = cached.places.range(from..to.max(from)).count();
            return Ok(u32::try_from(known).unwrap_or(u32::MAX));
        }
        let count = cached.counts.get(&(from, to)).copied();
        count.ok_or_else(|| self.missing(Want::Count(from, to)))
    }

    fn reaches(&mut self, client: ClientId) -> Result<bool, Fault> {
        let known = (self.reaches)(client).or_else(|| self.alive.get(&client).copied());
        known.ok_or(Fault::Missing(Need::Client(client)))
    }
}

/// How many waiters are loaded at once for an operation.
pub(super) const WAITERS: usize = 8;

impl<F: FnMut(ClientId) -> Option<bool>> Record for CachedRecord<'_, F> {
    fn waiting(&mut self, _: &Environment, max: usize) -> Result<Vec<LeaseId>, Fault> {
        let known: Vec<_> = self.cached.places.values().take(max).collect();
        if known.len() < max && !self.cached.knows_all(WAITER) {
            return Err(self.missing(Want::Waiters(self.cached.known_to, max)));
        }
        Ok(known.iter().filter_map(|id| id.parse().ok()).collect())
    }

    fn store(&mut self, changes: Changes) -> Result<(), Fault> {
        if self.cached.is_relied_on && self.ends_hold(&changes) {
            return Err(Fault::ReliedOn);
        }
        self.store_changes(changes)
    }

    fn repair(&mut self, op: &Op, fault: Fault) -> Result<(), Fault> {
        match (op, fault) {
            (Op::Revoke(Whom::All), Fault::Damaged(_)) if self.cached.is_relied_on => {
                Err(Fault::ReliedOn)
            }
            (_, Fault::Damaged(DamagedText(damage, _))) if self.repair_damage(op, damage)? => {
                Ok(())
            }
            (_, fault) => Err(fault),
        }
    }
}

impl<F: FnMut(ClientId) -> Option<bool>> Table for CachedRecord<'_, F> {
    fn stored_head(&mut self) -> Result<Head, Fault> {
        self.plain_head()
    }

    fn put_head(&mut self, head: Head) -> Result<(), Fault> {
        self.cached.head = Some(Ok(head));
        self.cached.changed.head = Some(head);
        Ok(())
    }

    fn put(&mut self, part: &Part, row: Row) -> Result<(), Fault> {
        self.cached.set(part, Some(row));
        Ok(())
    }

    fn remove(&mut self, part: &Part) -> Result<(), Fault> {
        self.cached.set(part, None);
        Ok(())
    }

    fn clear(&mut self, class: u8) -> Result<(), Fault> {
        self.cached.clear(class);
        Ok(())
    }

    fn clear_lost(&mut self, class: u8) -> Result<(), Fault> {
        let mut members = self.cached.members.iter();
        let has_one = members.any(|((of, _), member)| *of == class && member.is_some());
        // Nothing is sent for a class that is known to be empty.
        if has_one || !self.cached.knows_all(class) {
            self.cached.clear(class);
        }
        Ok(())
    }
}

fn lease(id: &str) -> Result<LeaseId, Fault> {
    let lease = id.parse();
    lease.map_err(|_| DamagedText(Damage::Lock, "lease").into())
}
