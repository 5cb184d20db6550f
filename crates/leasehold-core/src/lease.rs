//! The state of a lease for its holder.
//!
//! ```text
//!   granted            renewal due      failed or overdue            margin       deadline
//!      |---------- Held ----|--- Held ----|------- Jeopardy -----------|-- Lost ----|--- the store may
//!      sent                 sent + ttl/3        renewed: Held again    deadline - ttl/3   pass it on
//! ```
//!
//! The machine receives the time and the replies of the store as arguments. Without a reply, its state depends
//! on the time alone, so a process that was stopped reads `Lost` before it does anything else.
//!
//! A lease that is [watched](Lease::watch) is an exception, since a watchdog may have kept it alive meanwhile:
//! after a pause of the process it is in jeopardy until the store has replied whether it is still held.

pub mod holds;
pub mod min_hold;
pub mod state;

use std::time::Duration;

use self::holds::{HoldId, Holds, Term};
use self::state::{Cause, State};
use crate::contention;
use crate::policy::{Pace, Policy};
use crate::time::{self, Instant, Ttl};
use crate::watchdog::Terms;

/// What the holder does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing, until [`Lease::next_event`].
    Wait,
    /// Send a renewal of this ttl, or a longer one, and pass the result to the machine.
    Renew(Ttl),
}

/// One lease, as its holder sees it.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The ttl of each renewal, and the pace for it.
    ttl: Ttl,
    whole: Pace,
    /// The shorter ttl for which the store keeps it at first, if it was granted to a waiter.
    short: Option<Ttl>,
    /// Until when it is renewed.
    max_hold: Option<Instant>,
    holds: Holds,
    /// The instant until which the store certainly keeps the lease.
    deadline: Instant,
    /// When the last request that the store confirmed was sent.
    confirmed: Instant,
    /// When to send the next renewal, if none is in flight.
    due: Instant,
    /// When the renewal in flight was due.
    in_flight: Option<Instant>,
    /// Whether a watchdog keeps it alive while this process cannot.
    watched: bool,
    /// When this process went on after a pause, in which the lease would have been given up.
    woken: Option<Instant>,
    /// Since when there is a doubt that only a reply to a later request ends.
    doubted: Option<Instant>,
    /// When it was last checked because of a hint.
    checked: Option<Instant>,
    /// Since when renewals fail.
    failing: Option<Instant>,
    /// When an interruption has it renewed at the earliest, after a renewal that failed.
    retry_at: Option<Instant>,
    trouble: Option<Cause>,
    /// Why the renewed holds are lost, if fixed ones go on.
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

    /// A lease whose grant the store notified: granted at `granted`, for `ttl` until it is renewed, and so until
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
            in_flight: None,
            watched: false,
            woken: None,
            doubted: None,
            checked: None,
            failing: None,
            retry_at: None,
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

    /// Hands it off to the next holder, whose longest hold begins now.
    pub fn hand_on(&mut self, policy: Policy, now: Instant) -> HoldId {
        self.max_hold = policy.max_hold.map(|span| now.after(span));
        self.holds.enter(Term::Renewed)
    }

    /// Adds a hold.
    pub fn enter(&mut self, term: Term, now: Instant) -> HoldId {
        self.settle(now);
        self.holds.enter(term)
    }

    /// Removes a hold.
    pub fn leave(&mut self, hold: HoldId, now: Instant) {
        self.settle(now);
        self.holds.leave(hold);
        if !self.holds.renewed() {
            self.given_up = None;
        }
    }

    /// From now on a watchdog keeps it alive while this process cannot, or no longer does. A lease that is lost by then
    /// stays lost.
    pub fn watch(&mut self, watched: bool, now: Instant) {
        self.settle(now);
        if self.is_open(now) && !watched && self.woken.is_none() {
            self.wake(now);
        }
        self.watched = watched;
    }

    /// This process was stopped, or too busy to poll the lease for long. If the lease is watched, the time alone
    /// does not end it: it is renewed, with retries for an interval.
    pub fn wake(&mut self, now: Instant) {
        if self.is_open(now) {
            self.woken = Some(now);
            self.trouble = Some(Cause::Paused);
            self.doubt(now, now);
        }
    }

    /// How a watchdog keeps it alive while this process cannot.
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
            // For its remaining time.
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

    /// Whether it would be given up by the time alone, and a watchdog may have kept it alive: only the store
    /// knows.
    fn is_open(&self, now: Instant) -> bool {
        let watched = self.woken.is_some() || self.watched && now >= self.renewed_end();
        let renewed = self.holds.renewed() && self.given_up.is_none();
        watched && renewed && self.lost.is_none() && !self.is_held_too_long(now)
    }

    /// The state of the lease at `now`, which is that of the hold that lasts longest.
    #[must_use]
    pub fn state(&self, now: Instant) -> State {
        if self.is_open(now) {
            return self.open_state(now);
        }
        let silence = self.silence(now);
        self.state_until(self.end(), now, self.given_up.or(self.trouble).or(silence))
    }

    /// The state of one hold at `now`. A fixed hold ends at its own instant; a renewed hold is given up a margin
    /// before the deadline.
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

    /// The lease may not be relied on beyond the deadline, and its end is not known. It may be given up when renewals have
    /// failed for an interval after the pause, or immediately if there was none: the next poll shows that.
    fn open_state(&self, now: Instant) -> State {
        let given_up = self
            .woken
            .map_or(now, |woken| woken.after(self.pace().interval()));
        State::Jeopardy {
            until: self.deadline.min(given_up).max(now),
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

    /// Why a renewed lease without a reply is in jeopardy or lost.
    fn silence(&self, now: Instant) -> Option<Cause> {
        if !self.holds.renewed() {
            return None;
        }
        if self.is_held_too_long(now) {
            return Some(Cause::HeldTooLong);
        }
        let cause = match self.in_flight {
            Some(_) => Cause::Unreachable,
            None => Cause::Paused,
        };
        (now >= self.overdue().min(self.renewed_end())).then_some(cause)
    }

    fn is_held_too_long(&self, now: Instant) -> bool {
        self.max_hold.is_some_and(|end| now >= end)
    }

    /// The instant until which the store certainly keeps the lease.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The holds on this lease.
    #[must_use]
    pub const fn holds(&self) -> &Holds {
        &self.holds
    }

    /// The holds on this lease, to change them.
    pub const fn holds_mut(&mut self) -> &mut Holds {
        &mut self.holds
    }

    /// The ttl of an operation that is sent at `now`.
    #[must_use]
    pub fn ttl(&self, now: Instant) -> Ttl {
        let renewal = match self.is_held_too_long(now) {
            false => self.ttl,
            // For its remaining time, and no longer.
            true => Ttl::remainder(now.until(self.deadline)).min(self.ttl),
        };
        self.holds.ttl(now, renewal)
    }

    /// The longest time for which a renewal keeps a renewed hold.
    #[must_use]
    pub fn longest_renewal(&self) -> Duration {
        let ttl = self.ttl.as_duration();
        ttl.saturating_sub(time::drift(ttl) + self.whole.margin())
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
            // A late poll shows that there was a pause; after one, a reply decides.
            true if self.woken.is_none() => self.overdue().min(self.renewed_end()),
            true => now.after(self.late()),
            false => self.next_change(now)?,
        };
        if self.wants_renewal(now) && self.in_flight.is_none() {
            return Some(change.min(self.due));
        }
        Some(change)
    }

    /// When [`Lease::state`] changes next if nothing happens until then. `None`: it is final, or waits for a
    /// reply.
    #[must_use]
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        if self.state(now).is_lost() || self.is_open(now) {
            return None;
        }
        let end = self.end();
        self.renewed_changes(now).chain([end]).min()
    }

    /// When [`Lease::hold_state`] changes next if nothing happens until then. `None`: it is final, or waits for
    /// a reply.
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

    /// Until when a reply to a renewal that is sent now is of use.
    #[must_use]
    pub fn reply_deadline(&self, now: Instant) -> Instant {
        match self.is_open(now) {
            true => now.after(self.ttl.as_duration()),
            false => self.deadline,
        }
    }

    /// What to do at `now`.
    pub fn poll(&mut self, now: Instant) -> Action {
        if self.woken.is_none() {
            // In time: this process runs, and no watchdog needs to keep the lease alive.
            let watched = std::mem::replace(&mut self.watched, false);
            self.settle(now);
            self.watched = watched;
        }
        let idle = self.lost.is_none() && self.in_flight.is_none();
        if idle && self.wants_renewal(now) && now >= self.due {
            self.in_flight = Some(now);
            return Action::Renew(self.ttl(now));
        }
        Action::Wait
    }

    /// The renewal that [`Lease::poll`] returned was confirmed.
    pub fn renewed(&mut self, sent: Instant, ttl: Ttl, now: Instant) {
        self.in_flight = None;
        self.confirmed(sent, ttl, now);
    }

    /// The renewal that [`Lease::poll`] returned failed, or its effect is unknown.
    pub fn renewal_failed(&mut self, now: Instant, cause: Cause) {
        let polled = self.in_flight.take();
        self.due = now.after(self.pace().retry());
        self.trouble.get_or_insert(cause);
        if let Some(woken) = self.woken {
            match polled {
                // A renewal from before the pause proves nothing.
                Some(polled) if polled < woken => self.due = now,
                // For as long as any other holder would retry.
                _ if now < woken.after(self.pace().interval()) => {}
                _ => {
                    self.woken = None;
                    self.watched = false;
                    self.given_up = Some(cause);
                }
            }
        }
        let since = *self.failing.get_or_insert(now);
        let pause = contention::retry_after(now.since(since));
        self.retry_at = Some(self.due.min(now.after(pause)));
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
        // Whatever has raised a doubt since then: a deadline that is ahead is known again, and counts as any other.
        let is_ahead = now < self.renewed_end();
        self.woken = self.woken.filter(|woken| sent < *woken && !is_ahead);
        if sent >= self.confirmed {
            self.confirmed = sent;
            self.short = None;
            // A request from before the doubt does not end it.
            if self.doubted.is_none_or(|since| sent >= since) {
                self.doubted = None;
                self.failing = None;
                self.retry_at = None;
                self.trouble = None;
                self.due = self.whole.due(sent, self.due);
            }
        }
        self.settle(now);
    }

    /// There is a hint that the lease may no longer hold the lock: it is renewed immediately, or a retry interval
    /// after the last hint. Hints may come without need.
    pub fn check(&mut self, now: Instant) {
        let next = self.checked.map_or(now, |at| at.after(self.pace().retry()));
        let at = next.max(now);
        self.checked = Some(at);
        self.doubt(now, at);
    }

    /// The connection to the store was interrupted: the lease is in jeopardy until the store has confirmed it,
    /// and is renewed immediately. After a failed renewal, which may itself have interrupted the connection, it is renewed
    /// after a pause.
    pub fn interrupted(&mut self, now: Instant) {
        self.settle(now);
        self.trouble.get_or_insert(Cause::Unreachable);
        self.doubt(now, self.retry_at.map_or(now, |at| at.max(now)));
    }

    fn doubt(&mut self, now: Instant, renew_at: Instant) {
        self.due = if self.wants_renewal(now) {
            self.due.min(renew_at)
        } else {
            renew_at
        };
        self.doubted = Some(now);
    }

    fn wants_renewal(&self, now: Instant) -> bool {
        let renewed = self.holds.renewed() && self.given_up.is_none();
        renewed && !self.is_held_too_long(now) || self.doubted.is_some()
    }

    /// The store replied that the lease does not hold the lock.
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

    /// When the last of its holds ends without a reply. Without holds the lease is to be released.
    fn end(&self) -> Instant {
        let renewed = self.holds.renewed() && self.given_up.is_none();
        let renewed = renewed.then(|| self.renewed_end());
        let fixed = self.holds.fixed_end().map(|end| end.min(self.deadline));
        match self.given_up {
            // The renewed holds have ended, and fixed ones may go on.
            Some(_) => fixed.unwrap_or_default(),
            None => renewed.max(fixed).unwrap_or(self.deadline),
        }
    }

    /// When renewed holds are given up.
    fn renewed_end(&self) -> Instant {
        self.deadline.before(self.pace().margin())
    }

    /// Whether there is time for its first renewal before it is given up: for a reply that takes as long as the notice of
    /// its grant took, or for a retry.
    pub(crate) fn can_be_renewed(&self, now: Instant) -> bool {
        let reply = now.since(self.confirmed).max(self.pace().retry());
        let confirmed = self.due.max(now).after(reply);
        !self.holds.renewed() || confirmed <= self.renewed_end()
    }

    /// When a missing confirmation puts the lease in jeopardy: soon if the renewal was not sent, and after half an
    /// interval, in which stores give up, if it was.
    fn overdue(&self) -> Instant {
        let pace = self.pace();
        let timeout = match self.in_flight {
            Some(_) => pace.interval() / 2,
            None => pace.retry(),
        };
        self.confirmed.after(pace.interval()).after(timeout)
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
