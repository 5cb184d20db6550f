//! A record in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::mem;
use std::ops::Deref;

use super::environment::Environment;
use super::op::{Applied, Op};
use super::rows::{
    Body, Change, Changes, Class, Description, End, Head, Holder, Kind, Latch, LeaseKind, Leases,
    Note, Part, Row, Slot, Waiter,
};
use super::source::Source;
use crate::id::{ClientId, LeaseId};
use crate::latch::ArrivalId;
use crate::time::StoreTime;
use crate::token::Token;

/// The head and the rows of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rows {
    head: Head,
    holders: BTreeMap<LeaseId, Holder>,
    /// By their places.
    waiters: BTreeMap<u64, Waiter>,
    places: BTreeMap<LeaseId, u64>,
    arrivals: BTreeSet<ArrivalId>,
    notes: BTreeMap<Slot, Note>,
    description: Option<Description>,
}

impl Rows {
    /// The record of a mutex with this holder.
    #[must_use]
    pub fn held(holder: Holder, counter: Option<Token>) -> Self {
        let mut leases = Leases::new(LeaseKind::Mutex, 1);
        leases.count(&holder);
        leases.sole = Some(holder);
        let head = Head {
            counter,
            body: Body::Leases(leases),
            ..Head::default()
        };
        Self {
            head,
            ..Self::default()
        }
    }

    /// All rows beside the head, those that have ended included.
    pub fn parts(&self) -> impl Iterator<Item = (Part, Row)> + '_ {
        let holders = self.holders.values();
        let holders = holders.map(|it| (Part::Holder(it.lease), Row::Holder(*it)));
        let waiters = self.waiters.values();
        let waiters = waiters.map(|it| (Part::Waiter(it.lease), Row::Waiter(it.clone())));
        let arrivals = self.arrivals.iter();
        let arrivals = arrivals.map(|id| (Part::Arrival(id.clone()), Row::Arrival));
        let notes = self.notes.iter();
        let notes = notes.map(|(slot, note)| (Part::Note(slot.clone()), Row::Note(note.clone())));
        let description = self.description.iter();
        let description = description.map(|it| (Part::Description, Row::Description(it.clone())));
        holders
            .chain(waiters)
            .chain(arrivals)
            .chain(notes)
            .chain(description)
    }

    /// Applies an operation, if `reaches` returns whether a client is alive.
    pub fn apply(
        &mut self,
        op: &Op,
        environment: &Environment,
        reaches: impl FnMut(ClientId) -> bool,
    ) -> Applied {
        let mut source = self.source(reaches);
        let Ok(mut applied) = super::apply(&mut source, op, environment);
        self.store(mem::take(&mut applied.changes));
        applied
    }

    /// Lets leases end at these times where that is earlier.
    pub fn end_by(&mut self, end: impl Fn(LeaseId) -> Option<StoreTime>) {
        let Body::Leases(leases) = &mut self.head.body else {
            return;
        };
        let holders = leases.sole.iter_mut().chain(self.holders.values_mut());
        for holder in holders {
            let Some(end) = end(holder.lease).map(End::At) else {
                continue;
            };
            holder.end = holder.end.min(end);
            leases.earliest = leases.earliest.map(|earliest| earliest.min(end));
        }
    }

    /// Lets the next tokens be larger than one that was given out elsewhere.
    pub fn raise_counter(&mut self, token: Option<Token>) {
        self.head.counter = self.head.counter.max(token);
    }

    /// The head.
    #[must_use]
    pub const fn head(&self) -> &Head {
        &self.head
    }

    /// All holders, those whose leases have ended included.
    pub fn all_holders(&self) -> impl Iterator<Item = &Holder> {
        let sole = match &self.head.body {
            Body::Leases(leases) => leases.sole.as_ref(),
            _ => None,
        };
        sole.into_iter().chain(self.holders.values())
    }

    /// The holders whose leases have not ended.
    pub fn holders(&self, environment: &Environment) -> impl Iterator<Item = &Holder> {
        let holders = self.all_holders();
        holders.filter(|holder| !environment.is_over(holder.end))
    }

    /// The waiters in their order, unless the queue has ended.
    pub fn waiters(&self, environment: &Environment) -> impl Iterator<Item = &Waiter> {
        let is_kept = environment.now < self.head.queue.until;
        self.waiters.values().filter(move |_| is_kept)
    }

    /// What the name is used as.
    #[must_use]
    pub fn kind(&self, environment: &Environment) -> Option<Kind> {
        match &self.head.body {
            Body::Leases(leases) => {
                let is_used = leases.is_set(environment.now)
                    || self.holders(environment).next().is_some()
                    || self.waiters(environment).next().is_some();
                is_used.then_some(Kind::Leases(leases.kind))
            }
            Body::Latch(_) => self.latch(environment).map(|_| Kind::Latch),
            Body::Free => None,
        }
    }

    /// The latch, if it has not ended.
    #[must_use]
    pub fn latch(&self, environment: &Environment) -> Option<&Latch> {
        match &self.head.body {
            Body::Latch(latch) if environment.now < latch.until => Some(latch),
            _ => None,
        }
    }

    /// The lease that was revoked last.
    #[must_use]
    pub fn revoked(&self, environment: &Environment) -> Option<LeaseId> {
        let (lease, until) = self.head.revoked?;
        (environment.now < until).then_some(lease)
    }

    /// The notes that have not ended.
    pub fn notes(&self, environment: &Environment) -> impl Iterator<Item = (&Slot, &Note)> {
        let now = environment.calendar;
        self.notes.iter().filter(move |(_, note)| now < note.until)
    }

    /// Removes the notes that have ended, and returns their slots.
    pub fn remove_ended_notes(&mut self, environment: &Environment) -> Vec<Slot> {
        let is_ended = |(_, note): &(&Slot, &Note)| environment.calendar >= note.until;
        let ended = self.notes.iter().filter(is_ended);
        let ended: Vec<_> = ended.map(|(slot, _)| slot.clone()).collect();
        for slot in &ended {
            self.notes.remove(slot);
        }
        ended
    }

    /// Whether there is something that has not ended, or a counter that is ahead of the clock.
    #[must_use]
    pub fn is_needed(&self, environment: &Environment) -> bool {
        environment.now < self.head.kept_until()
            || self.holders(environment).next().is_some()
            || self.notes(environment).next().is_some()
            || self.description(environment).is_some()
    }

    /// A note that has not ended.
    #[must_use]
    pub fn note(&self, slot: &Slot, environment: &Environment) -> Option<&Note> {
        let note = self.notes.get(slot);
        note.filter(|note| environment.calendar < note.until)
    }

    /// The description of a client, if it has not ended.
    #[must_use]
    pub fn description(&self, environment: &Environment) -> Option<&Description> {
        let description = self.description.as_ref();
        description.filter(|description| environment.now < description.until)
    }

    /// The record as the rule reads it, if `reaches` returns whether a client is alive.
    pub const fn source<F: FnMut(ClientId) -> bool>(&self, reaches: F) -> RowsSource<&Self, F> {
        RowsSource {
            rows: self,
            reaches,
        }
    }

    /// The same for a rule whose changes are stored by [`RowsSource::rows_mut`].
    pub const fn source_mut<F>(&mut self, reaches: F) -> RowsSource<&mut Self, F>
    where
        F: FnMut(ClientId) -> bool,
    {
        RowsSource {
            rows: self,
            reaches,
        }
    }

    /// Stores the changes of an operation.
    pub fn store(&mut self, changes: Changes) {
        self.head = changes.head.unwrap_or(self.head);
        for change in changes.rows {
            match change {
                Change::Put(part, row) => self.put(part, row),
                Change::Remove(part) => self.remove(&part),
                Change::Clear(Class::Arrivals) => self.arrivals.clear(),
                Change::Clear(Class::Waiters) => {
                    self.waiters.clear();
                    self.places.clear();
                }
            }
        }
    }

    fn put(&mut self, part: Part, row: Row) {
        match (part, row) {
            (Part::Holder(lease), Row::Holder(holder)) => {
                self.holders.insert(lease, holder);
            }
            (Part::Waiter(lease), Row::Waiter(waiter)) => {
                self.places.insert(lease, waiter.place);
                self.waiters.insert(waiter.place, waiter);
            }
            (Part::Arrival(id), Row::Arrival) => {
                self.arrivals.insert(id);
            }
            (Part::Note(slot), Row::Note(note)) => {
                self.notes.insert(slot, note);
            }
            (Part::Description, Row::Description(description)) => {
                self.description = Some(description);
            }
            // The rule writes no row of another class.
            _ => {}
        }
    }

    fn remove(&mut self, part: &Part) {
        match part {
            Part::Holder(lease) => {
                self.holders.remove(lease);
            }
            Part::Waiter(lease) => {
                if let Some(place) = self.places.remove(lease) {
                    self.waiters.remove(&place);
                }
            }
            Part::Arrival(id) => {
                self.arrivals.remove(id);
            }
            Part::Note(slot) => {
                self.notes.remove(slot);
            }
            Part::Description => self.description = None,
        }
    }
}

/// A record in memory as the rule reads it.
#[derive(Debug)]
pub struct RowsSource<R, F> {
    rows: R,
    reaches: F,
}

impl<F> RowsSource<&mut Rows, F> {
    /// The record itself.
    pub const fn rows_mut(&mut self) -> &mut Rows {
        self.rows
    }
}

impl<R: Deref<Target = Rows>, F: FnMut(ClientId) -> bool> Source for RowsSource<R, F> {
    type Error = Infallible;

    fn head(&mut self) -> Result<Head, Infallible> {
        Ok(self.rows.head)
    }

    fn row(&mut self, part: &Part) -> Result<Option<Row>, Infallible> {
        let rows = &*self.rows;
        Ok(match part {
            Part::Holder(lease) => rows.holders.get(lease).copied().map(Row::Holder),
            Part::Waiter(lease) => {
                let place = rows.places.get(lease);
                let waiter = place.and_then(|place| rows.waiters.get(place));
                waiter.cloned().map(Row::Waiter)
            }
            Part::Arrival(id) => rows.arrivals.contains(id).then_some(Row::Arrival),
            Part::Note(slot) => rows.notes.get(slot).cloned().map(Row::Note),
            Part::Description => rows.description.clone().map(Row::Description),
        })
    }

    fn holders(&mut self) -> Result<Vec<Holder>, Infallible> {
        Ok(self.rows.holders.values().copied().collect())
    }

    fn waiter_from(&mut self, place: u64) -> Result<Option<Waiter>, Infallible> {
        let mut waiters = self.rows.waiters.range(place..);
        Ok(waiters.next().map(|(_, waiter)| waiter.clone()))
    }

    fn waiters_between(&mut self, from: u64, to: u64) -> Result<u32, Infallible> {
        let count = self.rows.waiters.range(from..to.max(from)).count();
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn reaches(&mut self, client: ClientId) -> Result<bool, Infallible> {
        Ok((self.reaches)(client))
    }
}
