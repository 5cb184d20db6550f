//! The rules of Leasehold, and nothing else.
//!
//! This crate does no I/O, reads no clock, draws no random number and knows no runtime. Its callers pass
//! the time in and take the results out. So the same code runs in the memory store, inside a `SQLite`
//! transaction, in the simulator and in the client, and the Redis script is compared with it.
//!
//! * [`record`]: what an operation does to the record of a name, whatever the kind of its lock. The rule.
//! * [`quorum`]: the same over many masters.
//! * [`annotation`]: what a holder may store beside the record, and [`latch`]: the parts of a latch.
//! * [`election`]: what an observer of an election is told, and [`lock_event`]: what one of a lock is.
//! * [`job`]: whether a job that has run is to be run again.
//! * [`acquisition`]: how a client acquires a lease, and [`release`] how it releases it.
//! * [`conversion`]: how a client changes what a lease holds, and [`read_window`] how its readers share one.
//! * [`value_writer`]: how a leader keeps its value in the store, [`note_writer`] how a hold writes one note, and
//!   [`reading`] how a client reads the state of a name.
//! * [`lease`]: the state of a lease for its holder, with its holds: re-entry is several of them on one lease.
//! * [`policy`]: when a lease is renewed and when it is given up.
//! * [`contention`]: retry intervals, and hand-offs inside a process.
//! * [`schedule`]: leases in the order in which they are due, and [`shard_limiter`]: how many are sent at once.
//! * [`time`]: all deadline arithmetic and all rounding.
//! * [`watchdog`]: how a lease is kept alive while its holder cannot.
//! * [`id`], [`name`] and [`token`]: newtypes that can only hold valid values.

pub mod acquisition;
pub mod annotation;
mod batching;
pub mod contention;
pub mod conversion;
pub mod election;
pub mod escape;
#[cfg(test)]
mod fixture;
pub mod id;
pub mod job;
pub mod latch;
pub mod lease;
pub mod lock_event;
pub mod name;
pub mod note_writer;
pub mod policy;
pub mod quorum;
pub mod read_window;
pub mod reading;
pub mod record;
pub mod release;
pub mod schedule;
pub mod shard_limiter;
pub mod time;
pub mod token;
pub mod value_writer;
pub mod watchdog;

pub use acquisition::{Acquisition, RenewalOptions};
pub use annotation::{Annotation, CompletionKey};
pub use contention::{Chain, Handoff};
pub use conversion::Conversion;
pub use election::{Leader, LeaderFilter, Proclamation};
pub use id::{ClientId, LeaseId, OwnerId};
pub use job::{Completion, CompletionError, Due, JobSchedule, Period, Slots};
pub use latch::{ArrivalId, LatchCount, LatchStatus};
pub use lease::holds::{HoldId, Holds, Term};
pub use lease::min_hold::MinHold;
pub use lease::state::{Cause, State, StateKind};
pub use lease::{Action, Lease};
pub use lock_event::{LockEvent, LockState};
pub use name::{Name, NameError, Namespace, ScopeName};
pub use note_writer::NoteWriter;
pub use policy::{Policy, PolicyError};
pub use read_window::ReadWindow;
pub use reading::Reading;
pub use record::{
    Access, Acquire, Applied, Claim, Environment, Grant, Holder, Loss, Mismatch, NewNote, Notice,
    Op, Outcome, Removal, Rows, Slot, Waiter, Whom,
};
pub use release::{AbandonedLease, LateRelease, PendingReleases, ReleaseOrder};
pub use schedule::{DueTime, Schedule, Scheduled};
pub use shard_limiter::ShardLimiter;
pub use time::{Instant, StoreTime, Ttl};
pub use token::{Token, TokenCount};
pub use value_writer::ValueWriter;
