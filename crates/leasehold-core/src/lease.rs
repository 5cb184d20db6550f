//! The state of a lease for its holder.
//!
//! ```text
//!   granted            renewal due      failed or overdue            margin       deadline
//!      |---------- Held ----|--- Held ----|------- Jeopardy -----------|-- Lost ----|--- the store may
//!      sent                 sent + ttl/3        renewed: Held again    deadline - ttl/3   pass it on
//! ```
//!
//! The state machine does no I/O: its host passes the time and the replies of the store in. Without a reply
//! the state depends on the time alone, so a process that was stopped reads `Lost` before it does anything
//! else.
//!
//! The exception is a lease that a watchdog keeps alive: a [watched](Lease::watch) lease is in jeopardy after
//! a pause, until a reply of the store shows whether it still holds the lock.

use std::time::Duration;

use crate::holds::{HoldId, Holds, Term};
use crate::policy::{Pace, Policy};
use crate::state::{Cause, State};
use crate::time::{self, Instant, Ttl};
use crate::watchdog::Terms;

/// The next step of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing, until [`Lease::next_event`].
    Wait,
    /// Send a renewal of this ttl, or a longer one, and report its result.
    Renew(Ttl),
}

/// One lease, as its holder sees it.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The ttl of each renewal, and the pace that goes with it.
    ttl: Ttl,
    whole: Pace,
    /// The shorter ttl of the grant to a waiter, until the first renewal.
    short: Option<Ttl>,
    /// From when on it is not renewed any more.
    max_hold: Option<Instant>,
    holds: Holds,
    /// The instant until which the store is sure to keep the lease.
    deadline: Instant,
    /// When the last request that the store confirmed was sent.
    confirmed: Instant,
    /// When to send the next renewal, if none is in flight.
    due: Instant,
    /// When the renewal in flight was begun.
    under_way: Option<Instant>,
    /// Whether a watchdog keeps it alive while this process cannot.
    watched: bool,
    /// When this process resumed after a pause in which the lease would have been given up.
    woken: Option<Instant>,
    /// Since when there is a doubt that only the reply to a later request ends.
    doubted: Option<Instant>,
    /// When a renewal was last made due by a hint.
    checked: Option<Instant>,
    trouble: Option<Cause>,
    /// Why the renewed holds are lost. Fixed holds may still be valid.
    given_up: Option<Cause>,
    lost: Option<Cause>,
}

impl Lease {
    /// A lease that the store granted on a request sent at `sent`, with its first hold.
    #[must_use]
    pub fn granted(policy: Policy, ttl: Ttl, term: Term, sent: Instant) -> (Self, HoldId) {
        let deadline = time::deadline(sent, ttl);
        Self::start(policy, None, term, sent, deadline)
    }

    /// A lease whose grant was notified to its waiter: granted at `granted` for `ttl`, and so valid until
    /// `deadline` at least. See [`time::granted`].
    ///
    /// Until a renewal has confirmed it for the ttl of its policy, it is renewed at the pace of the shorter
    /// ttl.
    #[must_use]
    pub fn accepted(
        policy: Policy,
        ttl: Ttl,
        term: Term,
        (granted, deadline): (Instant, Instant),
    ) -> (Self, HoldId) {
        let short = Some(ttl).filter(|ttl| *ttl < policy.ttl);
        Self::start(policy, short, term, granted, deadline)
    }

    fn start(
        policy: Policy,
        short: Option<Ttl>,
        term: Term,
        confirmed: Instant,
        deadline: Instant,
    ) -> (Self, HoldId) {
        let mut holds = Holds::default();
        let hold = holds.enter(term);
        let mut lease = Self {
            ttl: policy.ttl,
            whole: policy.pace(),
            short,
            max_hold: policy.max_hold.map(|span| confirmed.after(span)),
            holds,
            deadline,
            confirmed,
            due: confirmed,
            under_way: None,
            watched: false,
            woken: None,
            doubted: None,
            checked: None,
            trouble: None,
            given_up: None,
            lost: None,
        };
        lease.due = lease.pace().due(confirmed, deadline);
        (lease, hold)
    }

    /// Whether it is renewed by this policy.
    #[must_use]
    pub fn suits(&self, policy: Policy) -> bool {
        self.ttl == policy.ttl && self.whole == policy.pace()
    }

    /// Hands the lease to the next holder, whose longest hold begins now. Returns its hold.
    pub fn hand_on(&mut self, policy: Policy, now: Instant) -> HoldId {
        self.max_hold = policy.max_hold.map(|span| now.after(span));
        self.holds.enter(Term::Renewed)
    }

    /// Adds a hold.
    pub fn enter(&mut self, term: Term, now: Instant) -> HoldId {
        self.settle(now);
        self.holds.enter(term)
    }

    /// Takes a hold away.
    pub fn leave(&mut self, hold: HoldId, now: Instant) {
        self.settle(now);
        self.holds.leave(hold);
        if !self.holds.renewed() {
            self.given_up = None;
        }
    }

    /// Sets whether a watchdog keeps the lease alive while this process cannot.
    pub fn watch(&mut self, watched: bool, now: Instant) {
        if self.is_open(now) && !watched {
            self.wake(now);
        }
        self.watched = watched;
    }

    /// Notes that this process was stopped, or too busy to poll the lease for long. The time alone does not
    /// end a watched lease: renewals are tried, for an interval at most.
    pub fn wake(&mut self, now: Instant) {
        if self.is_open(now) {
            self.woken = Some(now);
            self.trouble = Some(Cause::Paused);
            self.doubt(now, now);
        }
    }

    /// The terms under which a watchdog keeps the lease alive.
    #[must_use]
    pub fn watch_terms(&self, now: Instant) -> Terms {
        let (ttl, pace) = (self.short.unwrap_or(self.ttl), self.pace());
        let keep_until = match self.holds.renewed() {
            true => self.max_hold.unwrap_or(Terms::NO_END),
            false => Instant::default(),
        };
        let terms = Terms::new(ttl, pace.interval(), pace.retry(), keep_until);
        match self.holds.renewed() {
            true => Terms {
                ttl: self.ttl,
                ..terms
            },
            // The store keeps it for the rest of its ttl.
            false => Terms {
                ttl: self.ttl(now),
                ..terms
            },
        }
    }

    /// How late a poll must be to show that this process was stopped.
    #[must_use]
    pub fn late(&self) -> Duration {
        self.pace().interval() / 4
    }

    /// Whether the lease would be given up by the time alone, but a watchdog may have kept it alive. Then only
    /// a reply of the store decides.
    fn is_open(&self, now: Instant) -> bool {
        let watched = self.woken.is_some() || self.watched && now >= self.renewed_end();
        let renewed = self.holds.renewed() && self.given_up.is_none();
        watched && renewed && self.lost.is_none() && !self.is_held_too_long(now)
    }

    /// The state of the lease at `now`: that of its longest hold.
    #[must_use]
    pub fn state(&self, now: Instant) -> State {
        if self.is_open(now) {
            return self.open_state(now);
        }
        let silence = self.silence(now);
        self.state_until(self.end(), now, self.given_up.or(self.trouble).or(silence))
    }

    /// The state of one hold at `now`. A fixed hold ends at its own instant. A renewed hold is given up a
    /// margin before the deadline.
    #[must_use]
    pub fn hold_state(&self, hold: HoldId, now: Instant) -> State {
        if self.holds.term(hold) == Some(Term::Renewed) && self.is_open(now) {
            return self.open_state(now);
        }
        let (until, cause) = match self.holds.term(hold) {
            Some(Term::Fixed(end)) => (end.min(self.deadline), self.trouble.filter(|_| now < end)),
            Some(Term::Renewed) if self.given_up.is_some() => (now, self.given_up),
            Some(Term::Renewed) => (self.renewed_end(), self.trouble.or(self.silence(now))),
            None => return self.state(now),
        };
        self.state_until(until, now, cause)
    }

    /// The state of an open lease: it is not certain beyond the deadline, and its end is not known.
    fn open_state(&self, now: Instant) -> State {
        State::Jeopardy {
            until: self.deadline.max(now),
            cause: Cause::Paused,
        }
    }

    fn state_until(&self, until: Instant, now: Instant, cause: Option<Cause>) -> State {
        match (self.lost, cause) {
            (Some(cause), _) => State::Lost(cause),
            (None, Some(cause)) if now < until => State::Jeopardy { until, cause },
            (None, None) if now < until => State::Held { until },
            (None, cause) => State::Lost(cause.unwrap_or(Cause::Expired)),
        }
    }

    /// The cause of jeopardy of a renewed lease without a reply.
    fn silence(&self, now: Instant) -> Option<Cause> {
        if !self.holds.renewed() {
            return None;
        }
        if self.is_held_too_long(now) {
            return Some(Cause::HeldTooLong);
        }
        let cause = match self.under_way {
            Some(_) => Cause::Unreachable,
            None => Cause::Paused,
        };
        (now >= self.overdue().min(self.renewed_end())).then_some(cause)
    }

    fn is_held_too_long(&self, now: Instant) -> bool {
        self.max_hold.is_some_and(|end| now >= end)
    }

    /// The instant until which the store is sure to keep the lease.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The holds over this lease.
    #[must_use]
    pub const fn holds(&self) -> &Holds {
        &self.holds
    }

    /// The holds over this lease, to enter or to leave.
    pub const fn holds_mut(&mut self) -> &mut Holds {
        &mut self.holds
    }

    /// The ttl of an operation that is sent at `now`.
    #[must_use]
    pub fn ttl(&self, now: Instant) -> Ttl {
        let renewal = match self.is_held_too_long(now) {
            false => self.ttl,
            // The rest of its ttl, and no longer.
            true => Ttl::remainder(now.until(self.deadline)).min(self.ttl),
        };
        self.holds.ttl(now, renewal)
    }

    /// When the next renewal is due, or was.
    #[must_use]
    pub const fn due(&self) -> Instant {
        self.due
    }

    /// When [`Lease::poll`] must be called next. `None`: never again.
    #[must_use]
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        let change = match self.is_open(now) {
            // The lateness of the poll shows whether there was a pause. After a pause, a reply decides.
            true if self.woken.is_none() => self.overdue().min(self.renewed_end()),
            true => now.after(self.late()),
            false => self.next_change(now)?,
        };
        if self.wants_renewal(now) && self.under_way.is_none() {
            return Some(change.min(self.due));
        }
        Some(change)
    }

    /// When [`Lease::state`] changes next if nothing happens until then. `None`: it is final, or only a reply
    /// changes it.
    #[must_use]
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        if self.state(now).is_lost() || self.is_open(now) {
            return None;
        }
        let end = self.end();
        self.renewed_changes(now).chain([end]).min()
    }

    /// When [`Lease::hold_state`] changes next if nothing happens until then. `None`: it is final, or only a
    /// reply changes it.
    #[must_use]
    pub fn next_hold_change(&self, hold: HoldId, now: Instant) -> Option<Instant> {
        if self.hold_state(hold, now).is_lost() {
            return None;
        }
        match self.holds.term(hold) {
            Some(Term::Fixed(end)) => Some(end.min(self.deadline)),
            Some(Term::Renewed) if self.is_open(now) => None,
            Some(Term::Renewed) => self.renewed_changes(now).min(),
            None => self.next_change(now),
        }
    }

    /// When the time alone changes the state of renewed holds.
    fn renewed_changes(&self, now: Instant) -> impl Iterator<Item = Instant> {
        let renewed = self.holds.renewed() && self.given_up.is_none();
        let quiet = renewed && self.trouble.is_none();
        let changes = [
            renewed.then(|| self.renewed_end()),
            quiet.then(|| self.overdue()),
            self.max_hold.filter(|_| quiet),
        ];
        changes.into_iter().flatten().filter(move |at| now < *at)
    }

    /// Whether a renewal of [`Lease::poll`] is in flight.
    #[must_use]
    pub const fn under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Until when a reply to a renewal that is sent now would be of use.
    #[must_use]
    pub fn answer_by(&self, now: Instant) -> Instant {
        match self.is_open(now) {
            true => now.after(self.ttl.as_duration()),
            false => self.deadline,
        }
    }

    /// Returns what the host does next.
    pub fn poll(&mut self, now: Instant) -> Action {
        if self.woken.is_none() {
            // Polled in time: this process runs, and the watchdog does not have to keep the lease alive.
            let watched = std::mem::replace(&mut self.watched, false);
            self.settle(now);
            self.watched = watched;
        }
        let idle = self.lost.is_none() && self.under_way.is_none();
        if idle && self.wants_renewal(now) && now >= self.due {
            self.under_way = Some(now);
            return Action::Renew(self.ttl(now));
        }
        Action::Wait
    }

    /// Notes that the store confirmed the renewal of [`Lease::poll`].
    pub fn renewed(&mut self, sent: Instant, ttl: Ttl, now: Instant) {
        self.under_way = None;
        self.confirmed(sent, ttl, now);
    }

    /// Notes that the renewal of [`Lease::poll`] failed, or that its effect is unknown.
    pub fn renewal_failed(&mut self, now: Instant, cause: Cause) {
        let asked = self.under_way.take();
        self.due = now.after(self.pace().retry());
        self.trouble.get_or_insert(cause);
        if let Some(woken) = self.woken {
            match asked {
                // A reply to a request from before the pause proves nothing.
                Some(asked) if asked < woken => self.due = now,
                // Retried for as long as by any other holder.
                _ if now < woken.after(self.pace().interval()) => {}
                _ => {
                    self.woken = None;
                    self.watched = false;
                    self.given_up = Some(cause);
                }
            }
        }
        self.settle(now);
    }

    /// Notes that the store confirmed another operation of the holder, sent at `sent` with `ttl`.
    ///
    /// A confirmation after the lease was given up does not revive it.
    pub fn confirmed(&mut self, sent: Instant, ttl: Ttl, now: Instant) {
        self.settle(now);
        if self.lost.is_some() {
            return;
        }
        self.deadline = self.deadline.max(time::deadline(sent, ttl));
        if sent >= self.confirmed {
            self.confirmed = sent;
            self.short = None;
            // A request that was sent before the doubt arose does not end it.
            if self.doubted.is_none_or(|since| sent >= since) {
                self.doubted = None;
                self.trouble = None;
                self.woken = None;
                self.due = self.whole.due(sent, self.due);
            }
        }
        self.settle(now);
    }

    /// Notes a hint that the lease may not hold the lock any more. A renewal is due at once, but at most once
    /// in a retry interval: hints may come without need.
    pub fn check(&mut self, now: Instant) {
        let next = self.checked.map_or(now, |at| at.after(self.pace().retry()));
        let at = next.max(now);
        self.checked = Some(at);
        self.doubt(now, at);
    }

    /// Notes that the connection to the store was interrupted. The lease is in jeopardy until the store has
    /// confirmed it, and a renewal is due at once.
    pub fn interrupted(&mut self, now: Instant) {
        self.settle(now);
        self.trouble.get_or_insert(Cause::Unreachable);
        self.doubt(now, now);
    }

    fn doubt(&mut self, now: Instant, ask_at: Instant) {
        self.due = if self.wants_renewal(now) {
            self.due.min(ask_at)
        } else {
            ask_at
        };
        self.doubted = Some(now);
    }

    fn wants_renewal(&self, now: Instant) -> bool {
        let renewed = self.holds.renewed() && self.given_up.is_none();
        renewed && !self.is_held_too_long(now) || self.doubted.is_some()
    }

    /// Notes that the lease does not hold the lock, as a reply or notice of the store has shown.
    pub fn lose(&mut self, cause: Cause) {
        self.lost.get_or_insert(cause);
    }

    /// Makes final what the time has decided.
    fn settle(&mut self, now: Instant) {
        if let State::Lost(cause) = self.state(now) {
            self.lost = Some(cause);
        }
        let open = self.is_open(now);
        let renewed = self.holds.renewed() && self.given_up.is_none();
        if renewed && !open && now >= self.renewed_end() {
            self.given_up = self.trouble.or(self.silence(now));
        }
    }

    /// When its last hold ends without another reply. A lease without holds is to be released.
    fn end(&self) -> Instant {
        let renewed = self.holds.renewed() && self.given_up.is_none();
        let renewed = renewed.then(|| self.renewed_end());
        let fixed = self.holds.fixed_end().map(|end| end.min(self.deadline));
        match self.given_up {
            // The renewed holds have ended; fixed ones may be valid.
            Some(_) => fixed.unwrap_or_default(),
            None => renewed.max(fixed).unwrap_or(self.deadline),
        }
    }

    /// When renewed holds are given up.
    fn renewed_end(&self) -> Instant {
        self.deadline.before(self.pace().margin())
    }

    /// When a renewal is overdue: a retry interval after its time if it was not sent, and half an interval
    /// after its time, in which stores time out, if it was.
    fn overdue(&self) -> Instant {
        let pace = self.pace();
        let patience = match self.under_way {
            Some(_) => pace.interval() / 2,
            None => pace.retry(),
        };
        self.confirmed.after(pace.interval()).after(patience)
    }

    fn pace(&self) -> Pace {
        match self.short {
            Some(ttl) => self.whole.part(ttl, self.ttl),
            None => self.whole,
        }
    }
}

#[cfg(test)]
mod tests;
