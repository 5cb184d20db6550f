//! A client that holds the lock: the host of a lease, and of the writer of its value or its completion.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::acquisition::GrantedLease;
use leasehold_core::value_writer::{WriteAction, WriteReply};
use leasehold_core::watchdog::Terms;
use leasehold_core::{
    Action, Cause, HoldId, Instant, LateRelease, Lease, LeaseId, Op, Outcome, Policy, State, Term,
    Token, Ttl, ValueWriter,
};

use super::LeaseToken;
use super::calls::{Call, Calls, Context, Purpose};
use super::report::Occurrence;
use super::runs::{Completing, Run};
use super::setup::{Leases, Mutation};

#[derive(Debug)]
pub(super) struct Holder {
    pub(super) id: LeaseId,
    pub(super) token: Token,
    pub(super) run: Option<Run>,
    policy: Policy,
    lease: Lease,
    first: HoldId,
    late_release: Option<Instant>,
    /// When the lock is released.
    pub(super) until: Instant,
    /// A second hold, and when it ends.
    second: Option<(HoldId, Instant)>,
    /// When its lease is to be polled. If that is late, the process was stopped.
    scheduled: Option<Instant>,
    /// Whether the user has noticed the loss.
    noticed: bool,
    /// The writer of the completion of its run, which has ended before the lease.
    completing: Option<Completing>,
    /// The writer of its values, in an election.
    pub(super) leading: Option<Leading>,
}

impl Holder {
    pub(super) fn new(
        granted: GrantedLease,
        policy: Policy,
        until: Instant,
        run: Option<Run>,
        cx: &Context<'_>,
    ) -> Self {
        let (id, term, interval) = (granted.id, granted.first, policy.ttl.as_duration() / 2);
        let leading = || Leading::new(id, term, interval, cx.now);
        Self {
            leading: cx.setup.elects.then(leading),
            run,
            completing: None,
            id: granted.id,
            token: granted.first,
            policy,
            lease: granted.lease,
            first: granted.hold,
            late_release: granted.late_release,
            until,
            second: None,
            scheduled: None,
            noticed: false,
        }
    }

    pub(super) fn hold(&self, now: Instant) -> Option<LeaseToken> {
        let is_relied_on = match self.lease.state(now) {
            State::Held { until } | State::Jeopardy { until, .. } => now < until,
            State::Lost(_) => false,
        };
        is_relied_on.then_some((self.id, self.token))
    }

    /// What it relies on again once the store has confirmed its lease, which a node may have kept during a pause.
    pub(super) fn unconfirmed(&self, now: Instant) -> Option<LeaseToken> {
        let is_paused = !self.lease.state(now).is_lost() && self.hold(now).is_none();
        is_paused.then_some((self.id, self.token))
    }

    /// How a node keeps its lease. `None`: the lease is lost.
    pub(super) fn registration(&mut self, now: Instant) -> Option<(u64, Terms)> {
        let next = self.lease.next_event(now);
        if self.scheduled.is_none_or(|at| now < at) {
            self.scheduled = next;
        }
        next.map(|_| (self.id.number, self.lease.watch_terms(now)))
    }

    /// A node watches its lease from now on, or no longer.
    pub(super) fn watch(&mut self, watched: bool, now: Instant) {
        self.lease.watch(watched, now);
    }

    pub(super) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let event = self.lease.next_event(now);
        let leading = self.leading.as_ref().and_then(Leading::next_timeout);
        let end = match (&self.completing, self.second) {
            (Some(completing), _) => completing.next_timeout(),
            (None, Some((_, until))) => Some(until.min(self.until)),
            (None, None) => Some(self.until),
        };
        event.into_iter().chain(leading).chain(end).min()
    }

    /// Ends its run, and holds the lease on until the completion is written. Returns whether there was a run.
    pub(super) fn complete(&mut self, now: Instant) -> bool {
        let run = self.run.take();
        let note = run.map(|run| run.completion(now));
        self.completing = note.map(|note| Completing::new(self.id, note, now));
        self.completing.is_some()
    }

    /// Renews and re-enters the lease. Returns whether it is to be released.
    pub(super) fn poll(&mut self, calls: &mut Calls, cx: &mut Context<'_>) -> bool {
        let is_late = |at| cx.now.since(at) >= self.lease.late();
        if self.scheduled.is_some_and(is_late) && !cx.setup.has(Mutation::TakesPausesForLosses) {
            self.lease.wake(cx.now);
        }
        let action = self.lease.poll(cx.now);
        self.scheduled = self.lease.next_event(cx.now);
        if let Action::Renew(ttl) = action {
            let ttl = match cx.setup.has(Mutation::RenewsForLonger) {
                true => Ttl::remainder(ttl.as_duration() * 10),
                false => ttl,
            };
            calls.send(Purpose::Renew, Op::renew(self.id, ttl), cx);
        }
        if cx.now >= self.until && self.completing.is_none() {
            // Another hold of the program may keep the lease.
            let is_kept = cx.setup.runs && self.hold(cx.now).is_some() && cx.rng.bool();
            if !(is_kept && self.complete(cx.now)) {
                return true;
            }
        }
        if let Some(completing) = &mut self.completing {
            let hold = self.lease.hold_state(self.first, cx.now);
            let states = (hold, self.lease.state(cx.now));
            let expires = cx.now.after(self.lease.ttl(cx.now).as_duration());
            if completing.poll(states, expires, calls, cx) {
                return true;
            }
        }
        if let Some(leading) = &mut self.leading {
            leading.poll(self.lease.state(cx.now), calls, cx);
        }
        if self.hold(cx.now).is_none() {
            // The user needs some time to notice the loss and to stop. Replies still come meanwhile.
            let is_lost = self.unconfirmed(cx.now).is_none();
            if is_lost && !std::mem::replace(&mut self.noticed, true) {
                let stopped = cx.part(self.policy.ttl.as_duration() / 2);
                self.until = self.until.min(cx.now.after(stopped));
            }
            return false;
        }
        match self.second {
            Some((hold, until)) if cx.now >= until => {
                self.second = None;
                self.lease.leave(hold, cx.now);
                self.send_count(calls, cx);
            }
            None if cx.setup.leases != Leases::Renewed
                && !calls.is_open(Purpose::Count)
                && cx.rng.bool() =>
            {
                self.enter(calls, cx);
            }
            _ => {}
        }
        false
    }

    /// Processes the reply to a request. `None`: it has none.
    pub(super) fn handle_reply(
        &mut self,
        call: Call,
        outcome: Option<Outcome>,
        calls: &mut Calls,
        cx: &mut Context<'_>,
    ) {
        match (call.purpose, outcome) {
            (Purpose::Write, outcome) => {
                if let Some(leading) = &mut self.leading {
                    leading.handle_reply(outcome.as_ref(), cx);
                } else if let Some(completing) = &mut self.completing
                    && let Some(cause) = completing.handle_reply(outcome.as_ref(), cx)
                {
                    self.lose(cause);
                }
            }
            (Purpose::Renew, Some(Outcome::Kept)) => {
                let was_paused = self.unconfirmed(cx.now).is_some();
                self.renewed(call, cx);
                if was_paused && self.hold(cx.now).is_some() {
                    cx.report.count(Occurrence::WentOn);
                }
            }
            (_, Some(Outcome::Kept)) => self.lease.confirmed(call.sent, call.ttl, cx.now),
            (_, Some(_)) if cx.setup.has(Mutation::IgnoresLosses) => {}
            (_, Some(lost)) => self.lose(Cause::of(&lost)),
            (Purpose::Renew, None) => self.lease.renewal_failed(cx.now, Cause::Unreachable),
            (_, None) if self.hold(cx.now).is_some() => self.send_count(calls, cx),
            (_, None) => {}
        }
    }

    pub(super) fn interrupted(&mut self, now: Instant) {
        self.lease.interrupted(now);
        if let Some(leading) = &mut self.leading {
            leading.interrupted();
        }
    }

    pub(super) fn lose(&mut self, cause: Cause) {
        self.lease.lose(cause);
    }

    /// What must be released: the id, the ttl of the last request, and the second release.
    pub(super) fn end(&self, now: Instant) -> (LeaseId, Ttl, Option<LateRelease>) {
        let late = |at| LateRelease { at, single: false };
        (self.id, self.lease.ttl(now), self.late_release.map(late))
    }

    fn renewed(&mut self, call: Call, cx: &mut Context<'_>) {
        if cx.setup.has(Mutation::RevivedLease) && self.lease.state(cx.now).is_lost() {
            let term = self.lease.holds().term(self.first);
            let term = term.unwrap_or(Term::Renewed);
            (self.lease, self.first) = Lease::granted(self.policy, call.ttl, term, call.sent);
            self.second = None;
        } else {
            self.lease.renewed(call.sent, call.ttl, cx.now);
        }
    }

    fn enter(&mut self, calls: &mut Calls, cx: &mut Context<'_>) {
        let until = cx.now.after(cx.part(self.policy.ttl.as_duration()) * 2);
        let term = match cx.rng.bool() {
            true => Term::Renewed,
            false => Term::Fixed(until),
        };
        let hold = self.lease.enter(term, cx.now);
        self.second = Some((hold, until));
        self.send_count(calls, cx);
    }

    fn send_count(&mut self, calls: &mut Calls, cx: &mut Context<'_>) {
        let (lease, ttl) = (self.id, self.lease.ttl(cx.now));
        let count = NonZeroU32::new(self.lease.holds().count());
        calls.send(Purpose::Count, Op::Renew { lease, ttl, count }, cx);
    }
}

/// The host of the writer of the value of a leader.
#[derive(Debug)]
pub(super) struct Leading {
    lease: LeaseId,
    term: Token,
    writer: ValueWriter,
    /// When the value is replaced. `None`: it stays.
    replaced_at: Option<Instant>,
    /// The longest time between two values.
    interval: Duration,
}

impl Leading {
    pub(super) fn new(lease: LeaseId, term: Token, interval: Duration, now: Instant) -> Self {
        Self {
            lease,
            term,
            writer: ValueWriter::new(term, "1".into(), now),
            replaced_at: Some(now),
            interval,
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let next = self.writer.next_timeout();
        self.replaced_at.into_iter().chain(next).min()
    }

    /// The value stays from now on. Returns its number.
    pub(super) const fn keep(&mut self) -> u64 {
        self.replaced_at = None;
        self.writer.newest()
    }

    pub(super) fn poll(&mut self, state: State, calls: &mut Calls, cx: &mut Context<'_>) {
        if self.replaced_at.is_some_and(|at| at <= cx.now) {
            let next = self.writer.newest() + 1;
            self.writer.set(next.to_string().into());
            self.replaced_at = Some(cx.now.after(cx.part(self.interval)));
        }
        if let WriteAction::Write(mut note) = self.writer.poll(state, cx.now) {
            if cx.setup.has(Mutation::WritesWithoutNumber) {
                note.number = 0;
            }
            let lease = self.lease;
            calls.send(Purpose::Write, Op::WriteNote { lease, note }, cx);
        }
    }

    pub(super) fn handle_reply(&mut self, outcome: Option<&Outcome>, cx: &mut Context<'_>) {
        let reply = match outcome {
            Some(Outcome::Stored | Outcome::Outdated) => WriteReply::Stored,
            Some(_) => WriteReply::Lost,
            None => WriteReply::Transient,
        };
        let written = self.writer.handle_reply(reply, cx.now);
        if let Some(number) = written.filter(|_| reply == WriteReply::Stored) {
            cx.values.store((self.term, number));
        }
    }

    pub(super) const fn interrupted(&mut self) {
        self.writer.interrupted();
    }
}
