//! One lease id on its way to a grant, as the driver sees it through.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{
    Grant, Instant, Lease, LeaseId, Op, Outcome, Policy, StoreTime, Term, Token, TokenCount, Ttl,
    contention, queue, time,
};

use super::counts::Counts;
use super::setup::Broken;
use crate::world::client::{Call, Caller};

/// The pause after a question that nobody answered, as a part of the ttl.
const PAUSE_DIVISOR: u32 = 500;

/// What becomes of it.
#[derive(Debug)]
pub(super) enum Step {
    /// It goes on.
    Wait,
    /// It was granted the lock.
    Granted(Box<Lease>, Token),
    /// Nobody knows any more what becomes of this id, or its grant came too late: another one is to
    /// be tried.
    Dead,
}

#[derive(Debug)]
pub(super) struct Asking {
    pub(super) lease: LeaseId,
    ttl: Ttl,
    broken: Option<Broken>,
    /// When its user has waited enough, and how long it wants the lock.
    pub(super) gives_up: Instant,
    pub(super) hold_for: Duration,
    /// The question under way, and what was in doubt before it.
    call: Option<(Call, Option<(Instant, Instant)>)>,
    /// When the first question was sent whose effect is not known, and the last one.
    doubtful: Option<(Instant, Instant)>,
    /// The last question that was answered with a place in the queue: before it was sent, and the
    /// store's time of the answer.
    queued: Option<(Instant, StoreTime)>,
    /// A grant that was told while a question was under way, and when.
    told: Option<(Grant, Instant)>,
    /// When its timer rings.
    ask_at: Option<Instant>,
    /// When the one before it must have taken its grant.
    look_at: Option<Instant>,
}

impl Asking {
    pub(super) fn new(
        lease: LeaseId,
        ttl: Ttl,
        broken: Option<Broken>,
        now: Instant,
        (gives_up, hold_for): (Instant, Duration),
    ) -> Self {
        Self {
            lease,
            ttl,
            broken,
            gives_up,
            hold_for,
            call: None,
            doubtful: None,
            queued: None,
            told: None,
            ask_at: Some(now),
            look_at: None,
        }
    }

    /// Whether a question is under way.
    pub(super) const fn asks(&self) -> bool {
        self.call.is_some()
    }

    /// Whether the store may know the lease.
    pub(super) const fn is_known(&self) -> bool {
        self.doubtful.is_some() || self.queued.is_some()
    }

    /// Whether a question may still run late.
    pub(super) const fn is_unsure(&self) -> bool {
        self.doubtful.is_some()
    }

    pub(super) fn next_wake(&self) -> Instant {
        let next = match self.call {
            Some((call, _)) => Some(call.gives_up),
            None => self.ask_at.into_iter().chain(self.look_at).min(),
        };
        next.map_or(self.gives_up, |next| next.min(self.gives_up))
    }

    /// Its timer rang.
    pub(super) fn wake(&mut self, caller: &mut Caller, counts: &mut Counts, now: Instant) -> Step {
        match self.call {
            Some((call, _)) if now >= call.gives_up => {
                counts.unanswered += 1;
                let pause = self.ttl.as_duration() / PAUSE_DIVISOR;
                self.unanswered(caller, counts, now, now.after(pause))
            }
            None if self.next_wake() <= now => {
                if self.ask_at.is_none_or(|at| now < at) {
                    counts.looked += 1;
                } else if self.queued.is_some() {
                    counts.timers += 1;
                }
                self.ask(caller, now);
                Step::Wait
            }
            _ => Step::Wait,
        }
    }

    /// There is a new connection: what was under way is not answered any more, and what was told
    /// since is lost.
    pub(super) fn interrupted(
        &mut self,
        caller: &mut Caller,
        counts: &mut Counts,
        now: Instant,
    ) -> Step {
        if self.broken == Some(Broken::NoQuestionAfterReconnect) {
            return Step::Wait;
        }
        counts.asked_again += u64::from(self.queued.is_some());
        self.unanswered(caller, counts, now, now)
    }

    /// The question under way, if any, is not answered. Asks again at an instant.
    fn unanswered(
        &mut self,
        caller: &mut Caller,
        counts: &mut Counts,
        now: Instant,
        again: Instant,
    ) -> Step {
        self.call = None;
        // A question that was delayed may come alive with a full ttl.
        let over = |(first, _)| now >= time::deadline(first, self.ttl);
        if self.doubtful.is_some_and(over) {
            counts.dead += 1;
            return Step::Dead;
        }
        if let Some(told) = self.told.take() {
            return self.accept(told, caller, counts, now);
        }
        if again <= now {
            self.ask(caller, now);
        } else {
            self.ask_at = Some(again);
        }
        Step::Wait
    }

    pub(super) fn answered(
        &mut self,
        number: u64,
        (outcome, at): (Outcome, StoreTime),
        caller: &mut Caller,
        counts: &mut Counts,
        now: Instant,
    ) -> Step {
        let Some((call, before)) = self.call.filter(|(call, _)| call.number == number) else {
            return Step::Wait;
        };
        self.call = None;
        // This question is answered; earlier ones may still be on their way.
        self.doubtful = before;
        match outcome {
            Outcome::Granted { first } => {
                let policy = Policy::of(self.ttl);
                let (machine, _) = Lease::granted(policy, call.ttl, Term::Renewed, call.sent);
                if machine.state(now).is_lost() {
                    return Step::Dead;
                }
                Step::Granted(Box::new(machine), first)
            }
            Outcome::Refused {
                time_left: left,
                queue_position: place,
            } => {
                self.queued = place.map(|_| (call.sent, at));
                let span =
                    contention::retry_in_queue_after(left, place.unwrap_or_default(), call.ttl);
                let timer = self.broken != Some(Broken::NoTimer);
                self.ask_at = timer.then(|| now.after(span));
                match self.told.take() {
                    Some(told) => self.accept(told, caller, counts, now),
                    None => Step::Wait,
                }
            }
            _ => {
                self.ask_at = Some(now.after(self.ttl.as_duration()));
                Step::Wait
            }
        }
    }

    /// It was told its grant. While a question is under way, that waits for the answer.
    pub(super) fn told(
        &mut self,
        grant: Grant,
        caller: &mut Caller,
        counts: &mut Counts,
        now: Instant,
    ) -> Step {
        if self.asks() {
            self.told = Some((grant, now));
            return Step::Wait;
        }
        self.accept((grant, now), caller, counts, now)
    }

    /// It was told that it is the next after one that was granted the lock for `ttl`.
    pub(super) fn is_next(&mut self, ttl: Ttl, now: Instant) {
        if self.broken != Some(Broken::NoNext) {
            let span = ttl.as_duration();
            self.look_at = Some(now.after(span + time::drift(span)));
        }
    }

    /// Takes a grant that was told. If it is of no use, it asks.
    fn accept(
        &mut self,
        (grant, heard): (Grant, Instant),
        caller: &mut Caller,
        counts: &mut Counts,
        now: Instant,
    ) -> Step {
        if let Some(machine) = self.lease_of(grant, heard)
            && !machine.state(now).is_lost()
        {
            counts.accepted += 1;
            return Step::Granted(Box::new(machine), grant.first);
        }
        counts.too_late += 1;
        self.ask(caller, now);
        Step::Wait
    }

    fn lease_of(&self, grant: Grant, heard: Instant) -> Option<Lease> {
        let (asked, answered) = self.queued?;
        // Refused since: it is long over.
        if grant.now < answered && self.broken != Some(Broken::TakesOldGrants) {
            return None;
        }
        let ttl = match self.broken {
            Some(Broken::TakesFullTtl) => self.ttl,
            _ => queue::acceptance(self.ttl).min(grant.ttl),
        };
        let waited = answered.until(grant.now);
        let times = match self.broken {
            Some(Broken::DeadlineFromMessage) => (heard, time::deadline(heard, ttl)),
            _ => time::granted(asked, waited, heard, ttl),
        };
        let policy = Policy::of(self.ttl);
        Some(Lease::accepted(policy, ttl, Term::Renewed, times).0)
    }

    fn ask(&mut self, caller: &mut Caller, now: Instant) {
        let op = question(self.lease, self.ttl);
        let before = self.doubtful;
        self.doubtful = Some((before.map_or(now, |(first, _)| first), now));
        self.call = Some((caller.call(op, self.ttl, now), before));
        self.ask_at = None;
        self.look_at = None;
    }
}

pub(super) fn question(lease: LeaseId, ttl: Ttl) -> Op {
    Op::Acquire {
        lease,
        count: NonZeroU32::MIN,
        ttl,
        tokens: TokenCount::MIN,
        wait: true,
    }
}
