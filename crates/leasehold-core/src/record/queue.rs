//! The queue of a lock, and the grant step that serves it.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Transaction;
use super::convert::ConvertRequest;
use super::notes::Checked;
use super::op::{Acquire, Grant, Notice, Outcome, Run};
use super::rows::{Change, Claim, Class, Condition, Holder, Part, QueueHead, Row, Slot, Waiter};
use super::source::Source;
use crate::annotation::Annotation;
use crate::id::LeaseId;
use crate::time::{StoreTime, Ttl};
use crate::token::Token;

/// How long the store keeps a lease that it granted to a waiter until the waiter renews it: the time that a
/// waiter which cannot accept its grant costs the others at most.
pub const ACCEPTANCE_MS: u64 = 3_000;

/// A waiter retries at least once in its ttl. Its queue outlives that by this much.
const SPARE: Duration = Duration::from_secs(1);

/// The ttl of a grant to a waiter whose request was for `ttl`: that, and at most [`ACCEPTANCE_MS`].
#[must_use]
pub fn acceptance(ttl: Ttl) -> Ttl {
    Ttl::from_millis(ttl.as_millis().min(ACCEPTANCE_MS)).unwrap_or(ttl)
}

/// How long a queue is kept after a request for `ttl`: two of them and a second.
#[must_use]
pub fn retention(ttl: Ttl) -> Duration {
    ttl.as_duration() * 2 + SPARE
}

/// The place of the conversion that waits, before all others. There is one at most.
const CONVERSION_PLACE: u64 = 0;

/// The smallest place of any other waiter.
const FIRST_PLACE: u64 = 1;

impl Waiter {
    /// Whether it holds, and waits to hold more.
    #[must_use]
    pub const fn is_conversion(&self) -> bool {
        self.place == CONVERSION_PLACE
    }
}

/// The most grants in one run.
pub(super) const GRANTS_MAX: u32 = 64;

/// The most waiters that one run drops.
pub(super) const DROPS_MAX: u32 = 1_024;

/// The progress of a run in the queue.
#[derive(Default)]
pub(super) struct Progress {
    /// This run has removed all waiters before this place.
    removed_before: u64,
    /// The waiter at this place has left by its own request.
    removed_at: Option<u64>,
    /// A waiter has joined, which the source does not have.
    joined: bool,
    /// It is a conversion, before all others.
    joined_first: bool,
    grants: u32,
    drops: u32,
    /// There was a grant or a minimum hold, and the first living waiter behind it is not notified yet.
    pub(super) notification_pending: bool,
    /// This run goes on where another one was unfinished.
    pub(super) resumes: bool,
    /// The first waiter fits, and there is no token for it.
    pub(super) exhausted: bool,
    /// This run has reached its limits, and waiters are left that might be granted.
    pub(super) unfinished: bool,
}

impl<S: Source> Transaction<'_, S> {
    /// Grants what is free to the first waiters, as far as they fit. Then it notifies the first one behind them.
    ///
    /// A dead waiter is dropped even if it does not fit, because it keeps back those behind it. A waiter whose run is
    /// complete is also dropped.
    pub(super) fn serve(&mut self, requester: Option<LeaseId>) -> Result<(), S::Error> {
        while let Some(waiter) = self.next_to_serve(requester)? {
            if self.progress.grants >= GRANTS_MAX {
                self.progress.unfinished = true;
                return Ok(());
            }
            let holder = match waiter.is_conversion() {
                true => self.active_holder(waiter.lease)?,
                false => None,
            };
            let has_ended = waiter.is_conversion() && holder.is_none();
            if has_ended || !self.source.reaches(waiter.lease.client)? {
                if !self.drop_first(&waiter) {
                    return Ok(());
                }
                continue;
            }
            let (lease, weight) = (waiter.lease, waiter.claim.weight());
            if self.leases().is_some_and(|leases| weight > leases.limit) {
                // The limit was set below. It is told to ask again, and gets the mismatch.
                if !self.drop_first(&waiter) {
                    return Ok(());
                }
                let ttl = Ttl::remainder(Duration::ZERO);
                self.notices.push(Notice::Next { lease, ttl });
                continue;
            }
            let run = match self.check_condition(waiter.condition.as_ref())? {
                Checked::Unmet(run) => run,
                Checked::Met(note) => {
                    if !self.drop_first(&waiter) {
                        return Ok(());
                    }
                    self.notices.push(Notice::Complete { lease, note });
                    continue;
                }
            };
            let own = holder.map_or(0, |holder| holder.weight);
            if !self.has_room(weight.saturating_sub(own)) {
                break;
            }
            if !self.grant(&waiter, holder, run)? {
                self.progress.exhausted = true;
                return Ok(());
            }
        }
        self.notify_next()
    }

    /// Lets the grant step go on where another run was unfinished.
    pub(super) const fn resume(&mut self) -> Outcome {
        self.progress.resumes = true;
        self.progress.notification_pending = true;
        Outcome::Served
    }

    /// The first waiter, if a permit is free, or if this run, or the one that it goes on with, has written a completion,
    /// which may be that of the waiter.
    ///
    /// If the head is the lease of the request to acquire, it stays: the reply is its grant.
    fn next_to_serve(&mut self, requester: Option<LeaseId>) -> Result<Option<Waiter>, S::Error> {
        let written = self.written.as_ref();
        let has_completed = written.is_some_and(|(slot, _)| *slot != Slot::Value);
        if self.progress.joined_first {
            return Ok(None);
        }
        if !has_completed && !self.progress.resumes && !self.has_room(1) {
            return Ok(None);
        }
        let first = self.first_waiter()?;
        Ok(first.filter(|it| it.is_conversion() || requester != Some(it.lease)))
    }

    /// Grants to the first waiter, which is the `holder` if it waits to be converted. Returns whether there was a token.
    fn grant(
        &mut self,
        waiter: &Waiter,
        holder: Option<Holder>,
        run: Option<Run>,
    ) -> Result<bool, S::Error> {
        let (lease, claim, ttl) = (waiter.lease, waiter.claim, acceptance(waiter.ttl));
        let first = match &holder {
            Some(holder) => self.converted_tokens(holder, claim, waiter.tokens),
            None => self.tokens_of(claim, Token::at(self.environment.now), waiter.tokens),
        };
        let Some(first) = first else {
            return Ok(false);
        };
        self.remove_first(waiter);
        let number = self.free_number(claim)?;
        let holder = match holder {
            Some(holder) => self.store_converted(&holder, claim.weight(), first, ttl),
            None => self.add_holder(Holder {
                lease,
                is_reserved: false,
                count: NonZeroU32::MIN,
                weight: claim.weight(),
                number,
                first,
                requested_at: run.as_ref().map(|run| run.requested_at),
                end: self.environment.end(ttl, None),
            }),
        };
        self.progress.grants += 1;
        self.progress.notification_pending = true;
        let floor = self.floor(&holder)?;
        let grant = Grant {
            lease,
            ttl,
            first,
            number: holder.number,
            floor,
            now: self.environment.now,
            run,
        };
        self.notices.push(Notice::Granted(grant));
        Ok(true)
    }

    /// Notifies the first living waiter behind a grant or a minimum hold.
    ///
    /// A dead waiter cannot watch that time, and by their positions the others would retry too late.
    fn notify_next(&mut self) -> Result<(), S::Error> {
        let earliest = self.leases().and_then(|leases| leases.earliest);
        let Some(end) = earliest.filter(|_| self.progress.notification_pending) else {
            return Ok(());
        };
        while let Some(waiter) = self.first_waiter()? {
            let lease = waiter.lease;
            if self.source.reaches(lease.client)? {
                let ttl = Ttl::remainder(self.environment.time_left(end));
                self.notices.push(Notice::Next { lease, ttl });
                break;
            }
            if !self.drop_first(&waiter) {
                return Ok(());
            }
        }
        self.progress.notification_pending = false;
        Ok(())
    }

    /// Drops the first waiter. Returns whether this run may drop one: otherwise it is unfinished.
    fn drop_first(&mut self, waiter: &Waiter) -> bool {
        if self.progress.drops >= DROPS_MAX {
            self.progress.unfinished = true;
            return false;
        }
        self.progress.drops += 1;
        self.remove_first(waiter);
        true
    }

    fn remove_first(&mut self, waiter: &Waiter) {
        self.progress.removed_before = waiter.place + 1;
        self.remove_waiter(waiter);
    }

    /// A waiter whose run is complete leaves by its own request, before the others are served: none of them is behind it
    /// then. Returns the completion.
    pub(super) fn leave_if_complete(
        &mut self,
        request: &Acquire,
    ) -> Result<Option<Annotation>, S::Error> {
        if request.claim != Claim::Mutex || request.unless.is_none() {
            return Ok(None);
        }
        let waiter = self.waiter(request.lease)?;
        let Some(waiter) = waiter.filter(|waiter| waiter.claim == Claim::Mutex) else {
            return Ok(None);
        };
        Ok(match self.check_condition(waiter.condition.as_ref())? {
            Checked::Unmet(_) => None,
            Checked::Met(note) => {
                self.leave(Some(&waiter));
                Some(note)
            }
        })
    }

    /// A waiter leaves by its own request, from whatever place.
    pub(super) fn leave(&mut self, waiter: Option<&Waiter>) {
        if let Some(waiter) = waiter {
            self.progress.removed_at = Some(waiter.place);
            self.remove_waiter(waiter);
        }
    }

    fn remove_waiter(&mut self, waiter: &Waiter) {
        let part = Part::Waiter(waiter.lease);
        self.changes.rows.push(Change::Remove(part));
        let queue = &mut self.head.queue;
        queue.len = queue.len.saturating_sub(1);
        if queue.len == 0 {
            queue.until = StoreTime::default();
        }
        self.is_visible = true;
    }

    /// Keeps the queue for a request that waits. A new one joins at the end.
    pub(super) fn join(
        &mut self,
        request: &Acquire,
        waiter: Option<&Waiter>,
        condition: Option<Condition>,
    ) {
        let place = self.head.queue.next_place.max(FIRST_PLACE);
        self.add_waiter(
            Waiter {
                lease: request.lease,
                place,
                claim: request.claim,
                ttl: request.ttl,
                tokens: request.tokens,
                condition,
            },
            waiter,
        );
    }

    /// The same for a conversion, which waits before all others.
    pub(super) fn join_first(&mut self, request: &ConvertRequest, waiter: Option<&Waiter>) {
        let same = waiter.filter(|waiter| waiter.claim.weight() == request.claim.weight());
        if same.is_none() {
            self.leave(waiter);
            self.progress.joined_first = true;
        }
        self.add_waiter(
            Waiter {
                lease: request.lease,
                place: CONVERSION_PLACE,
                claim: request.claim,
                ttl: request.ttl,
                tokens: request.tokens,
                condition: None,
            },
            same,
        );
    }

    /// Keeps the queue, and adds a waiter unless it is there.
    fn add_waiter(&mut self, new: Waiter, waiter: Option<&Waiter>) {
        let queue = &mut self.head.queue;
        let until = self.environment.now.after_span(retention(new.ttl));
        queue.until = queue.until.max(until);
        if waiter.is_some() {
            return;
        }
        queue.next_place = queue.next_place.max(new.place + 1);
        queue.len = queue.len.saturating_add(1);
        self.progress.joined = true;
        let part = Part::Waiter(new.lease);
        self.changes.rows.push(Change::Put(part, Row::Waiter(new)));
        self.is_visible = true;
    }

    /// A waiter, unless this run has removed it.
    pub(super) fn waiter(&mut self, lease: LeaseId) -> Result<Option<Waiter>, S::Error> {
        if self.head.queue.len == 0 {
            return Ok(None);
        }
        let waiter = self.source.waiter(lease)?;
        Ok(waiter.filter(|waiter| waiter.place >= self.progress.removed_before))
    }

    /// How many wait before a waiter; before one that has not joined, all do.
    pub(super) fn waiters_before(&mut self, waiter: Option<&Waiter>) -> Result<u32, S::Error> {
        match waiter {
            Some(waiter) => {
                let from = self.progress.removed_before;
                self.source.waiters_between(from, waiter.place)
            }
            None => Ok(self.head.queue.len),
        }
    }

    /// The first waiter of those that joined before this run.
    fn first_waiter(&mut self) -> Result<Option<Waiter>, S::Error> {
        if self.head.queue.len == 0 {
            return Ok(None);
        }
        let mut first = self.source.waiter_from(self.progress.removed_before)?;
        if let Some(waiter) = &first
            && self.progress.removed_at == Some(waiter.place)
        {
            first = self.source.waiter_from(waiter.place + 1)?;
        }
        if first.is_none() && !self.progress.joined {
            // The rows of waiters are lost. Those that are counted must not keep back others.
            let next_place = self.head.queue.next_place;
            self.head.queue = QueueHead {
                next_place,
                ..QueueHead::default()
            };
        }
        Ok(first)
    }

    /// Drops all waiters if there was no request for too long.
    pub(super) fn drop_ended_queue(&mut self) {
        let QueueHead {
            len,
            next_place,
            until,
        } = self.head.queue;
        if len > 0 && self.environment.now >= until {
            self.progress.removed_before = next_place;
            self.head.queue = QueueHead {
                next_place,
                ..QueueHead::default()
            };
            self.changes.rows.push(Change::Clear(Class::Waiters));
        }
    }
}
