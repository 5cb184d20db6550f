//! What a lease is worth to its holder at this instant.
//!
//! ```text
//!   granted            renewal due      failed or overdue            margin       deadline
//!      |---------- Held ----|--- Held ----|------- Jeopardy -----------|-- Lost ----|--- the store may
//!      sent                 sent + ttl/3        renewed: Held again    deadline - ttl/3   pass it on
//! ```
//!
//! The machine is told the time and the answers of the store; it never asks for them. What it says
//! depends on the time alone if no answer comes, so a process that was stopped reads `Lost` before
//! it does anything else.
//!
//! Unless somebody else keeps the lease alive meanwhile: a lease that is [watched](Lease::watch) is in
//! jeopardy after a pause, until the store has said whether it is still its own.

use std::time::Duration;

use crate::holds::{HoldId, Holds, Term};
use crate::policy::{Pace, Policy};
use crate::state::{Cause, State};
use crate::time::{self, Instant, Ttl};
use crate::watchdog::Terms;

/// What the machine wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing, until [`Lease::next_event`].
    Wait,
    /// Send a renewal of this ttl, or a longer one, and report what became of it.
    Renew(Ttl),
}

/// One lease, as its holder sees it.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The ttl that each renewal asks for, and the pace that goes with it.
    ttl: Ttl,
    whole: Pace,
    /// The shorter ttl that the store keeps it for at first, if it was granted to a waiter.
    short: Option<Ttl>,
    /// From when on it is not renewed any more.
    max_hold: Option<Instant>,
    holds: Holds,
    /// The instant until which the store is sure to keep the lease.
    deadline: Instant,
    /// When the last request that the store confirmed was sent.
    confirmed: Instant,
    /// When to try the next renewal, if none is under way.
    due: Instant,
    /// When the renewal was asked for that is under way.
    under_way: Option<Instant>,
    /// Whether somebody else keeps it alive while this process cannot.
    watched: bool,
    /// When this process was seen to go on after a pause, in which the lease would have been given up.
    woken: Option<Instant>,
    /// Since when there is a doubt that only an answer to a later request ends.
    doubted: Option<Instant>,
    /// When it was last asked because of a hint.
    checked: Option<Instant>,
    trouble: Option<Cause>,
    /// Why the holds are lost that were renewed, if fixed ones go on.
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

    /// A lease that the store granted to its waiter by a message: at `granted`, for `ttl` until
    /// somebody says more, and so until `deadline` at least. See [`time::granted`].
    ///
    /// Until a renewal has confirmed it for the ttl of its policy, it is renewed as one of that
    /// shorter ttl.
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

    /// Whether it is renewed as this policy says.
    #[must_use]
    pub fn suits(&self, policy: Policy) -> bool {
        self.ttl == policy.ttl && self.whole == policy.pace()
    }

    /// It goes to the next holder, whose longest hold begins now.
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

    /// Somebody else keeps it alive from now on while this process cannot, or does not any more.
    pub fn watch(&mut self, watched: bool, now: Instant) {
        if self.is_open(now) && !watched {
            self.wake(now);
        }
        self.watched = watched;
    }

    /// This process was stopped, or too busy to look at the lease for long. If it is watched, the time
    /// alone does not end it: the store is asked, for an interval at most.
    pub fn wake(&mut self, now: Instant) {
        if self.is_open(now) {
            self.woken = Some(now);
            self.trouble = Some(Cause::Paused);
            self.doubt(now, now);
        }
    }

    /// What somebody else is to do for it while this process cannot.
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
            // As long as it has.
            false => Terms {
                ttl: self.ttl(now),
                ..terms
            },
        }
    }

    /// How much too late a look at the lease must be to show that this process was stopped.
    #[must_use]
    pub fn late(&self) -> Duration {
        self.pace().interval() / 4
    }

    /// Whether it would be given up by the time alone, and may have been kept alive by somebody else: only
    /// the store knows.
    fn is_open(&self, now: Instant) -> bool {
        let watched = self.woken.is_some() || self.watched && now >= self.renewed_end();
        let renewed = self.holds.renewed() && self.given_up.is_none();
        watched && renewed && self.lost.is_none() && !self.is_held_too_long(now)
    }

    /// What the lease is worth at `now`: as much as the hold of it that lasts longest.
    #[must_use]
    pub fn state(&self, now: Instant) -> State {
        if self.is_open(now) {
            return self.open_state(now);
        }
        let silence = self.silence(now);
        self.state_until(self.end(), now, self.given_up.or(self.trouble).or(silence))
    }

    /// What one hold of the lease is worth at `now`. A fixed one ends at its own instant; one that is
    /// renewed is given up a margin before the deadline.
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

    /// Nothing may be relied on beyond the deadline, and the end is not known.
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

    /// What is wrong with a renewed lease of which nothing was heard.
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

    /// The ttl that an operation sent at `now` must ask for.
    #[must_use]
    pub fn ttl(&self, now: Instant) -> Ttl {
        let renewal = match self.is_held_too_long(now) {
            false => self.ttl,
            // As long as it has, and no longer.
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
            // How late that is shows whether it was a pause; after one, an answer decides.
            true if self.woken.is_none() => self.overdue().min(self.renewed_end()),
            true => now.after(self.late()),
            false => self.next_change(now)?,
        };
        if self.wants_renewal(now) && self.under_way.is_none() {
            return Some(change.min(self.due));
        }
        Some(change)
    }

    /// When [`Lease::state`] changes next if nothing happens until then. `None`: it is final, or waits for
    /// an answer.
    #[must_use]
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        if self.state(now).is_lost() || self.is_open(now) {
            return None;
        }
        let end = self.end();
        self.renewed_changes(now).chain([end]).min()
    }

    /// When [`Lease::hold_state`] changes next if nothing happens until then. `None`: it is final, or waits
    /// for an answer.
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

    /// When the time alone changes what renewed holds are worth.
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

    /// Whether a renewal that [`Lease::poll`] asked for is not answered.
    #[must_use]
    pub const fn under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Until when an answer to a renewal that is sent now would be of use.
    #[must_use]
    pub fn answer_by(&self, now: Instant) -> Instant {
        match self.is_open(now) {
            true => now.after(self.ttl.as_duration()),
            false => self.deadline,
        }
    }

    /// Tells the machine the time; it answers what to do.
    pub fn poll(&mut self, now: Instant) -> Action {
        if self.woken.is_none() {
            // In time: this process runs, and somebody else has no need to keep it alive.
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

    /// The renewal that [`Lease::poll`] asked for was confirmed.
    pub fn renewed(&mut self, sent: Instant, ttl: Ttl, now: Instant) {
        self.under_way = None;
        self.confirmed(sent, ttl, now);
    }

    /// The renewal that [`Lease::poll`] asked for failed, or nobody knows.
    pub fn renewal_failed(&mut self, now: Instant, cause: Cause) {
        let asked = self.under_way.take();
        self.due = now.after(self.pace().retry());
        self.trouble.get_or_insert(cause);
        if let Some(woken) = self.woken {
            match asked {
                // What was asked before the pause says nothing.
                Some(asked) if asked < woken => self.due = now,
                // For as long as any other holder would try.
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

    /// The store confirmed another operation of the holder, sent at `sent` with `ttl`.
    ///
    /// A confirmation that comes after the lease was given up does not revive it.
    pub fn confirmed(&mut self, sent: Instant, ttl: Ttl, now: Instant) {
        self.settle(now);
        if self.lost.is_some() {
            return;
        }
        self.deadline = self.deadline.max(time::deadline(sent, ttl));
        if sent >= self.confirmed {
            self.confirmed = sent;
            self.short = None;
            // What was sent before the doubt arose does not end it.
            if self.doubted.is_none_or(|since| sent >= since) {
                self.doubted = None;
                self.trouble = None;
                self.woken = None;
                self.due = self.whole.due(sent, self.due);
            }
        }
        self.settle(now);
    }

    /// There is a hint that the lease may not hold the lock any more: the store is asked at once, or
    /// as soon as the last such question is a retry's pause ago. Hints may come without need.
    pub fn check(&mut self, now: Instant) {
        let next = self.checked.map_or(now, |at| at.after(self.pace().retry()));
        let at = next.max(now);
        self.checked = Some(at);
        self.doubt(now, at);
    }

    /// The connection to the store was interrupted: the lease is in jeopardy until the store has
    /// confirmed it, and the store is asked at once.
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

    /// The store said that the lease does not hold the lock.
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

    /// When the last of its holds is over if nothing is heard. Without any it is to be released.
    fn end(&self) -> Instant {
        let renewed = self.holds.renewed() && self.given_up.is_none();
        let renewed = renewed.then(|| self.renewed_end());
        let fixed = self.holds.fixed_end().map(|end| end.min(self.deadline));
        match self.given_up {
            // Those that were renewed are over, and others may not be.
            Some(_) => fixed.unwrap_or_default(),
            None => renewed.max(fixed).unwrap_or(self.deadline),
        }
    }

    /// When holds are given up that are renewed.
    fn renewed_end(&self) -> Instant {
        self.deadline.before(self.pace().margin())
    }

    /// When the silence about a renewal is a bad sign: soon if it was not sent, and after half an
    /// interval, in which stores give up, if it was.
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
