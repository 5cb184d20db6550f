//! The parts of a record: its head, the rows beside it, and what the rule changes in them.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::annotation::{Annotation, CompletionKey};
use crate::id::LeaseId;
use crate::job::{self, Completion, Due, JobSchedule};
use crate::latch::{ArrivalId, LatchCount, LatchStatus};
use crate::time::{StoreTime, Ttl};
use crate::token::{Token, TokenCount};

/// The part of a record that nearly every operation reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Head {
    /// The last token given out for this name.
    pub counter: Option<Token>,
    /// What the name is used as.
    pub body: Body,
    /// The waiters, counted.
    pub queue: QueueHead,
    /// The lease that was revoked last, for observers, and until when they read it.
    pub revoked: Option<(LeaseId, StoreTime)>,
}

/// What a name is used as. Its kind stays as long as it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Body {
    /// Nothing: any kind may take it.
    #[default]
    Free,
    /// A lock with holders or waiters.
    Leases(Leases),
    /// A latch.
    Latch(Latch),
}

/// The kind of a used name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A lock.
    Leases(LeaseKind),
    /// A latch.
    Latch,
}

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseKind {
    /// One holder has it all.
    Mutex,
    /// Holders share its permits.
    Semaphore,
    /// Readers share it, or a writer has it all.
    RwLock,
}

/// The holders of a lock, summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leases {
    /// The kind of the lock.
    pub kind: LeaseKind,
    /// The number of permits: 1 for a mutex, [`Access::LIMIT`] for a read-write lock.
    pub limit: u64,
    /// The setting of the limit. `None`: the requests have it, all the same one.
    pub setting: Option<Setting>,
    /// The sum of the weights of all holders. Valid before `earliest`.
    pub used: u64,
    /// No holder ends before. It may be too early, since a renewal of a permit leaves it. `None`: no lease holds.
    pub earliest: Option<End>,
    /// The token of the readers of a read-write lock. `None`: there are none.
    pub phase: Option<Token>,
    /// The holder of a mutex. The holders of other kinds have rows.
    pub sole: Option<Holder>,
}

/// The setting of the number of permits of a semaphore, which counts whatever number its requests have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// The number of the setting among those of the name, from 1.
    pub version: u64,
    /// How long it is kept after the end of the last lease.
    pub keep: Duration,
    /// When it ends, unless the semaphore is used then.
    pub until: StoreTime,
}

impl Leases {
    /// A lock without holders.
    #[must_use]
    pub const fn new(kind: LeaseKind, limit: u64) -> Self {
        Self {
            kind,
            limit,
            setting: None,
            used: 0,
            earliest: None,
            phase: None,
            sole: None,
        }
    }

    /// Whether as many permits are free.
    pub(super) const fn has_room(&self, weight: u64) -> bool {
        weight <= self.limit.saturating_sub(self.used)
    }

    /// Counts the weight of a new holder.
    pub(super) fn count(&mut self, holder: &Holder) {
        self.used = self.used.saturating_add(holder.weight);
        self.extend(holder);
    }

    /// Notes the end of a holder that is counted.
    pub(super) fn extend(&mut self, holder: &Holder) {
        self.earliest = match (self.kind, self.earliest) {
            (LeaseKind::Semaphore | LeaseKind::RwLock, Some(earliest)) => {
                Some(earliest.min(holder.end))
            }
            _ => Some(holder.end),
        };
    }

    /// Takes away the weight of a holder.
    pub(super) const fn discount(&mut self, holder: &Holder) {
        self.used = self.used.saturating_sub(holder.weight);
        if self.used == 0 {
            self.earliest = None;
            self.phase = None;
        }
    }

    /// Whether the limit is set, so that the name keeps its kind without holders and waiters.
    #[must_use]
    pub fn is_set(&self, now: StoreTime) -> bool {
        self.setting.is_some_and(|setting| now < setting.until)
    }
}

/// A lease that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The lease.
    pub lease: LeaseId,
    /// Whether it has been released, and keeps its permits taken for its minimum hold. No request changes it then.
    pub is_reserved: bool,
    /// How many holds its client has on it.
    pub count: NonZeroU32,
    /// How many permits it has: 1 for a mutex.
    pub weight: u64,
    /// Its number among the holders of a semaphore, if its claim asks for one.
    pub number: Option<u32>,
    /// The first of its tokens.
    pub first: Token,
    /// When its run was asked for, if it was acquired with an [`Unless`].
    pub requested_at: Option<StoreTime>,
    /// When it ends unless it is renewed.
    pub end: End,
}

/// The end of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// A time of the store's clock.
    At(StoreTime),
}

/// The waiters, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueueHead {
    /// How many wait.
    pub len: u32,
    /// The place of the next one. Greater than the places of all that wait.
    pub next_place: u64,
    /// When the queue is dropped unless there is another request.
    pub until: StoreTime,
}

/// A latch, without the ids that have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Latch {
    /// How many arrivals open it.
    pub count: LatchCount,
    /// How many have arrived, at most the count.
    pub arrived: u32,
    /// When it ends.
    pub until: StoreTime,
}

impl Latch {
    /// How many have arrived, of how many.
    #[must_use]
    pub const fn status(&self) -> LatchStatus {
        LatchStatus {
            arrived: self.arrived,
            count: self.count.get(),
        }
    }
}

/// A lease that waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The lease.
    pub lease: LeaseId,
    /// Its place: a waiter with a smaller one is before it. 0: a conversion.
    pub place: u64,
    /// What the lease is to hold.
    pub claim: Claim,
    /// The ttl of its request. Its grant is for [`acceptance`](super::queue::acceptance) of it.
    pub ttl: Ttl,
    /// How many tokens to reserve for it.
    pub tokens: TokenCount,
    /// The completion that makes its request needless.
    pub condition: Option<Condition>,
}

/// What a lease is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// The whole lock.
    Mutex,
    /// Permits of a semaphore.
    Permits {
        /// How many.
        weight: NonZeroU32,
        /// How many permits the semaphore has, the same for all of its leases. If the number was set, that one counts.
        limit: NonZeroU32,
        /// Whether the lease gets the smallest number that no other holder has, and the floor of the tokens. A grant then reads
        /// all holders.
        numbered: bool,
    },
    /// A read-write lock.
    Access(Access),
}

/// What a lease does with what a read-write lock protects.
///
/// Each access is a weight of the same limit. So two writers, a writer and a reader, or two upgradable readers do not fit
/// together.
///
/// A writer gets tokens of its own. Readers share one token as long as there are some: it is larger than the tokens of all
/// writers before, and smaller than those of all writers after. An upgradable reader is a reader until it is upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Readers share the lock.
    Read,
    /// A reader that may become the writer, and waits only until the other readers leave. There is one at a time.
    Upgradable,
    /// A writer has the lock to itself.
    Write,
}

impl Access {
    /// The number of permits of a read-write lock: all of them are the writer's. Twice the weight of an upgradable reader is
    /// more, and a reader has one.
    pub const LIMIT: u64 = (1 << 31) + 1;

    /// How many permits it takes.
    #[must_use]
    pub const fn weight(self) -> u64 {
        match self {
            Self::Read => 1,
            Self::Upgradable => (1 << 30) + 1,
            Self::Write => Self::LIMIT,
        }
    }

    /// The access of a holder with so many permits of a read-write lock.
    #[must_use]
    pub const fn of_weight(weight: u64) -> Option<Self> {
        match weight {
            1 => Some(Self::Read),
            0x4000_0001 => Some(Self::Upgradable),
            Self::LIMIT => Some(Self::Write),
            _ => None,
        }
    }
}

impl Claim {
    /// The kind of lock that it is for.
    #[must_use]
    pub const fn kind(self) -> LeaseKind {
        match self {
            Self::Mutex => LeaseKind::Mutex,
            Self::Permits { .. } => LeaseKind::Semaphore,
            Self::Access(_) => LeaseKind::RwLock,
        }
    }

    /// How many permits it takes.
    #[must_use]
    pub fn weight(self) -> u64 {
        match self {
            Self::Mutex => 1,
            Self::Permits { weight, .. } => u64::from(weight.get()),
            Self::Access(access) => access.weight(),
        }
    }

    pub(super) fn limit(self) -> u64 {
        match self {
            Self::Mutex => 1,
            Self::Permits { limit, .. } => u64::from(limit.get()),
            Self::Access(_) => Access::LIMIT,
        }
    }
}

/// A completion that makes a run needless.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Unless {
    /// A run for this key is complete.
    Key {
        /// The key.
        key: CompletionKey,
        /// How long ago the run was asked for.
        asked: Duration,
    },
    /// A run of this slot, or of a later one, is complete.
    Period {
        /// The slots.
        schedule: JobSchedule,
        /// How long ago the run was asked for, which decides its slot.
        asked: Duration,
    },
}

impl Unless {
    /// The slot of the completion.
    #[must_use]
    pub fn slot(&self) -> Slot {
        match self {
            Self::Key { key, .. } => Slot::Key(key.clone()),
            Self::Period { .. } => Slot::Period,
        }
    }

    /// How long ago the run was asked for.
    #[must_use]
    pub const fn asked(&self) -> Duration {
        match self {
            Self::Key { asked, .. } | Self::Period { asked, .. } => *asked,
        }
    }

    /// The same for a run that was asked for so long ago.
    #[must_use]
    pub fn asked_ago(&self, asked: Duration) -> Self {
        match self.clone() {
            Self::Key { key, .. } => Self::Key { key, asked },
            Self::Period { schedule, .. } => Self::Period { schedule, asked },
        }
    }
}

/// An [`Unless`] with the time from which it counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// The completion.
    pub unless: Unless,
    /// When the run was asked for, as the first request said.
    pub requested_at: StoreTime,
}

impl Condition {
    /// Whether the run is complete, if its slot has a note with this text. One that cannot be read counts as a
    /// completion: its reader reports the error, and no run is repeated by mistake.
    #[must_use]
    pub fn is_met(&self, text: &str, now: StoreTime) -> bool {
        let Unless::Period { schedule, .. } = self.unless else {
            return true;
        };
        Completion::parse(text).map_or(true, |run| {
            job::due(Some(&run), schedule, self.requested_at, now) == Due::Completed
        })
    }
}

/// A text that a holder has stored beside the lock. It stays when the lease ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// The lease that held when it was written.
    pub lease: LeaseId,
    /// The fencing token of the hold that wrote it.
    pub token: Token,
    /// The number of the note among those of its lease.
    pub number: u64,
    /// The text.
    pub text: Arc<str>,
    /// When it ends.
    pub until: StoreTime,
}

impl From<&Note> for Annotation {
    fn from(note: &Note) -> Self {
        Self {
            lease: note.lease,
            token: note.token,
            text: Arc::clone(&note.text),
        }
    }
}

/// What a client is, for people.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Description {
    /// The text.
    pub text: Arc<str>,
    /// When it ends.
    pub until: StoreTime,
}

/// Which note of a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// The value that a leader proclaims.
    Value,
    /// The last completed run of a periodic job.
    Period,
    /// The completed run for one key.
    Key(CompletionKey),
}

/// The id of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// A holder that is not in the head.
    Holder(LeaseId),
    /// A waiter.
    Waiter(LeaseId),
    /// An arrival at a latch.
    Arrival(ArrivalId),
    /// A note.
    Note(Slot),
    /// The description of a client.
    Description,
}

/// A row beside the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A holder that is not in the head.
    Holder(Holder),
    /// A waiter.
    Waiter(Waiter),
    /// An arrival at a latch, which has nothing but its id.
    Arrival,
    /// A note.
    Note(Note),
    /// The description of a client.
    Description(Description),
}

/// A class of rows that end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The rows of all waiters.
    Waiters,
    /// The rows of all arrivals.
    Arrivals,
}

/// The changes of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The head to store. `None`: it has not changed.
    pub head: Option<Head>,
    /// What to do with the rows, in this order.
    pub rows: Vec<Change>,
}

/// A change of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Store a row, in the place of the one before.
    Put(Part, Row),
    /// Remove a row.
    Remove(Part),
    /// Remove all rows of a class.
    Clear(Class),
}
