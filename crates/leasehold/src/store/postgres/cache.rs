//! The records of a transaction, as far as they are loaded, with what it changes in them.
//!
//! The rule runs without waiting. If it needs a part that is not loaded, it ends with [`Fault::Missing`], and runs again from
//! the start when the part is loaded.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use leasehold_core::record::{
    Body, Change, Changes, Class, Description, End, Environment, Head, Holder, LeaseKind, Note, Op,
    Part, QueueHead, Removal, Row, Slot, Source, Waiter, Whom,
};
use leasehold_core::{ArrivalId, ClientId, LeaseId, StoreTime};

use super::error::Fault;
use super::need::{Need, Want};
use crate::store::api::Key;
use crate::store::records::Record;
use crate::store::rows::class::{ARRIVAL, HOLDER, WAITER};
use crate::store::rows::{self, Damage, DamagedText};

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
#[derive(Debug, Default)]
pub(super) struct Cached {
    /// Whether a transaction of a user relies on its holder.
    pub(super) is_relied_on: bool,
    pub(super) head: Option<Result<Head, DamagedText>>,
    /// By class and id. `None`: there is none.
    pub(super) members: BTreeMap<(u8, String), Option<Member>>,
    /// The classes of which all members are loaded.
    pub(super) complete: BTreeSet<u8>,
    /// The ids of waiters by place: all before `known_to`.
    pub(super) places: BTreeMap<i64, String>,
    pub(super) known_to: i64,
    pub(super) counts: HashMap<(i64, i64), u32>,
    pub(super) changed: Changed,
}

/// What a transaction changes in a record.
#[derive(Debug, Default)]
pub(super) struct Changed {
    pub(super) head: Option<Head>,
    /// The classes that were cleared before the members were put.
    pub(super) cleared: BTreeSet<u8>,
    /// By class and id. `None`: removed.
    pub(super) members: BTreeMap<(u8, String), Option<(Part, Row)>>,
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
        match (self.cached.changed.head, self.cached.head) {
            (Some(head), _) => Ok(head),
            (None, Some(read)) => Ok(read?),
            (None, None) => Err(self.missing(Want::Head)),
        }
    }

    /// The end of a holder. One on which a transaction relies has not ended.
    fn extended(&self, end: End) -> End {
        match self.cached.is_relied_on {
            true => end.max(End::At(self.now.after_span(EXTENSION))),
            false => end,
        }
    }

    fn member(&self, part: &Part) -> Result<Option<Row>, Fault> {
        let (class, cached) = (rows::class(part), &*self.cached);
        let id = (class, part.id().into_owned());
        if let Some(changed) = cached.changed.members.get(&id) {
            return Ok(changed.as_ref().map(|(_, row)| row.clone()));
        }
        if cached.changed.cleared.contains(&class) {
            return Ok(None);
        }
        match cached.members.get(&id) {
            Some(Some(member)) => {
                let row = rows::read_member(part, &member.value, member.place)?;
                Ok(Some(row))
            }
            Some(None) => Ok(None),
            None if cached.complete.contains(&class) => Ok(None),
            None if class == WAITER && cached.known_to == i64::MAX => Ok(None),
            None => Err(self.missing(Want::Member(class, id.1))),
        }
    }

    /// The places of the stored waiters that are left, as far as they are known.
    fn stored_places(&self, from: i64) -> impl Iterator<Item = (i64, &str)> {
        let changed = &self.cached.changed;
        let is_cleared = changed.cleared.contains(&WAITER);
        let places = self.cached.places.range(from..);
        places
            .filter(move |(_, id)| {
                !is_cleared && !changed.members.contains_key(&(WAITER, (*id).clone()))
            })
            .map(|(place, id)| (*place, id.as_str()))
    }

    /// The waiters that this transaction has put.
    fn put_waiters(&self) -> impl Iterator<Item = &Waiter> {
        let members = self.cached.changed.members.values();
        members.filter_map(|member| match member {
            Some((_, Row::Waiter(waiter))) => Some(waiter),
            _ => None,
        })
    }

    /// Whether all stored waiters before a place are known.
    fn knows_to(&self, place: i64) -> bool {
        place <= self.cached.known_to || self.cached.changed.cleared.contains(&WAITER)
    }

    fn clear(&mut self, class: u8) {
        let changed = &mut self.cached.changed;
        changed.cleared.insert(class);
        changed.members.retain(|(of, _), _| *of != class);
    }

    /// Clears a class, unless it is known to be empty.
    fn clear_lost(&mut self, class: u8) {
        let has_one = self
            .cached
            .members
            .iter()
            .any(|((of, _), member)| *of == class && member.is_some());
        let is_known = match class {
            WAITER => self.knows_to(i64::MAX),
            _ => self.cached.complete.contains(&class),
        };
        if has_one || !is_known {
            self.clear(class);
        }
    }

    /// Whether changes end the hold of a lease.
    fn ends_hold(&self, changes: &Changes) -> bool {
        let sole = |head: &Head| match head.body {
            Body::Leases(leases) => leases.sole.map(|holder| holder.lease),
            _ => None,
        };
        let removes = |change: &Change| matches!(change, Change::Remove(Part::Holder(_)));
        let before = self.plain_head().ok().as_ref().and_then(sole);
        let after = changes.head.as_ref().map_or(before, sole);
        (before.is_some() && before != after) || changes.rows.iter().any(removes)
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

    fn holder(&mut self, lease: LeaseId) -> Result<Option<Holder>, Fault> {
        Ok(match self.member(&Part::Holder(lease))? {
            Some(Row::Holder(holder)) => Some(Holder {
                end: self.extended(holder.end),
                ..holder
            }),
            _ => None,
        })
    }

    fn holders(&mut self) -> Result<Vec<Holder>, Fault> {
        if !self.cached.complete.contains(&HOLDER) {
            return Err(self.missing(Want::Class(HOLDER)));
        }
        let (stored, changed) = (&self.cached.members, &self.cached.changed.members);
        let ids = stored
            .keys()
            .chain(changed.keys())
            .filter(|(class, _)| *class == HOLDER);
        let ids: BTreeSet<_> = ids.map(|(_, id)| id.clone()).collect();
        let mut holders = Vec::with_capacity(ids.len());
        for id in ids {
            let lease = id
                .parse::<LeaseId>()
                .map_err(|_| Fault::Damaged(Damage::Lock, "lease"))?;
            holders.extend(self.holder(lease)?);
        }
        // As everywhere: the texts of leases have another order.
        holders.sort_by_key(|holder| holder.lease);
        Ok(holders)
    }

    fn waiter(&mut self, lease: LeaseId) -> Result<Option<Waiter>, Fault> {
        Ok(match self.member(&Part::Waiter(lease))? {
            Some(Row::Waiter(waiter)) => Some(waiter),
            _ => None,
        })
    }

    fn waiter_from(&mut self, place: u64) -> Result<Option<Waiter>, Fault> {
        let from = rows::signed(place);
        let stored = self.stored_places(from).next();
        let put = self.put_waiters().filter(|waiter| waiter.place >= place);
        let put = put.min_by_key(|waiter| waiter.place);
        let first_put = put.map_or(i64::MAX, |waiter| rows::signed(waiter.place));
        match stored {
            Some((stored, id)) if stored < first_put => {
                let lease = id
                    .parse::<LeaseId>()
                    .map_err(|_| Fault::Damaged(Damage::Lock, "lease"))?;
                self.waiter(lease)
            }
            None if !self.knows_to(first_put) => {
                let known_to = self.cached.known_to;
                Err(self.missing(Want::Waiters(known_to, WAITERS)))
            }
            _ => Ok(put.cloned()),
        }
    }

    fn waiters_between(&mut self, from: u64, to: u64) -> Result<u32, Fault> {
        let put = self
            .put_waiters()
            .filter(|waiter| (from..to).contains(&waiter.place))
            .count();
        let put = u32::try_from(put).unwrap_or(u32::MAX);
        let (from, to) = (rows::signed(from), rows::signed(to));
        let cached = &*self.cached;
        if self.knows_to(to) {
            let stored = self
                .stored_places(from)
                .take_while(|(place, _)| *place < to)
                .count();
            return Ok(put.saturating_add(u32::try_from(stored).unwrap_or(u32::MAX)));
        }
        let Some(stored) = cached.counts.get(&(from, to)) else {
            return Err(self.missing(Want::Count(from, to)));
        };
        // The rule changes no waiter that it has not read.
        let changed = cached
            .changed
            .members
            .keys()
            .filter(|(class, _)| *class == WAITER);
        let gone = changed.filter(|id| {
            let member = cached.members.get(*id).and_then(Option::as_ref);
            member
                .and_then(|member| member.place)
                .is_some_and(|place| (from..to).contains(&place))
        });
        let gone = u32::try_from(gone.count()).unwrap_or(u32::MAX);
        Ok(stored.saturating_sub(gone).saturating_add(put))
    }

    fn has_arrived(&mut self, id: &ArrivalId) -> Result<bool, Fault> {
        Ok(self.member(&Part::Arrival(id.clone()))?.is_some())
    }

    fn note(&mut self, slot: &Slot) -> Result<Option<Note>, Fault> {
        Ok(match self.member(&Part::Note(slot.clone()))? {
            Some(Row::Note(note)) => Some(note),
            _ => None,
        })
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
        let known: Vec<_> = self.stored_places(0).take(max).collect();
        if known.len() < max && !self.knows_to(i64::MAX) {
            return Err(self.missing(Want::Waiters(self.cached.known_to, max)));
        }
        Ok(known
            .into_iter()
            .filter_map(|(_, id)| id.parse().ok())
            .collect())
    }

    fn description(&mut self, environment: &Environment) -> Result<Option<Description>, Fault> {
        match self.member(&Part::Description) {
            Ok(Some(Row::Description(description))) => {
                Ok(Some(description).filter(|found| environment.now < found.until))
            }
            Ok(_) | Err(Fault::Damaged(..)) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    fn store(&mut self, changes: Changes) -> Result<(), Fault> {
        if self.cached.is_relied_on && self.ends_hold(&changes) {
            return Err(Fault::ReliedOn);
        }
        for class in [HOLDER, WAITER, ARRIVAL] {
            let is_put = |change: &Change| match change {
                Change::Put(part, _) => rows::class(part) == class,
                _ => false,
            };
            // Rows that a lost head has left behind must not appear beside the next one.
            if changes.rows.iter().any(is_put) && !rows::has_members(&self.plain_head()?, class) {
                self.clear_lost(class);
            }
        }
        for change in changes.rows {
            match change {
                Change::Put(part, row) => {
                    let id = (rows::class(&part), part.id().into_owned());
                    self.cached.changed.members.insert(id, Some((part, row)));
                }
                Change::Remove(part) => {
                    let id = (rows::class(&part), part.id().into_owned());
                    self.cached.changed.members.insert(id, None);
                }
                Change::Clear(Class::Waiters) => self.clear(WAITER),
                Change::Clear(Class::Arrivals) => self.clear(ARRIVAL),
            }
        }
        self.cached.changed.head = changes.head.or(self.cached.changed.head);
        Ok(())
    }

    /// A forced release removes everything except the notes, and keeps the counter and the holder of a mutex if they can
    /// be read.
    fn repair(&mut self, op: &Op, fault: Fault) -> Result<(), Fault> {
        match (op, &fault) {
            (Op::Revoke(Whom::All), Fault::Damaged(..)) => {
                if self.cached.is_relied_on {
                    return Err(Fault::ReliedOn);
                }
                let mut head = self.plain_head().unwrap_or_default();
                head.queue = QueueHead::default();
                if !matches!(head.body, Body::Leases(leases) if leases.kind == LeaseKind::Mutex) {
                    head.body = Body::Free;
                }
                for class in [HOLDER, WAITER, ARRIVAL] {
                    self.clear(class);
                }
                self.cached.changed.head = Some(head);
                Ok(())
            }
            (Op::Remove(Removal::Latch), Fault::Damaged(Damage::Latch, _)) => {
                self.clear(ARRIVAL);
                self.cached.changed.head = Some(Head::default());
                Ok(())
            }
            (Op::Remove(Removal::Note(slot)), Fault::Damaged(Damage::Note, _)) => {
                let part = Part::Note(slot.clone());
                let id = (rows::class(&part), part.id().into_owned());
                self.cached.changed.members.insert(id, None);
                Ok(())
            }
            _ => Err(fault),
        }
    }
}
