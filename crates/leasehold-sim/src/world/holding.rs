//! A client that was granted the lock: the real view of its lease, kept alive.

use std::num::NonZeroU32;

use fastrand::Rng;
use leasehold_core::{
    Action, Cause, HoldId, Instant, Lease, LeaseId, Op, Outcome, Policy, Term, Token, Ttl,
};

use super::belief::Belief;
use super::client::{Call, Caller, part};
use super::setup::Broken;

/// What a client knows when the lock is granted to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) lease: LeaseId,
    pub(super) token: Token,
    /// When the request was sent that was granted.
    pub(super) sent: Instant,
    pub(super) ttl: Ttl,
    pub(super) term: Term,
    /// Whether another request for the same lease may still run late.
    pub(super) unsure: bool,
}

#[derive(Debug)]
pub(super) struct Holding {
    broken: Option<Broken>,
    lease: LeaseId,
    token: Token,
    policy: Policy,
    machine: Lease,
    first: HoldId,
    work_until: Instant,
    renewal: Option<Call>,
    /// The request that tells the store a new hold count.
    recount: Option<Call>,
    inner: Option<(HoldId, Instant)>,
    /// Whether a request about this lease may still run late.
    unsure: bool,
    /// The store said that the lease is lost.
    lost: bool,
    /// The user was told that the lease is lost.
    noticed: bool,
}

impl Holding {
    pub(super) fn new(
        grant: Grant,
        policy: Policy,
        work_until: Instant,
        broken: Option<Broken>,
    ) -> Self {
        let (machine, first) = Lease::granted(policy, grant.ttl, grant.term, grant.sent);
        Self {
            broken,
            lease: grant.lease,
            token: grant.token,
            policy,
            machine,
            first,
            work_until,
            renewal: None,
            recount: None,
            inner: None,
            unsure: grant.unsure,
            lost: false,
            noticed: false,
        }
    }

    pub(super) fn belief(&self, now: Instant) -> Option<Belief> {
        let lost = match self.broken {
            Some(Broken::NoDeadline) => self.lost,
            _ => self.machine.state(now).is_lost(),
        };
        (!lost).then_some(Belief {
            lease: self.lease,
            token: self.token,
        })
    }

    pub(super) fn next_wake(&self, now: Instant) -> Instant {
        let mut next = self.work_until;
        if let Some(event) = self.machine.next_event(now) {
            next = next.min(event);
        }
        if let Some((_, until)) = self.inner {
            next = next.min(until);
        }
        for call in [self.renewal, self.recount].into_iter().flatten() {
            next = next.min(call.gives_up);
        }
        next
    }

    /// Tells it the time. `true`: the lease is over or no longer wanted.
    pub(super) fn wake(&mut self, caller: &mut Caller, now: Instant, rng: &mut Rng) -> bool {
        if self.renewal.is_some_and(|call| now >= call.gives_up) {
            self.renewal = None;
            self.unsure = true;
            self.machine.renewal_failed(now, Cause::Unreachable);
        }
        if let Action::Renew(ttl) = self.machine.poll(now) {
            let lease = self.lease;
            self.renewal = Some(caller.call(Op::Renew { lease, ttl }, ttl, now));
        }
        if now >= self.work_until {
            return true;
        }
        if self.belief(now).is_none() {
            // The user needs a moment to notice and to stop; answers still come meanwhile.
            if !self.noticed {
                self.noticed = true;
                let stopped = now.after(part(rng, self.policy.ttl, 2));
                self.work_until = self.work_until.min(stopped);
            }
            return false;
        }
        if self.recount.is_some_and(|call| now >= call.gives_up) {
            self.tell_count(caller, now);
        }
        match self.inner {
            Some((hold, until)) if now >= until => {
                self.inner = None;
                self.machine.leave(hold, now);
                self.tell_count(caller, now);
            }
            None if self.recount.is_none() && rng.bool() => {
                self.enter_again(caller, now, rng);
            }
            _ => {}
        }
        false
    }

    pub(super) fn answer(&mut self, number: u64, outcome: Outcome, now: Instant) {
        let answers = |call: &Option<Call>| call.filter(|call| call.number == number);
        if let Some(call) = answers(&self.renewal) {
            self.renewal = None;
            match outcome {
                Outcome::Renewed => self.renewed(call, now),
                lost => self.lose(Cause::of(&lost)),
            }
        } else if let Some(call) = answers(&self.recount) {
            self.recount = None;
            match outcome {
                Outcome::Granted { .. } | Outcome::Released { .. } => {
                    self.machine.confirmed(call.sent, call.ttl, now);
                }
                lost => self.lose(Cause::of(&lost)),
            }
        }
    }

    /// What must be given back: the lease, the longest ttl a late request may give it, and whether
    /// one may be under way.
    pub(super) fn leave(&self, now: Instant) -> (LeaseId, Ttl, bool) {
        let unsure = self.unsure;
        (self.lease, self.machine.ttl(now), unsure)
    }

    fn renewed(&mut self, call: Call, now: Instant) {
        let sent = match self.broken {
            Some(Broken::DeadlineFromReply) => now,
            _ => call.sent,
        };
        if self.broken == Some(Broken::RevivedLease) && self.machine.state(now).is_lost() {
            let term = self.machine.holds().term(self.first);
            let term = term.unwrap_or(Term::Renewed);
            (self.machine, self.first) = Lease::granted(self.policy, call.ttl, term, sent);
            self.inner = None;
        } else {
            self.machine.renewed(sent, call.ttl, now);
        }
    }

    fn lose(&mut self, cause: Cause) {
        self.lost = true;
        self.machine.lose(cause);
    }

    fn enter_again(&mut self, caller: &mut Caller, now: Instant, rng: &mut Rng) {
        let until = now.after(part(rng, self.policy.ttl, 1) * 2);
        let term = if rng.bool() {
            Term::Renewed
        } else {
            Term::Fixed(until)
        };
        let hold = self.machine.enter(term, now);
        self.inner = Some((hold, until));
        let lease = self.lease;
        let ttl = self.machine.ttl(now);
        let count = NonZeroU32::MIN.saturating_add(1);
        let op = Op::Enter { lease, count, ttl };
        self.recount = Some(caller.call(op, ttl, now));
    }

    fn tell_count(&mut self, caller: &mut Caller, now: Instant) {
        let lease = self.lease;
        let ttl = self.machine.ttl(now);
        let op = match self.machine.holds().count() {
            2.. => {
                let count = NonZeroU32::MIN.saturating_add(1);
                Op::Enter { lease, count, ttl }
            }
            count => Op::Release { lease, count, ttl },
        };
        self.recount = Some(caller.call(op, ttl, now));
    }
}
