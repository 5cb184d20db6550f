//! Judges: they read what was asked and what was answered, and say which promise was broken.
//!
//! They share no code with the rule, only the types of questions and answers. What they know of a
//! lease is what a reader of the promises knows: it begins with its grant, ends at its ttl and may
//! be renewed, released or revoked before. And who was refused and wants to wait is served in the
//! order of coming, by a grant that is told.

mod promise;
mod tenure;
mod tokens;
mod waiting;

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{ClientId, Grant, LeaseId, Notice, Op, Outcome, StoreTime};

use self::promise::broken;
pub use self::promise::{Promise, Violation};
use self::tenure::{Tenure, held_by};
use self::waiting::{Waiter, Waiting};

/// How long a waiter that was granted the lock has it until it says more, in milliseconds.
const ACCEPTANCE_MS: u64 = 3_000;

/// What a store did with one operation.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// What was asked.
    pub op: &'a Op,
    /// What was answered.
    pub outcome: &'a Outcome,
    /// What was told to those who wait, in this order, and could be told.
    pub told: &'a [Notice],
    /// The store's time.
    pub now: StoreTime,
}

/// Reads the operations on one name in the order in which its store applied them.
#[derive(Clone, Debug)]
pub struct Judge {
    tenure: Option<Tenure>,
    waiting: Waiting,
    last_token: u64,
    slack: u64,
}

impl Judge {
    /// A judge of a store that rounds the ends of leases by up to `slack`.
    #[must_use]
    pub fn new(slack: Duration) -> Self {
        Self {
            tenure: None,
            waiting: Waiting::default(),
            last_token: 0,
            slack: u64::try_from(slack.as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// Reads what was done with one operation. `reaches` says which clients can be told at this
    /// moment.
    ///
    /// # Errors
    ///
    /// The promise that was broken.
    pub fn see(
        &mut self,
        seen: Seen<'_>,
        reaches: impl Fn(ClientId) -> bool,
    ) -> Result<(), Violation> {
        let now = seen.now.as_micros();
        self.waiting.forget(now);
        // A question finds the lock free and lets those before it go first; every other operation
        // leaves it free and lets the next one in.
        if matches!(seen.op, Op::Acquire { .. }) {
            self.told(seen.told, now, &reaches)?;
            self.answered(seen.op, seen.outcome, now, &reaches)?;
        } else {
            self.answered(seen.op, seen.outcome, now, &reaches)?;
            let told = Self::cut_off(seen, &reaches)?;
            self.told(told, now, &reaches)?;
        }
        self.nobody_forgotten(now, &reaches)
    }

    /// Reads the answer to an operation.
    fn answered(
        &mut self,
        op: &Op,
        outcome: &Outcome,
        now: u64,
        reaches: &impl Fn(ClientId) -> bool,
    ) -> Result<(), Violation> {
        let (surely, maybe) = self.tenures(now);
        match (*op, *outcome) {
            (
                Op::Acquire {
                    lease,
                    count,
                    ttl,
                    tokens,
                    ..
                },
                Outcome::Granted { first },
            ) => {
                self.exclusion(surely, lease, op, now)?;
                let block = (first.get(), u64::from(tokens.get()));
                self.token_order(surely, maybe, lease, block)?;
                self.last_token = self.last_token.max(block.0 + block.1 - 1);
                if !held_by(surely, lease) {
                    self.serve(lease, now, reaches)?;
                }
                self.begin(lease, count, now, ttl);
            }
            (
                Op::Acquire { lease, .. },
                Outcome::Refused {
                    time_left: left,
                    queue_position: place,
                },
            ) => {
                self.refusal(maybe, lease, left, now)?;
                self.place(op, place, now)?;
            }
            (Op::Acquire { tokens, .. }, Outcome::Exhausted) => {
                if !self.exhausted(now, u64::from(tokens.get())) {
                    return broken(Promise::TokenOrder, "exhausted with tokens left".into());
                }
            }
            (Op::Revoke, Outcome::Revoked { cut_off }) => {
                let known = cut_off.is_none_or(|cut_off| held_by(maybe, cut_off));
                let missed = cut_off.is_none() && surely.is_some();
                if !known || missed {
                    let what = format!("revoke at {now} cut off {cut_off:?}, held: {maybe:?}");
                    return broken(Promise::Loss, what);
                }
                self.tenure = None;
            }
            _ => return self.holder_answered(op, outcome, now),
        }
        Ok(())
    }

    /// Reads the answer to what only a holder does.
    fn holder_answered(&mut self, op: &Op, outcome: &Outcome, now: u64) -> Result<(), Violation> {
        let (surely, maybe) = self.tenures(now);
        match (*op, *outcome) {
            (Op::Enter { lease, count, ttl }, Outcome::Entered { count: told }) => {
                self.own(maybe, lease, op, now)?;
                if told != count {
                    return broken(Promise::HoldCount, format!("{op:?} made it {told} holds"));
                }
                self.begin(lease, count, now, ttl);
            }
            (
                Op::SetToken {
                    lease,
                    first,
                    tokens,
                },
                Outcome::Fenced | Outcome::Outdated | Outcome::Exhausted,
            ) => {
                self.own(maybe, lease, op, now)?;
                self.fence(first.get(), u64::from(tokens.get()), *outcome)?;
            }
            (Op::Renew { lease, ttl }, Outcome::Renewed) => {
                let own = self.own(maybe, lease, op, now)?;
                self.begin(lease, own.count, now, ttl);
            }
            (Op::Release { lease, count, ttl }, Outcome::Released { count: told }) => {
                self.own(maybe, lease, op, now)?;
                if told != count {
                    return broken(Promise::HoldCount, format!("{op:?} left {told} holds"));
                }
                match NonZeroU32::new(count) {
                    Some(count) => self.begin(lease, count, now, ttl),
                    None => self.tenure = None,
                }
            }
            (
                Op::Enter { lease, .. }
                | Op::SetToken { lease, .. }
                | Op::Renew { lease, .. }
                | Op::Release { lease, .. },
                Outcome::Lost(_),
            ) => {
                if let Some(own) = surely.filter(|tenure| tenure.lease == lease) {
                    let what = format!("{op:?} at {now} called lost, but held: {own:?}");
                    return broken(Promise::Loss, what);
                }
                self.tenure = self.tenure.filter(|tenure| tenure.lease != lease);
                self.waiting.leave(lease);
            }
            _ => {
                let what = format!("{op:?} was answered {outcome:?}");
                return broken(Promise::Answer, what);
            }
        }
        Ok(())
    }

    /// Reads what was told to a holder that was cut off, and answers what else was told.
    fn cut_off<'a>(
        seen: Seen<'a>,
        reaches: &impl Fn(ClientId) -> bool,
    ) -> Result<&'a [Notice], Violation> {
        let Outcome::Revoked {
            cut_off: Some(lease),
        } = *seen.outcome
        else {
            return Ok(seen.told);
        };
        match seen.told {
            [Notice::Revoked { lease: told }, rest @ ..] if *told == lease => Ok(rest),
            told if !reaches(lease.client) => Ok(told),
            told => broken(
                Promise::Wake,
                format!("{lease} was cut off, and told {told:?}"),
            ),
        }
    }

    /// Reads what was told to those who wait.
    fn told(
        &mut self,
        told: &[Notice],
        now: u64,
        reaches: &impl Fn(ClientId) -> bool,
    ) -> Result<(), Violation> {
        let mut expected = None;
        for notice in told {
            match notice {
                Notice::Granted(grant) => {
                    self.granted(grant, now, reaches)?;
                    let next = self.waiting.pass_over(|lease| !reaches(lease.client));
                    let ttl = grant.ttl;
                    expected = next.map(|lease| Notice::Next { lease, ttl });
                }
                Notice::Next { .. } if expected == Some(*notice) => expected = None,
                Notice::Next { .. } | Notice::Revoked { .. } => {
                    let what = format!("{notice:?} was told, not {expected:?}");
                    return broken(Promise::Wake, what);
                }
            }
        }
        match expected {
            Some(missed) => broken(Promise::Wake, format!("{missed:?} was not told")),
            None => Ok(()),
        }
    }

    /// Reads a grant that was told.
    fn granted(
        &mut self,
        grant: &Grant,
        now: u64,
        reaches: &impl Fn(ClientId) -> bool,
    ) -> Result<(), Violation> {
        let (surely, maybe) = self.tenures(now);
        let lease = grant.lease;
        if let Some(other) = surely {
            let what = format!("{grant:?} told, but held: {other:?}");
            return broken(Promise::Exclusion, what);
        }
        let Some(Waiter { ttl, tokens, .. }) = self.waiting.find(lease) else {
            return broken(
                Promise::Wake,
                format!("{grant:?} told, but it does not wait"),
            );
        };
        if !reaches(lease.client) || grant.now.as_micros() != now {
            return broken(Promise::Wake, format!("{grant:?} told at {now} to nobody"));
        }
        if grant.ttl.as_millis() != ttl.as_millis().min(ACCEPTANCE_MS) {
            return broken(Promise::Acceptance, format!("{grant:?} for {ttl:?}"));
        }
        let block = (grant.first.get(), tokens);
        self.token_order(surely, maybe, lease, block)?;
        self.last_token = self.last_token.max(block.0 + block.1 - 1);
        self.serve(lease, now, reaches)?;
        self.begin(lease, NonZeroU32::MIN, now, grant.ttl);
        Ok(())
    }

    /// Somebody is granted the lock: all who came before and can be told have been.
    fn serve(
        &mut self,
        lease: LeaseId,
        now: u64,
        reaches: &impl Fn(ClientId) -> bool,
    ) -> Result<(), Violation> {
        let mut before = self.waiting.serve(lease).into_iter();
        match before.find(|before| reaches(before.client)) {
            Some(overtaken) => broken(
                Promise::Order,
                format!("{lease} was granted at {now} before {overtaken}, who came first"),
            ),
            None => Ok(()),
        }
    }

    /// Reads the place of somebody who was refused.
    fn place(&mut self, op: &Op, told: Option<u32>, now: u64) -> Result<(), Violation> {
        let Op::Acquire {
            lease,
            ttl,
            tokens,
            wait,
            ..
        } = *op
        else {
            return Ok(());
        };
        let place = wait.then(|| {
            let tokens = u64::from(tokens.get());
            self.waiting.ask(Waiter { lease, ttl, tokens }, now)
        });
        if told.map(u64::from) == place {
            return Ok(());
        }
        let what = format!("{lease} refused at {now} with {told:?} before it, not {place:?}");
        broken(Promise::Order, what)
    }

    /// A lock is not free while somebody waits for it who can be told. Those who cannot are not
    /// waited for.
    fn nobody_forgotten(
        &mut self,
        now: u64,
        reaches: &impl Fn(ClientId) -> bool,
    ) -> Result<(), Violation> {
        if self.tenures(now).1.is_some() {
            return Ok(());
        }
        let mut waiters = self.waiting.all().iter();
        match waiters
            .find(|waiter| reaches(waiter.lease.client) && !self.exhausted(now, waiter.tokens))
        {
            Some(waiter) => broken(
                Promise::Wake,
                format!("free at {now}, but {} waits for it", waiter.lease),
            ),
            None => {
                self.waiting = Waiting::default();
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
