//! What a lease holds is changed while it holds: upgrades, downgrades, and the limit of a semaphore.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Transaction;
use super::leases::limit_of;
use super::op::{Mismatch, Outcome};
use super::rows::{Access, Body, Claim, Holder, Kind, LeaseKind, Leases, Setting, Waiter};
use super::source::Source;
use crate::id::LeaseId;
use crate::time::Ttl;
use crate::token::{Token, TokenCount};

/// A request to convert what a lease holds.
pub(super) struct ConvertRequest {
    pub(super) lease: LeaseId,
    pub(super) first: Token,
    pub(super) claim: Claim,
    pub(super) ttl: Ttl,
    pub(super) tokens: TokenCount,
    pub(super) wait: bool,
}

impl<S: Source> Transaction<'_, S> {
    pub(super) fn convert(&mut self, request: &ConvertRequest) -> Result<Outcome, S::Error> {
        let limit = match limit_of(&self.head, request.claim) {
            Ok(limit) => limit,
            Err(mismatch) => return Ok(Outcome::Mismatch(mismatch)),
        };
        let Some(holder) = self.active_holder(request.lease)? else {
            return self.lost(request.lease);
        };
        let weight = request.claim.weight();
        if weight > limit.max(holder.weight) {
            return self.never_fits(request.lease);
        }
        let waiter = self.waiter(request.lease)?;
        if weight != holder.weight && request.first != holder.first {
            return Ok(Outcome::Outdated);
        }
        if !self.has_room(weight.saturating_sub(holder.weight)) {
            return self.refuse_conversion(request, &holder, waiter, limit);
        }
        let Some(first) = self.converted_tokens(&holder, request.claim, request.tokens) else {
            return Ok(Outcome::Exhausted);
        };
        self.leave(waiter.as_ref());
        let holder = self.store_converted(&holder, weight, first, request.ttl);
        self.granted(&holder, None)
    }

    /// A conversion that does not fit waits, or may not.
    fn refuse_conversion(
        &mut self,
        request: &ConvertRequest,
        holder: &Holder,
        waiter: Option<Waiter>,
        limit: u64,
    ) -> Result<Outcome, S::Error> {
        if !request.wait {
            return Ok(self.refused(None));
        }
        let is_most = holder.weight > limit / 2;
        if waiter.is_none() && !(is_most && self.conversion()?.is_none()) {
            return Ok(Outcome::Mismatch(Mismatch::Conversion));
        }
        self.join_first(request, waiter.as_ref());
        Ok(self.refused(Some(0)))
    }

    /// The first token of a lease that is converted. `None`: there is no larger one.
    pub(super) fn converted_tokens(
        &mut self,
        holder: &Holder,
        claim: Claim,
        tokens: TokenCount,
    ) -> Option<Token> {
        let proposal = Token::at(self.environment.now);
        match claim {
            // Readers behind a writer are a new phase, others keep theirs.
            Claim::Access(Access::Read | Access::Upgradable) => {
                self.tokens_of(claim, proposal, tokens)
            }
            _ if claim.weight() == holder.weight => Some(holder.first),
            _ => match self.reserve_tokens(proposal, tokens) {
                Some(first) => {
                    if let Body::Leases(leases) = &mut self.head.body {
                        leases.phase = None;
                    }
                    Some(first)
                }
                // Fewer permits are always granted.
                None => (claim.weight() < holder.weight).then_some(holder.first),
            },
        }
    }

    pub(super) fn store_converted(
        &mut self,
        holder: &Holder,
        weight: u64,
        first: Token,
        ttl: Ttl,
    ) -> Holder {
        let converted = Holder {
            weight,
            first,
            end: self.environment.end(ttl, Some(holder.end)),
            ..*holder
        };
        if let Body::Leases(leases) = &mut self.head.body {
            leases.used = leases.used.saturating_sub(holder.weight) + weight;
        }
        self.is_visible |= weight != holder.weight;
        self.store_holder(converted);
        converted
    }

    /// The conversion that waits, if one did before this run.
    fn conversion(&mut self) -> Result<Option<Waiter>, S::Error> {
        if self.head.queue.len == 0 {
            return Ok(None);
        }
        let first = self.source.waiter_from(0)?;
        Ok(first.filter(Waiter::is_conversion))
    }

    /// A lease that ends does not wait to be converted.
    pub(super) fn end_conversion(&mut self, lease: LeaseId) -> Result<(), S::Error> {
        let is_mutex = self.leases().is_none_or(|it| it.kind == LeaseKind::Mutex);
        if !is_mutex && let Some(waiter) = self.conversion()?.filter(|it| it.lease == lease) {
            self.leave(Some(&waiter));
        }
        Ok(())
    }

    /// Sets the number of permits. A repeated setting changes nothing.
    pub(super) fn set_limit(
        &mut self,
        permits: NonZeroU32,
        if_version: Option<u64>,
        keep: Duration,
    ) -> Outcome {
        let limit = u64::from(permits.get());
        let leases = match self.head.body {
            Body::Leases(leases) if leases.kind == LeaseKind::Semaphore => leases,
            Body::Leases(leases) => {
                return Outcome::Mismatch(Mismatch::Kind(Kind::Leases(leases.kind)));
            }
            _ => Leases::new(LeaseKind::Semaphore, limit),
        };
        let until = self.environment.now.after_span(keep);
        let (version, until) = leases.setting.map_or((0, until), |setting| {
            (setting.version, setting.until.max(until))
        });
        let version = match if_version {
            Some(replaced) if replaced == version => version + 1,
            Some(replaced) if version > 0 && replaced == version - 1 && leases.limit == limit => {
                version
            }
            Some(_) => return Outcome::Outdated,
            None => version + 1,
        };
        let setting = Some(Setting {
            version,
            keep,
            until,
        });
        self.head.body = Body::Leases(Leases {
            limit,
            setting,
            ..leases
        });
        self.is_visible = true;
        Outcome::Stored
    }
}
