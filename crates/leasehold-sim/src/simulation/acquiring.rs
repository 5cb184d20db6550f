//! A client that acquires the lock: an acquisition, and the mutations around it.

use std::time::Duration;

use leasehold_core::acquisition::{
    AcquireNotice, AcquireReply, AcquisitionOptions, Failure, GrantedLease, Timer,
};
use leasehold_core::contention::Backoff;
use leasehold_core::{
    Acquisition, Grant, Instant, Lease, Outcome, StoreTime, Term, TokenCount, time,
};

use super::calls::Context;
use super::report::Occurrence;
use super::setup::{Mutation, Setup};

/// How many tokens a grant reserves.
pub(super) const TOKENS: TokenCount = TokenCount::MIN.saturating_add(7);

/// The shard of the store.
pub(super) const SHARD: u32 = 0;

/// An acquisition, with the facts that its mutations need.
#[derive(Debug)]
pub(super) struct Acquiring {
    pub(super) acquisition: Acquisition,
    pub(super) gives_up: Instant,
    pub(super) hold_for: Duration,
    /// The notified grant, until it is accepted or the reply to a later request is read.
    pub(super) notice: Option<Grant>,
    /// Whether a reply had a place in the queue.
    pub(super) queued: bool,
}

impl Acquiring {
    pub(super) fn new(
        options: AcquisitionOptions,
        gives_up: Instant,
        hold_for: Duration,
        cx: &Context<'_>,
    ) -> Self {
        Self {
            acquisition: Acquisition::new(options, Backoff::default(), cx.now),
            gives_up,
            hold_for,
            notice: None,
            queued: false,
        }
    }

    pub(super) fn next_timeout(&self, setup: &Setup) -> Option<Instant> {
        if setup.has(Mutation::NoRetryTimer) && self.acquisition.is_queued() {
            return self.acquisition.timer(Timer::NextInQueue);
        }
        self.acquisition.next_timeout()
    }

    pub(super) fn count_timer(&self, cx: &mut Context<'_>) {
        let expired = |timer| self.acquisition.timer(timer).is_some_and(|at| at <= cx.now);
        if expired(Timer::NextInQueue) {
            cx.report.count(Occurrence::NextTimer);
        } else if expired(Timer::Retry) && self.queued {
            cx.report.count(Occurrence::RetryTimer);
        }
    }

    pub(super) fn handle_notice(&mut self, notice: AcquireNotice, cx: &mut Context<'_>) {
        let spread = cx.spread();
        self.acquisition.handle_notice(notice, cx.now, spread);
    }

    pub(super) fn handle_grant(&mut self, grant: Grant, cx: &mut Context<'_>) {
        self.notice = Some(grant.clone());
        self.handle_notice(AcquireNotice::Granted(grant), cx);
    }

    /// Processes a reply, with the store's time. `None`: there is none.
    pub(super) fn handle_reply(
        &mut self,
        reply: Option<(Outcome, StoreTime)>,
        cx: &mut Context<'_>,
    ) {
        match &reply {
            Some((Outcome::Granted { .. }, _)) => self.notice = None,
            Some((Outcome::Refused { queue_position, .. }, _)) => {
                self.queued |= queue_position.is_some();
            }
            _ => {}
        }
        let reply = match reply {
            Some((outcome, now)) => AcquireReply::Applied {
                outcome,
                now,
                shard: Some(SHARD),
                notifies_changes: true,
            },
            None => AcquireReply::Unknown(Failure::Transient),
        };
        let spread = cx.spread();
        self.acquisition.handle_reply(reply, cx.now, spread);
    }

    /// The lease of a notified grant that a mutation accepts nevertheless.
    pub(super) fn accepted_late(&self, grant: &Grant, cx: &Context<'_>) -> GrantedLease {
        let policy = self.acquisition.options().lease.policy;
        let times = (cx.now, time::deadline(cx.now, grant.ttl));
        let (lease, hold) = Lease::accepted(policy, grant.ttl, Term::Renewed, times);
        GrantedLease {
            id: grant.lease,
            lease,
            hold,
            first: grant.first,
            tokens: TOKENS,
            run: None,
            late_release: None,
        }
    }

    /// The granted lease, with the deadline of a mutation.
    pub(super) fn mutated(&self, granted: GrantedLease, cx: &mut Context<'_>) -> GrantedLease {
        let options = self.acquisition.options().lease;
        let (policy, ttl) = (options.policy, options.ttl());
        let accepted = self.notice.as_ref();
        let accepted = accepted.filter(|grant| grant.first == granted.first);
        if accepted.is_some() {
            cx.report.count(Occurrence::Accepted);
        }
        let Some(grant) = accepted.filter(|_| cx.setup.has(Mutation::AcceptsFullTtl)) else {
            return granted;
        };
        let longer = ttl.as_duration().saturating_sub(grant.ttl.as_duration());
        let deadline = granted.lease.deadline().after(longer);
        let (lease, hold) = Lease::accepted(policy, ttl, Term::Renewed, (cx.now, deadline));
        GrantedLease {
            lease,
            hold,
            ..granted
        }
    }
}
