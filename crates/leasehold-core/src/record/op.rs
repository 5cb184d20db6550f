//! The operations on a record, their outcomes, and the notices to clients.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::rows::{Changes, Claim, Kind, LeaseKind, Note, Slot, Unless};
use crate::annotation::Annotation;
use crate::id::LeaseId;
use crate::latch::{ArrivalId, LatchCount, LatchStatus};
use crate::time::{StoreTime, Ttl};
use crate::token::{Token, TokenCount};

/// An operation on a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Acquire the lock, or, as a holder, set the hold count and start the ttl anew.
    Acquire(Acquire),
    /// As a holder, start the ttl anew, and set the hold count if one is given.
    Renew {
        /// The lease that holds.
        lease: LeaseId,
        /// How long the store keeps it, from now, if that is longer than it does already.
        ttl: Ttl,
        /// The hold count wanted.
        count: Option<NonZeroU32>,
    },
    /// As a holder, hold something else of the same lock: an upgrade, a downgrade, or more or fewer permits.
    ///
    /// Less is always granted. More is granted past the queue if it fits. If it does not, the conversion may wait before
    /// all others, and the lease holds what it has meanwhile. Only a lease with more than half of the limit may wait so, and
    /// only one at a time: two would wait for each other. Another one is a [`Mismatch::Conversion`].
    ///
    /// A conversion to what the lease has changes nothing, and ends one that waits.
    Convert {
        /// The lease that holds.
        lease: LeaseId,
        /// The first of its tokens, as its last grant has it. A late request does not match it: [`Outcome::Outdated`].
        first: Token,
        /// What the lease is to hold.
        claim: Claim,
        /// How long the store keeps it, from now, if that is longer than it does already.
        ttl: Ttl,
        /// How many tokens to reserve, for another number of permits or for writing: then a late request has others. A
        /// reader gets the token of the readers.
        tokens: TokenCount,
        /// Whether to wait if it is refused.
        wait: bool,
    },
    /// Set the number of permits of a semaphore, used or not, whatever number its requests have. Fewer permits take nothing
    /// from a holder.
    SetLimit {
        /// The number of permits.
        permits: NonZeroU32,
        /// The version of the setting that is replaced, 0 for none. `None`: any.
        if_version: Option<u64>,
        /// How long the setting is kept, and at least after the end of the last lease, as far as that is known.
        keep: Duration,
    },
    /// End the lease, whatever its hold count. A lease that waits leaves the queue.
    Release {
        /// The lease that holds.
        lease: LeaseId,
        /// The rest of its minimum hold, for which its permits stay taken.
        rest: Option<Ttl>,
        /// The note that it leaves. It is written before the lease ends.
        note: Option<NewNote>,
    },
    /// As a holder, write a note.
    WriteNote {
        /// The lease that holds.
        lease: LeaseId,
        /// The note.
        note: NewNote,
    },
    /// As the holder of a mutex, store a block of tokens that was chosen elsewhere, for a lock over many masters. It
    /// must be larger than all before, or the one that was stored last.
    SetToken {
        /// The lease that holds.
        lease: LeaseId,
        /// The first token of the block.
        first: Token,
        /// How many tokens the block has.
        tokens: TokenCount,
    },
    /// Revoke leases on behalf of an operator.
    Revoke(Whom),
    /// Serve the waiters, where another operation was unfinished. Every operation does so, but this one also looks for those
    /// that wait for a run which is complete.
    Serve,
    /// Arrive at a latch.
    Arrive {
        /// The id of the arrival, which counts once.
        id: ArrivalId,
        /// The count of the latch, the same for all arrivals.
        count: LatchCount,
        /// How long the latch is kept after this arrival at least.
        keep: Duration,
    },
    /// Remove a part of the record on behalf of an operator.
    Remove(Removal),
    /// Describe a client, in a record of its own.
    Describe {
        /// The description, for people.
        text: Arc<str>,
        /// How long it is kept.
        keep: Duration,
    },
}

impl Op {
    /// A renewal that keeps the hold count.
    #[must_use]
    pub const fn renew(lease: LeaseId, ttl: Ttl) -> Self {
        let count = None;
        Self::Renew { lease, ttl, count }
    }

    /// A release without a minimum hold and without a note.
    #[must_use]
    pub const fn release(lease: LeaseId) -> Self {
        Self::Release {
            lease,
            rest: None,
            note: None,
        }
    }

    /// Its ttl, if it has one.
    #[must_use]
    pub const fn ttl(&self) -> Option<Ttl> {
        match self {
            Self::Acquire(request) => Some(request.ttl),
            Self::Renew { ttl, .. } | Self::Convert { ttl, .. } => Some(*ttl),
            Self::Release { rest, .. } => *rest,
            _ => None,
        }
    }

    /// The lease that sends it.
    #[must_use]
    pub const fn lease(&self) -> Option<LeaseId> {
        match self {
            Self::Acquire(request) => Some(request.lease),
            Self::Renew { lease, .. }
            | Self::Convert { lease, .. }
            | Self::Release { lease, .. }
            | Self::WriteNote { lease, .. }
            | Self::SetToken { lease, .. } => Some(*lease),
            Self::SetLimit { .. }
            | Self::Revoke(_)
            | Self::Serve
            | Self::Arrive { .. }
            | Self::Remove(_)
            | Self::Describe { .. } => None,
        }
    }

    /// The slot of the note that it reads, writes or removes.
    #[must_use]
    pub fn slot(&self) -> Option<Slot> {
        match self {
            Self::Acquire(request) => request.unless.as_ref().map(Unless::slot),
            Self::Release { note, .. } => note.as_ref().map(|note| note.slot.clone()),
            Self::WriteNote { note, .. } => Some(note.slot.clone()),
            Self::Remove(Removal::Note(slot)) => Some(slot.clone()),
            _ => None,
        }
    }

    /// The lease whose reply is its grant.
    pub(super) const fn requester(&self) -> Option<LeaseId> {
        match self {
            Self::Acquire(request) => Some(request.lease),
            _ => None,
        }
    }
}

/// A request to acquire a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// The lease that is to hold.
    pub lease: LeaseId,
    /// What the lease is to hold. The same for every request of one lease.
    pub claim: Claim,
    /// The hold count wanted.
    pub count: NonZeroU32,
    /// How long the store keeps it.
    pub ttl: Ttl,
    /// How many tokens to reserve. The same for every request of one lease. Readers share one, see
    /// [`Access`](super::rows::Access).
    pub tokens: TokenCount,
    /// A proposal for the first token of a mutex, to one of many masters, which keeps no queue. The first token is not
    /// smaller, and not behind the store's time.
    pub proposal: Option<Token>,
    /// Whether to wait in the queue if it is refused.
    pub wait: bool,
    /// The completion that makes the request needless. The same for every request of one lease, but for how long ago the
    /// run was asked for.
    pub unless: Option<Unless>,
}

impl Acquire {
    /// A request for a mutex with one hold and one token, which does not wait.
    #[must_use]
    pub const fn mutex(lease: LeaseId, ttl: Ttl) -> Self {
        Self {
            lease,
            claim: Claim::Mutex,
            count: NonZeroU32::MIN,
            ttl,
            tokens: TokenCount::MIN,
            proposal: None,
            wait: false,
            unless: None,
        }
    }
}

/// A note to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNote {
    /// Which note of the name.
    pub slot: Slot,
    /// The fencing token of the hold that writes it.
    pub token: Token,
    /// The number of the note among those of its lease in this slot: a smaller one does not replace it.
    pub number: u64,
    /// The text.
    pub text: Arc<str>,
    /// How long it is kept.
    pub keep: Duration,
}

impl NewNote {
    /// Whether a note has its token, its number and its text.
    pub(super) fn is_content_of(&self, note: &Note) -> bool {
        (self.token, self.number, &self.text) == (note.token, note.number, &note.text)
    }
}

/// Whose lease is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whom {
    /// Those of all holders.
    All,
    /// This one.
    One(LeaseId),
}

/// What is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The latch.
    Latch,
    /// A note.
    Note(Slot),
}

/// The outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The lease holds.
    Granted {
        /// The first of the reserved tokens. The same for a repeated request of the same grant.
        first: Token,
        /// The number of the lease among the holders of a semaphore, below its number of permits. `None`: its [`Claim`] asks
        /// for none.
        number: Option<u32>,
        /// The smallest of the first tokens of all holders: a resource may refuse smaller ones. `None`: the claim asks for no
        /// number.
        floor: Option<Token>,
        /// The run that was asked for. `None`: the request has no [`Unless`], or the run was completed under this grant.
        run: Option<Run>,
    },
    /// The permits are taken, or others wait for them.
    Refused {
        /// The time within which no lease ends unless it is released or revoked. `None`: no lease holds.
        time_left: Option<Duration>,
        /// How many wait before this lease. `None`: it does not wait in the queue.
        queue_position: Option<u32>,
    },
    /// The lock over many masters is refused, but some of them have granted it or may still do so: the lease must be
    /// released. No single store replies so.
    GrantedInPart {
        /// As for [`Outcome::Refused`].
        time_left: Option<Duration>,
    },
    /// The run that was asked for is complete. The lease neither holds nor waits. The text of the note is not checked:
    /// one that cannot be read counts as a completion, so that no run is repeated by mistake.
    Complete(Annotation),
    /// The ttl starts anew, and the hold count is set.
    Kept,
    /// The lease has ended; its permits are free, or will be after the minimum hold.
    Released,
    /// The lease does not hold.
    Lost(Loss),
    /// The tokens, the limit, the note or the description are stored.
    Stored,
    /// Nothing is stored: a larger token was given out before, a note with a larger number was written, the limit has
    /// another version, or the lease to convert has other tokens.
    Outdated,
    /// Whether there was something to remove.
    Removed(bool),
    /// The arrival counts.
    Arrived(LatchStatus),
    /// These leases were revoked, those in their minimum hold included.
    Revoked(Vec<LeaseId>),
    /// The waiters are served.
    Served,
    /// There is no larger token: the counter was changed by something else.
    Exhausted,
    /// The name is used otherwise. Only what any operation does was done: what has ended is dropped, and waiters are
    /// served.
    Mismatch(Mismatch),
}

impl Outcome {
    /// A grant without a number and for no run.
    #[must_use]
    pub const fn granted(first: Token) -> Self {
        Self::Granted {
            first,
            number: None,
            floor: None,
            run: None,
        }
    }
}

/// The state of the lock of a lease that does not hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// No lease holds it.
    Free,
    /// Another lease holds it, or it keeps its permits taken in its minimum hold.
    TakenOver,
}

/// Why an operation does not match its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mismatch {
    /// The name is used as this kind.
    Kind(Kind),
    /// The latch has another count.
    Count {
        /// The count of the record.
        stored: u32,
        /// The count of the request.
        requested: u32,
    },
    /// The semaphore has another number of permits.
    Limit {
        /// The limit of the record.
        stored: u64,
        /// The limit of the request.
        requested: u64,
    },
    /// The request is for more permits than there are.
    Weight,
    /// The conversion may not wait: see [`Op::Convert`].
    Conversion,
}

impl Mismatch {
    /// The text for an operation on a lock whose name is used as a latch.
    pub const USED_AS_LATCH: &str = "the name is used as a latch, and this is an operation on a lock; choose another name for one of them";
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(Kind::Latch) => f.write_str(Self::USED_AS_LATCH),
            Self::Kind(Kind::Leases(kind)) => {
                let kind = match kind {
                    LeaseKind::Mutex => "lock",
                    LeaseKind::Semaphore => "semaphore",
                    LeaseKind::RwLock => "read-write lock",
                };
                write!(
                    f,
                    "the name is used as a {kind}, and this operation is of another kind; acquire it as a {kind}, or choose another \
                     name for one of them"
                )
            }
            Self::Count { stored, requested } => write!(
                f,
                "the latch has the count {stored}, not {requested}; use one count for all members, or reset the latch"
            ),
            Self::Limit { stored, requested } => write!(
                f,
                "the semaphore has {stored} permits, not {requested}; use one number for all its clients"
            ),
            Self::Weight => f.write_str("the request is for more permits than the semaphore has"),
            Self::Conversion => f.write_str(
                "this lease cannot wait for more: others may wait for it in turn; only an upgradable reader, or a lease with more \
                 than half of the permits, may wait, and only one at a time",
            ),
        }
    }
}

/// The run that a grant is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// When the run was asked for, by the store's clock.
    pub requested_at: StoreTime,
    /// The completion before it, which decides the slots of a periodic job. `None`: there is none, or the run is for a key.
    pub last: Option<Annotation>,
}

/// A grant to a waiter, as it is notified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The lease that holds now, with one hold unless it held before.
    pub lease: LeaseId,
    /// How long the store keeps it.
    pub ttl: Ttl,
    /// The first of the tokens reserved for it.
    pub first: Token,
    /// Its number, as for [`Outcome::Granted`].
    pub number: Option<u32>,
    /// The floor, as for [`Outcome::Granted`].
    pub floor: Option<Token>,
    /// The store's time.
    pub now: StoreTime,
    /// The run that it is for.
    pub run: Option<Run>,
}

impl Grant {
    /// Whether it came after the one by which its lease has these first tokens. A notice is late if the reply to a later request
    /// overtakes it: it is that grant then, or an earlier one, which has ended.
    #[must_use]
    pub fn is_after(&self, first: Token) -> bool {
        self.first > first
    }
}

/// A notice of a store to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A waiter was granted the lock, or what it is to be converted to.
    Granted(Grant),
    /// A waiter is the first living one behind a grant or a minimum hold. No lease ends within `ttl` unless it is
    /// released: if its holder is dead, only this waiter notices.
    Next {
        /// The lease that waits.
        lease: LeaseId,
        /// The time to wait.
        ttl: Ttl,
    },
    /// An operator revoked a lease.
    Revoked {
        /// The lease that held.
        lease: LeaseId,
    },
    /// The run that a waiter asked for is complete. It waits no longer.
    Complete {
        /// The lease that waited.
        lease: LeaseId,
        /// The completion.
        note: Annotation,
    },
}

impl Notice {
    /// The lease that it is for.
    #[must_use]
    pub const fn lease(&self) -> LeaseId {
        match self {
            Self::Granted(grant) => grant.lease,
            Self::Next { lease, .. } | Self::Revoked { lease } | Self::Complete { lease, .. } => {
                *lease
            }
        }
    }
}

/// What one operation has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its outcome.
    pub outcome: Outcome,
    /// The notices to send, in their order.
    pub notices: Vec<Notice>,
    /// What to store.
    pub changes: Changes,
    /// Whether a reader of the record could see a difference, other than what ends by time.
    pub is_visible: bool,
    /// Whether waiters are left that might be granted. The store then applies [`Op::Serve`].
    pub unfinished: bool,
}
