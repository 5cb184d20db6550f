//! Judges: they read what was asked and what was answered, and say which promise was broken.
//!
//! They share no code with the rule, only the types of questions and answers. What they know of a
//! lease is what a reader of the promises knows: it begins with its grant, ends at its ttl and may
//! be renewed, released or revoked before. And who was refused and wants to wait is served in the
//! order of coming, by a grant that is told.

mod waiting;

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{ClientId, Grant, LeaseId, Notice, Op, Outcome, StoreTime, Ttl};

use self::waiting::{Waiter, Waiting};

/// The largest number that is exact in a Lua number, and so the largest token.
const TOKEN_MAX: u64 = (1 << 53) - 1;

/// How long a waiter that was granted the lock has it until it says more, in milliseconds.
const ACCEPTANCE_MS: u64 = 3_000;

/// A promise that a judge watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Promise {
    /// The times of two holders never overlap.
    Exclusion,
    /// Tokens grow in the order of grant, and one grant asked for twice has one token.
    TokenOrder,
    /// The hold count is the one that was asked for last.
    HoldCount,
    /// A lock is refused only while another holds it, and for as long as the answer says.
    Refusal,
    /// A lease is called lost only when it is.
    Loss,
    /// An answer is one that the question can have.
    Answer,
    /// Those who wait and can be told are served in the order of coming, and learn their place in it.
    Order,
    /// Whoever waits and can be told is granted the lock as soon as it is free, and is told so; and
    /// nobody is told what concerns another.
    Wake,
    /// A grant that is told is for the time in which a waiter can take it, no more and no less.
    Acceptance,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub promise: Promise,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} broken: {}", self.promise, self.what)
    }
}

impl std::error::Error for Violation {}

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

/// The time of one holder, as the answers tell it.
#[derive(Clone, Copy, Debug)]
struct Tenure {
    lease: LeaseId,
    count: NonZeroU32,
    until: u64,
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
            (Op::Acquire { lease, .. }, Outcome::Refused { left, place }) => {
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
                Op::Fence {
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
                | Op::Fence { lease, .. }
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
                    let next = self.waiting.head();
                    expected = next.filter(|next| reaches(next.client)).map(|lease| {
                        let ttl = grant.ttl;
                        Notice::Next { lease, ttl }
                    });
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

    fn exhausted(&self, now: u64, tokens: u64) -> bool {
        now.max(self.last_token + 1) + tokens - 1 > TOKEN_MAX
    }

    /// Reads who is shown as the holder at `now`, and with how many holds.
    ///
    /// # Errors
    ///
    /// The promise that it breaks.
    pub fn look(&self, shown: Option<(LeaseId, u32)>, now: StoreTime) -> Result<(), Violation> {
        let until = |tenure: &Tenure| tenure.until;
        let now = now.as_micros();
        let surely = self
            .tenure
            .filter(|tenure| now.saturating_add(self.slack) < until(tenure));
        let maybe = self
            .tenure
            .filter(|tenure| now < until(tenure).saturating_add(self.slack));
        match (shown, maybe) {
            (None, _) if surely.is_none() => Ok(()),
            (Some((lease, count)), Some(tenure))
                if (lease, count) == (tenure.lease, tenure.count.get()) =>
            {
                Ok(())
            }
            _ => broken(
                Promise::HoldCount,
                format!("shown {shown:?} at {now}, held {:?}", self.tenure),
            ),
        }
    }

    /// The tenure that surely lasts at `now`, and the one that may. One that is surely over is over
    /// for good: setting the clock back does not bring it back.
    fn tenures(&mut self, now: u64) -> (Option<Tenure>, Option<Tenure>) {
        let slack = self.slack;
        self.tenure = self
            .tenure
            .filter(|tenure| now < tenure.until.saturating_add(slack));
        let surely = self
            .tenure
            .filter(|tenure| now.saturating_add(slack) < tenure.until);
        (surely, self.tenure)
    }

    /// A lease begins, or is told a new ttl. That never ends it earlier.
    fn begin(&mut self, lease: LeaseId, count: NonZeroU32, now: u64, ttl: Ttl) {
        let until = now.saturating_add(ttl.as_millis().saturating_mul(1_000));
        let own = self.tenure.filter(|tenure| tenure.lease == lease);
        self.tenure = Some(Tenure {
            lease,
            count,
            until: own.map_or(until, |own| own.until.max(until)),
        });
    }

    fn exclusion(
        &self,
        surely: Option<Tenure>,
        lease: LeaseId,
        op: &Op,
        now: u64,
    ) -> Result<(), Violation> {
        match surely {
            Some(other) if other.lease != lease => broken(
                Promise::Exclusion,
                format!("{op:?} granted at {now}, but held: {other:?}"),
            ),
            _ => Ok(()),
        }
    }

    fn own(
        &self,
        maybe: Option<Tenure>,
        lease: LeaseId,
        op: &Op,
        now: u64,
    ) -> Result<Tenure, Violation> {
        match maybe {
            Some(own) if own.lease == lease => Ok(own),
            other => broken(
                Promise::Exclusion,
                format!("{op:?} accepted at {now}, but held: {other:?}"),
            ),
        }
    }

    fn token_order(
        &self,
        surely: Option<Tenure>,
        maybe: Option<Tenure>,
        lease: LeaseId,
        (first, count): (u64, u64),
    ) -> Result<(), Violation> {
        let last = self.last_token;
        let grown = first > last;
        // The holder that asks again is told the end of the same block, however long it says that
        // it is; a block longer than all tokens before it cannot be the same.
        let repeated = first + count - 1 == last;
        let right = if held_by(surely, lease) {
            repeated || (grown && count > last)
        } else {
            grown || (repeated && held_by(maybe, lease))
        };
        if right && (1..=TOKEN_MAX).contains(&first) {
            return Ok(());
        }
        let what = format!("{lease} got {count} tokens from {first} after {last}");
        broken(Promise::TokenOrder, what)
    }

    /// Reads what became of a block of tokens that was chosen elsewhere.
    fn fence(&mut self, first: u64, count: u64, outcome: Outcome) -> Result<(), Violation> {
        let (before, last) = (self.last_token, first + count - 1);
        let right = match outcome {
            _ if last > TOKEN_MAX => outcome == Outcome::Exhausted,
            Outcome::Fenced => before == last || before < first,
            Outcome::Outdated => before != last && before >= first,
            _ => false,
        };
        if outcome == Outcome::Fenced {
            self.last_token = before.max(last);
        }
        if right {
            return Ok(());
        }
        let what = format!("{count} tokens from {first} after {before} were {outcome:?}");
        broken(Promise::TokenOrder, what)
    }

    fn refusal(
        &self,
        maybe: Option<Tenure>,
        lease: LeaseId,
        left: Duration,
        now: u64,
    ) -> Result<(), Violation> {
        let told = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        match maybe {
            Some(other)
                if other.lease != lease
                    && told.abs_diff(other.until.saturating_sub(now)) <= self.slack =>
            {
                Ok(())
            }
            held => broken(
                Promise::Refusal,
                format!("{lease} refused at {now} for {told} us, but held: {held:?}"),
            ),
        }
    }
}

fn held_by(tenure: Option<Tenure>, lease: LeaseId) -> bool {
    tenure.is_some_and(|tenure| tenure.lease == lease)
}

fn broken<T>(promise: Promise, what: String) -> Result<T, Violation> {
    Err(Violation { promise, what })
}

#[cfg(test)]
mod tests;
