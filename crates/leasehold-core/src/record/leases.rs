//! The operations of holders: acquire, renew, release. The kinds of locks differ only in the kind, the weight and the limit
//! of a claim.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use super::Transaction;
use super::notes::Checked;
use super::op::{Acquire, Loss, Mismatch, NewNote, Notice, Outcome, Run, Whom};
use super::rows::{
    Access, Body, Change, Claim, End, Head, Holder, Kind, LeaseKind, Leases, Part, Row, Waiter,
};
use super::source::Source;
use crate::id::LeaseId;
use crate::lock_event::REVOCATION_RETENTION;
use crate::time::Ttl;
use crate::token::{self, Token, TokenCount};

impl<S: Source> Transaction<'_, S> {
    /// A holder gets its grant again, a needless request ends, and any other request is granted or refused.
    pub(super) fn acquire(&mut self, request: &Acquire) -> Result<Outcome, S::Error> {
        let limit = match limit_of(&self.head, request.claim) {
            Ok(limit) => limit,
            Err(mismatch) => return Ok(Outcome::Mismatch(mismatch)),
        };
        match self.holder(request.lease)? {
            // It does not wait: its own grant would overwrite its minimum hold.
            Some(holder) if holder.is_reserved => Ok(self.refused(None)),
            Some(holder) => self.acquire_again(holder, request),
            None if request.claim.weight() > limit => self.never_fits(request.lease),
            // The first waiter fits, but the counter is at its end. A request for fewer tokens does not overtake it.
            None if self.progress.exhausted => Ok(Outcome::Exhausted),
            None => self.acquire_anew(request, limit),
        }
    }

    /// The limit may have been set while it waited.
    pub(super) fn never_fits(&mut self, lease: LeaseId) -> Result<Outcome, S::Error> {
        let waiter = self.waiter(lease)?;
        self.leave(waiter.as_ref());
        Ok(Outcome::Mismatch(Mismatch::Weight))
    }

    /// The same grant: its weight, its tokens and its request time stay.
    fn acquire_again(&mut self, holder: Holder, request: &Acquire) -> Result<Outcome, S::Error> {
        let condition = self.condition(request.unless.as_ref(), holder.requested_at);
        let run = match self.check_condition(condition.as_ref())? {
            Checked::Unmet(run) => run,
            Checked::Met(_) => None,
        };
        self.store_holder(Holder {
            count: request.count,
            end: self.environment.end(request.ttl, Some(holder.end)),
            ..holder
        });
        self.granted(&holder, run)
    }

    /// The outcome of a grant.
    pub(super) fn granted(
        &mut self,
        holder: &Holder,
        run: Option<Run>,
    ) -> Result<Outcome, S::Error> {
        let floor = self.floor(holder)?;
        Ok(Outcome::Granted {
            first: holder.first,
            number: holder.number,
            floor,
            run,
        })
    }

    fn acquire_anew(&mut self, request: &Acquire, limit: u64) -> Result<Outcome, S::Error> {
        if let Body::Free = self.head.body {
            self.head.body = Body::Leases(Leases::new(request.claim.kind(), limit));
        }
        let mut waiter = self.waiter(request.lease)?;
        if waiter.as_ref().is_some_and(Waiter::is_conversion) {
            // The lease that waited to be converted has ended.
            self.leave(waiter.take().as_ref());
        }
        let condition = match &waiter {
            Some(waiter) => waiter.condition.clone(),
            None => self.condition(request.unless.as_ref(), None),
        };
        let run = match self.check_condition(condition.as_ref())? {
            Checked::Unmet(run) => run,
            Checked::Met(note) => {
                self.leave(waiter.as_ref());
                return Ok(Outcome::Complete(note));
            }
        };
        let before = self.waiters_before(waiter.as_ref())?;
        if before > 0 || !self.has_room(request.claim.weight()) {
            if request.wait {
                self.join(request, waiter.as_ref(), condition);
            }
            return Ok(self.refused(request.wait.then_some(before)));
        }
        // Not behind the store's time, so that tokens grow also where the counter was lost.
        let proposal = request.proposal.filter(|_| request.claim == Claim::Mutex);
        let proposal = proposal.max(Token::at(self.environment.now));
        let Some(first) = self.tokens_of(request.claim, proposal, request.tokens) else {
            return Ok(Outcome::Exhausted);
        };
        self.leave(waiter.as_ref());
        let number = self.free_number(request.claim)?;
        let holder = self.add_holder(Holder {
            lease: request.lease,
            is_reserved: false,
            count: request.count,
            weight: request.claim.weight(),
            number,
            first,
            requested_at: run.as_ref().map(|run| run.requested_at),
            end: self.environment.end(request.ttl, None),
        });
        self.granted(&holder, run)
    }

    pub(super) fn refused(&self, queue_position: Option<u32>) -> Outcome {
        let earliest = self.leases().and_then(|leases| leases.earliest);
        Outcome::Refused {
            time_left: earliest.map(|end| self.environment.time_left(end)),
            queue_position,
        }
    }

    pub(super) fn renew(
        &mut self,
        lease: LeaseId,
        ttl: Ttl,
        count: Option<NonZeroU32>,
    ) -> Result<Outcome, S::Error> {
        let Some(holder) = self.active_holder(lease)? else {
            return self.lost(lease);
        };
        self.store_holder(Holder {
            count: count.unwrap_or(holder.count),
            end: self.environment.end(ttl, Some(holder.end)),
            ..holder
        });
        Ok(Outcome::Kept)
    }

    /// Writes the note first: a script that is cut off may leave a completion without a release, never a release without
    /// its completion.
    pub(super) fn release(
        &mut self,
        lease: LeaseId,
        rest: Option<Ttl>,
        note: Option<&NewNote>,
    ) -> Result<Outcome, S::Error> {
        let Some(holder) = self.active_holder(lease)? else {
            let lost = self.lost(lease)?;
            return Ok(match self.was_written(lease, note)? {
                true => Outcome::Released,
                false => lost,
            });
        };
        if let Some(note) = note {
            self.store_note(&holder, note)?;
        }
        self.end_conversion(lease)?;
        match rest {
            Some(rest) => self.reserve(holder, rest),
            None => self.remove_holder(&holder),
        }
        Ok(Outcome::Released)
    }

    /// Ends a lease whose permits stay taken for its minimum hold.
    fn reserve(&mut self, holder: Holder, rest: Ttl) {
        self.store_holder(Holder {
            is_reserved: true,
            count: NonZeroU32::MIN,
            end: self.environment.end(rest, None),
            ..holder
        });
        self.progress.notification_pending = true;
        self.is_visible = true;
    }

    pub(super) fn write_note(
        &mut self,
        lease: LeaseId,
        note: &NewNote,
    ) -> Result<Outcome, S::Error> {
        match self.active_holder(lease)? {
            Some(holder) => self.store_note(&holder, note),
            None => self.lost(lease),
        }
    }

    pub(super) fn set_token(
        &mut self,
        lease: LeaseId,
        first: Token,
        tokens: TokenCount,
    ) -> Result<Outcome, S::Error> {
        let Some(holder) = self.active_holder(lease)? else {
            return self.lost(lease);
        };
        let Some(last) = token::block_last(first, tokens) else {
            return Ok(Outcome::Exhausted);
        };
        // An equal one was stored before. No other lease can have stored it: the lock was held all the time.
        let is_stored = self.head.counter == Some(last);
        if !is_stored && self.head.counter >= Some(first) {
            return Ok(Outcome::Outdated);
        }
        self.head.counter = Some(last);
        self.store_holder(Holder { first, ..holder });
        Ok(Outcome::Stored)
    }

    pub(super) fn revoke(&mut self, whom: Whom) -> Result<Outcome, S::Error> {
        let mut holders = match whom {
            Whom::All => self.holders()?,
            Whom::One(lease) => self.holder(lease)?.into_iter().collect(),
        };
        holders.retain(|holder| !self.environment.is_over(holder.end));
        let until = self.environment.now.after_span(REVOCATION_RETENTION);
        for holder in &holders {
            let lease = holder.lease;
            self.end_conversion(lease)?;
            self.remove_holder(holder);
            self.head.revoked = Some((lease, until));
            self.notices.push(Notice::Revoked { lease });
        }
        let leases = holders.iter().map(|holder| holder.lease).collect();
        Ok(Outcome::Revoked(leases))
    }

    /// The outcome for a lease that does not hold. Only a holder renews and releases, so this lease no longer waits. The
    /// outcome is the state after the grant step.
    pub(super) fn lost(&mut self, lease: LeaseId) -> Result<Outcome, S::Error> {
        let waiter = self.waiter(lease)?;
        self.leave(waiter.as_ref());
        self.serve(None)?;
        let is_held = self.leases().is_some_and(|leases| leases.used > 0);
        Ok(Outcome::Lost(match is_held {
            true => Loss::TakenOver,
            false => Loss::Free,
        }))
    }

    /// Drops the holders whose leases have ended, and finds the next end.
    pub(super) fn drop_ended_holders(&mut self) -> Result<(), S::Error> {
        let earliest = self.leases().and_then(|leases| leases.earliest);
        if earliest.is_none_or(|earliest| !self.environment.is_over(earliest)) {
            return Ok(());
        }
        let holders = self.holders()?;
        let Body::Leases(leases) = &mut self.head.body else {
            return Ok(());
        };
        *leases = Leases {
            used: 0,
            earliest: None,
            sole: None,
            ..*leases
        };
        for holder in holders {
            if !self.environment.is_over(holder.end) {
                leases.count(&holder);
            } else if leases.kind != LeaseKind::Mutex {
                let part = Part::Holder(holder.lease);
                self.changes.rows.push(Change::Remove(part));
            }
        }
        if leases.used == 0 {
            leases.phase = None;
        }
        Ok(())
    }

    /// Adds a holder.
    pub(super) fn add_holder(&mut self, holder: Holder) -> Holder {
        if let Body::Leases(leases) = &mut self.head.body {
            leases.count(&holder);
        }
        self.store_holder(holder);
        self.is_visible = true;
        holder
    }

    /// Removes a holder.
    fn remove_holder(&mut self, holder: &Holder) {
        let Body::Leases(leases) = &mut self.head.body else {
            return;
        };
        leases.discount(holder);
        match leases.kind {
            LeaseKind::Mutex => leases.sole = None,
            LeaseKind::Semaphore | LeaseKind::RwLock => {
                let part = Part::Holder(holder.lease);
                self.changes.rows.push(Change::Remove(part));
                self.changed.insert(holder.lease, None);
            }
        }
        self.is_visible = true;
    }

    /// Stores a holder that is counted.
    pub(super) fn store_holder(&mut self, holder: Holder) {
        let Body::Leases(leases) = &mut self.head.body else {
            return;
        };
        leases.extend(&holder);
        if let Some(setting) = &mut leases.setting {
            let End::At(end) = holder.end;
            setting.until = setting.until.max(end.after_span(setting.keep));
        }
        match leases.kind {
            LeaseKind::Mutex => leases.sole = Some(holder),
            LeaseKind::Semaphore | LeaseKind::RwLock => {
                let part = Part::Holder(holder.lease);
                self.changes
                    .rows
                    .push(Change::Put(part, Row::Holder(holder)));
                self.changed.insert(holder.lease, Some(holder));
            }
        }
    }

    /// A holder that its requests may change.
    pub(super) fn active_holder(&mut self, lease: LeaseId) -> Result<Option<Holder>, S::Error> {
        let holder = self.holder(lease)?;
        Ok(holder.filter(|holder| !holder.is_reserved))
    }

    fn holder(&mut self, lease: LeaseId) -> Result<Option<Holder>, S::Error> {
        let Some(leases) = self.leases().filter(|leases| leases.used > 0) else {
            return Ok(None);
        };
        let holder = match (leases.kind, self.changed.get(&lease)) {
            (LeaseKind::Mutex, _) => leases.sole.filter(|sole| sole.lease == lease),
            (_, Some(changed)) => *changed,
            (_, None) => self.source.holder(lease)?,
        };
        Ok(holder.filter(|holder| !self.environment.is_over(holder.end)))
    }

    /// All holders. They may have ended.
    fn holders(&mut self) -> Result<Vec<Holder>, S::Error> {
        match self.leases() {
            Some(leases) if leases.kind == LeaseKind::Mutex => {
                return Ok(leases.sole.into_iter().collect());
            }
            Some(leases) if leases.used > 0 => {}
            _ => return Ok(Vec::new()),
        }
        if !self.has_all_holders {
            for holder in self.source.holders()? {
                self.changed.entry(holder.lease).or_insert(Some(holder));
            }
            self.has_all_holders = true;
        }
        Ok(self.changed.values().copied().flatten().collect())
    }

    /// The smallest number that no holder has, for a claim that asks for one.
    pub(super) fn free_number(&mut self, claim: Claim) -> Result<Option<u32>, S::Error> {
        if !matches!(claim, Claim::Permits { numbered: true, .. }) {
            return Ok(None);
        }
        let taken: BTreeSet<_> = self.live_holders()?.filter_map(|it| it.number).collect();
        Ok((0..).find(|number| !taken.contains(number)))
    }

    /// The smallest of the first tokens of all holders, for one that has a number.
    pub(super) fn floor(&mut self, holder: &Holder) -> Result<Option<Token>, S::Error> {
        if holder.number.is_none() {
            return Ok(None);
        }
        let smallest = self.live_holders()?.map(|it| it.first).min();
        Ok(smallest.into_iter().chain([holder.first]).min())
    }

    fn live_holders(&mut self) -> Result<impl Iterator<Item = Holder>, S::Error> {
        let (holders, environment) = (self.holders()?, self.environment);
        let holders = holders.into_iter();
        Ok(holders.filter(move |holder| !environment.is_over(holder.end)))
    }

    pub(super) const fn leases(&self) -> Option<&Leases> {
        match &self.head.body {
            Body::Leases(leases) => Some(leases),
            _ => None,
        }
    }

    pub(super) fn has_room(&self, weight: u64) -> bool {
        self.leases().is_some_and(|leases| leases.has_room(weight))
    }

    /// Reserves the tokens of a new holder: of its own, or of a reader the one of all readers. `None`: there is no larger
    /// token.
    pub(super) fn tokens_of(
        &mut self,
        claim: Claim,
        proposal: Option<Token>,
        tokens: TokenCount,
    ) -> Option<Token> {
        if !matches!(claim, Claim::Access(Access::Read | Access::Upgradable)) {
            return self.reserve_tokens(proposal, tokens);
        }
        let phase = self.leases().and_then(|leases| leases.phase);
        let phase = phase.or_else(|| self.reserve_tokens(proposal, TokenCount::MIN))?;
        if let Body::Leases(leases) = &mut self.head.body {
            leases.phase = Some(phase);
        }
        Some(phase)
    }

    /// Reserves the next block of tokens. `None`: there is no larger token.
    pub(super) fn reserve_tokens(
        &mut self,
        proposal: Option<Token>,
        tokens: TokenCount,
    ) -> Option<Token> {
        let first = token::next_block(self.head.counter, proposal?, tokens)?;
        self.head.counter = token::block_last(first, tokens);
        Some(first)
    }
}

/// The limit that counts for a claim, which must match how the name is used.
pub(super) fn limit_of(head: &Head, claim: Claim) -> Result<u64, Mismatch> {
    let requested = claim.limit();
    let Body::Leases(leases) = &head.body else {
        return Ok(requested);
    };
    if leases.kind != claim.kind() {
        return Err(Mismatch::Kind(Kind::Leases(leases.kind)));
    }
    match leases.setting.is_some() || leases.limit == requested {
        true => Ok(leases.limit),
        false => Err(Mismatch::Limit {
            stored: leases.limit,
            requested,
        }),
    }
}
