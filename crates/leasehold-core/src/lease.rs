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

use std::fmt;
use std::time::Duration;

use crate::holds::{HoldId, Holds, Term};
use crate::time::{self, Instant, Ttl};

/// When a lease is renewed and when it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The ttl that each renewal asks for.
    pub ttl: Ttl,
    /// The time from one renewal to the next: a third of the ttl.
    pub interval: Duration,
    /// The time before the deadline at which the lease is given up: a third of the ttl.
    pub margin: Duration,
    /// The pause after a failed renewal: a thirtieth of the ttl.
    pub retry: Duration,
}

impl Policy {
    /// The policy of a renewed lease of this ttl.
    ///
    /// A renewal is due after a third of the ttl and, while it fails, is tried again every thirtieth.
    /// With another third as margin, the second renewal in a row that failed ends the lease with a
    /// third of its ttl left to stop the work.
    #[must_use]
    pub fn of(ttl: Ttl) -> Self {
        let third = ttl.as_duration() / 3;
        Self {
            ttl,
            interval: third,
            margin: third,
            retry: (third / 10).max(Duration::from_millis(5)),
        }
    }
}

/// What a holder may believe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The lock is held.
    Held {
        /// It is, at least until here.
        until: Instant,
    },
    /// The lock is held, but it may soon not be: a renewal failed or is overdue.
    Jeopardy {
        /// It is given up here unless a renewal succeeds.
        until: Instant,
        /// What went wrong.
        cause: Cause,
    },
    /// The lock must not be relied on. This is final.
    Lost(Cause),
}

impl State {
    /// Whether the lease is over.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// Whether all is well.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        matches!(self, Self::Held { .. })
    }
}

/// Why a lease is in jeopardy or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The fixed lease ran to its end.
    Expired,
    /// The store says that the lease does not hold the lock: it expired there, was deleted, was
    /// revoked by an operator, or another holds it now.
    NotHeld,
    /// The store could not be reached, or did not answer, or could not renew.
    Unreachable,
    /// The renewal is overdue: this process was paused, or too busy to send it.
    Overdue,
    /// The client of this process was shut down and released all its leases.
    Released,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its fixed lease has ended",
            Self::NotHeld => "the store does not know the lease any more",
            Self::Unreachable => "the store did not confirm a renewal",
            Self::Released => "its client was shut down",
            Self::Overdue => "the renewal was not sent in time: the process was paused or too busy",
        })
    }
}

/// What the machine wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing, until [`Lease::next_event`].
    Wait,
    /// Send a renewal of this ttl and report what became of it.
    Renew(Ttl),
}

/// One lease, as its holder sees it.
#[derive(Clone, Debug)]
pub struct Lease {
    policy: Policy,
    /// The policy of the ttl that the store keeps now: of a shorter one, at first, if it was granted
    /// to a waiter.
    pace: Policy,
    holds: Holds,
    /// The instant until which the store is sure to keep the lease.
    deadline: Instant,
    /// When the last request that the store confirmed was sent.
    confirmed: Instant,
    /// When to try the next renewal, if none is under way.
    due: Instant,
    under_way: bool,
    /// Since when there is a doubt that only an answer to a later request ends.
    doubted: Option<Instant>,
    /// When it was last asked because of a hint.
    checked: Option<Instant>,
    trouble: Option<Cause>,
    lost: Option<Cause>,
}

impl Lease {
    /// A lease that the store granted on a request sent at `sent`, with its first hold.
    #[must_use]
    pub fn granted(policy: Policy, ttl: Ttl, term: Term, sent: Instant) -> (Self, HoldId) {
        let deadline = time::deadline(sent, ttl);
        Self::start(policy, policy, term, sent, deadline)
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
        let pace = Policy::of(ttl.min(policy.ttl));
        Self::start(policy, pace, term, granted, deadline)
    }

    fn start(
        policy: Policy,
        pace: Policy,
        term: Term,
        confirmed: Instant,
        deadline: Instant,
    ) -> (Self, HoldId) {
        let mut holds = Holds::default();
        let hold = holds.enter(term);
        let lease = Self {
            policy,
            pace,
            holds,
            deadline,
            confirmed,
            due: confirmed.after(pace.interval),
            under_way: false,
            doubted: None,
            checked: None,
            trouble: None,
            lost: None,
        };
        (lease, hold)
    }

    /// What the lease is worth at `now`.
    #[must_use]
    pub fn state(&self, now: Instant) -> State {
        if let Some(cause) = self.lost {
            return State::Lost(cause);
        }
        let until = self.given_up();
        if now >= until {
            return State::Lost(match self.trouble {
                Some(cause) => cause,
                None if self.holds.renewed() => Cause::Overdue,
                None => Cause::Expired,
            });
        }
        match self.trouble {
            Some(cause) => State::Jeopardy { until, cause },
            None if self.holds.renewed() && now >= self.overdue() => State::Jeopardy {
                until,
                cause: Cause::Overdue,
            },
            None => State::Held { until },
        }
    }

    /// What one hold of the lease is worth at `now`: a fixed hold ends at its own instant.
    #[must_use]
    pub fn hold_state(&self, hold: HoldId, now: Instant) -> State {
        let state = self.state(now);
        let Some(Term::Fixed(end)) = self.holds.term(hold) else {
            return state;
        };
        match state {
            State::Lost(_) => state,
            _ if now >= end => State::Lost(Cause::Expired),
            State::Held { until } => State::Held {
                until: until.min(end),
            },
            State::Jeopardy { until, cause } => State::Jeopardy {
                until: until.min(end),
                cause,
            },
        }
    }

    /// The instant until which the store is sure to keep the lease.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How it is renewed.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        self.policy
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
        self.holds.ttl(now, self.policy.ttl)
    }

    /// When [`Lease::poll`] must be called next. `None`: never again.
    #[must_use]
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        let change = self.next_change(now)?;
        if self.wants_renewal() && !self.under_way {
            return Some(change.min(self.due));
        }
        Some(change)
    }

    /// When [`Lease::state`] changes next if nothing happens until then. `None`: it is final.
    #[must_use]
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        if self.state(now).is_lost() {
            return None;
        }
        let overdue = self.overdue();
        if self.holds.renewed() && self.trouble.is_none() && now < overdue {
            return Some(overdue.min(self.given_up()));
        }
        Some(self.given_up())
    }

    /// When [`Lease::hold_state`] changes next if nothing happens until then. `None`: it is final.
    #[must_use]
    pub fn next_hold_change(&self, hold: HoldId, now: Instant) -> Option<Instant> {
        if self.hold_state(hold, now).is_lost() {
            return None;
        }
        let change = self.next_change(now)?;
        match self.holds.term(hold) {
            Some(Term::Fixed(end)) => Some(change.min(end)),
            _ => Some(change),
        }
    }

    /// Tells the machine the time; it answers what to do.
    pub fn poll(&mut self, now: Instant) -> Action {
        if let State::Lost(cause) = self.state(now) {
            self.lost = Some(cause);
            return Action::Wait;
        }
        if self.wants_renewal() && !self.under_way && now >= self.due {
            self.under_way = true;
            return Action::Renew(self.ttl(now));
        }
        Action::Wait
    }

    /// The renewal that [`Lease::poll`] asked for was confirmed.
    pub fn renewed(&mut self, sent: Instant, ttl: Ttl, now: Instant) {
        self.under_way = false;
        self.confirmed(sent, ttl, now);
    }

    /// The renewal that [`Lease::poll`] asked for failed, or nobody knows.
    pub fn renewal_failed(&mut self, now: Instant, cause: Cause) {
        self.under_way = false;
        self.due = now.after(self.pace.retry);
        self.trouble.get_or_insert(cause);
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
            self.pace = self.policy;
            // What was sent before the doubt arose does not end it.
            if self.doubted.is_none_or(|since| sent >= since) {
                self.doubted = None;
                self.trouble = None;
                self.due = sent.after(self.policy.interval);
            }
        }
        self.settle(now);
    }

    /// There is a hint that the lease may not hold the lock any more: the store is asked at once, or
    /// as soon as the last such question is a retry's pause ago. Hints may come without need.
    pub fn check(&mut self, now: Instant) {
        let next = self.checked.map_or(now, |at| at.after(self.pace.retry));
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
        self.due = if self.wants_renewal() {
            self.due.min(ask_at)
        } else {
            ask_at
        };
        self.doubted = Some(now);
    }

    fn wants_renewal(&self) -> bool {
        self.holds.renewed() || self.doubted.is_some()
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
    }

    fn given_up(&self) -> Instant {
        if self.holds.renewed() {
            self.deadline.before(self.pace.margin)
        } else {
            self.deadline
        }
    }

    fn overdue(&self) -> Instant {
        self.confirmed
            .after(self.pace.interval)
            .after(self.pace.retry)
    }
}

#[cfg(test)]
mod tests;
