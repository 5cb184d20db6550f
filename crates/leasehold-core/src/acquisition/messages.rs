//! The inputs and outputs of an acquisition.

use std::sync::Arc;
use std::time::Duration;

#[cfg(doc)]
use super::Acquisition;
use crate::annotation::Annotation;
use crate::id::LeaseId;
use crate::lease::Lease;
use crate::lease::holds::{HoldId, Term};
use crate::policy::Policy;
use crate::record::{Claim, Grant, Op, Outcome, Run, Unless};
use crate::release::AbandonedLease;
use crate::time::{self, Instant, StoreTime, Ttl};
use crate::token::{Token, TokenCount};

/// How a lease is kept once it is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalOptions {
    /// The policy of a renewed lease.
    pub policy: Policy,
    /// The ttl of a fixed lease. `None`: the lease is renewed.
    pub fixed: Option<Ttl>,
}

impl RenewalOptions {
    /// The ttl that a request names.
    #[must_use]
    pub fn ttl(&self) -> Ttl {
        self.fixed.unwrap_or(self.policy.ttl)
    }

    /// The term of a hold whose request is sent at `sent`.
    #[must_use]
    pub fn term(&self, sent: Instant) -> Term {
        match self.fixed {
            Some(ttl) => Term::Fixed(time::deadline(sent, ttl)),
            None => Term::Renewed,
        }
    }
}

/// A run that a caller asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRequest {
    /// The completion that makes it needless.
    pub unless: Unless,
    /// When it was asked for.
    pub since: Instant,
}

impl RunRequest {
    /// The condition of a request that is sent at `now`.
    #[must_use]
    pub fn unless(&self, now: Instant) -> Unless {
        self.unless.asked_ago(now.since(self.since))
    }
}

/// The properties of the caller and the store of an acquisition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquisitionOptions {
    /// How the lease is kept.
    pub lease: RenewalOptions,
    /// What the lease is to hold.
    pub claim: Claim,
    /// The run for which it is acquired, if it is for one.
    pub run: Option<Arc<RunRequest>>,
    /// Whether the caller waits. If not, the first refusal is final, and so are most failures.
    pub wait: bool,
    /// Whether a grant counts only once replicas have acknowledged it.
    pub replicated: bool,
    /// Whether the store accepts repeated requests of one lease id.
    pub idempotent: bool,
    /// The longest interval between two requests at a store that notifies nobody. The first one is a few milliseconds.
    pub longest_poll: Duration,
}

/// The next step of the host.
#[derive(Debug)]
pub enum AcquireAction {
    /// Nothing before [`Acquisition::next_timeout`], a reply or a notice.
    Wait,
    /// Name a new lease id by [`Acquisition::start`], and poll again.
    NewLease,
    /// Send this operation, and pass the reply to [`Acquisition::handle_reply`].
    Acquire(Op),
    /// Release an abandoned lease id, and poll again.
    Release(AbandonedLease),
    /// A grant had expired when its reply came. It counts as a request without a reply. Poll again.
    GrantExpired,
    /// The lock is held: final.
    Granted(GrantedLease),
    /// The run that was asked for is complete: final.
    Complete(Annotation),
    /// Another client holds the lock, and the caller does not wait.
    Refused,
    /// The last failure is final for the caller.
    Failed,
}

/// A lease that was granted.
#[derive(Debug)]
pub struct GrantedLease {
    /// Its id.
    pub id: LeaseId,
    /// Its state machine.
    pub lease: Lease,
    /// Its first hold.
    pub hold: HoldId,
    /// The first of the tokens reserved for it.
    pub first: Token,
    /// How many tokens are reserved.
    pub tokens: TokenCount,
    /// The run that it is for, and the store's time of the grant. `None`: none was asked for.
    pub run: Option<(Run, StoreTime)>,
    /// Until when another request of this id, one without a reply, can still be applied.
    pub late_release: Option<Instant>,
}

/// What a grant says beside its tokens, if its claim asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbering {
    /// The number among the holders of a semaphore.
    pub number: Option<u32>,
    /// The smallest of the first tokens of all holders.
    pub floor: Option<Token>,
}

/// The reply to an acquire.
#[derive(Clone, Debug)]
pub enum AcquireReply {
    /// The store applied it.
    Applied {
        /// The outcome.
        outcome: Outcome,
        /// The store's time at which it was applied.
        now: StoreTime,
        /// The shard whose clock that time is from. `None`: unknown, since the record moved meanwhile.
        shard: Option<u32>,
        /// Whether the store notifies refused clients without a place in the queue of changes.
        notifies_changes: bool,
    },
    /// The store certainly did not apply it.
    Rejected(Failure),
    /// There was no reply: the store may have applied the request, or may apply it later.
    Unknown(Failure),
}

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The store did not reply, or refuses requests for an unknown time.
    Transient,
    /// The store refuses requests for this long.
    Until(Duration),
    /// A retry would fail as well.
    Permanent,
}

/// A notice of the store to a waiter.
#[derive(Clone, Debug)]
pub enum AcquireNotice {
    /// The store granted the lock.
    Granted(Grant),
    /// The run that this lease waited for is complete.
    Complete(LeaseId, Annotation),
    /// Another lease was granted the lock, for this ttl at first. This one is next in the queue.
    Next(Ttl),
    /// Another client changed the record.
    Changed,
    /// The connection was interrupted, or the record may have moved: notices may have been lost.
    Interrupted,
}
