//! The rules of Leasehold, and nothing else.
//!
//! This crate does no I/O, reads no clock, draws no random number and knows no runtime. Whoever
//! calls it passes the time in and carries the answers out. So the same code runs in the memory
//! store, inside a `SQLite` transaction, in the simulator and in the client, and the Redis script
//! is compared with it.
//!
//! * [`mutex`] is the rule of a store: what an operation does to the record of one name.
//! * [`quorum`] is that rule over many masters.
//! * [`queue`] is who waits for a name.
//! * [`lease`] is the rule of a holder: what its lease is worth at this instant, in a [`state`].
//! * [`policy`] is when it is renewed and when it is given up, [`batching`] how many at once.
//! * [`contention`] is waiting and handing off inside a process.
//! * [`holds`] is re-entry: several holds over one lease.
//! * [`schedule`] orders leases by the instant at which they need attention.
//! * [`time`] holds all deadline arithmetic and all rounding.
//! * [`watchdog`] is who keeps a lease alive while its holder cannot.
//! * [`id`], [`name`] and [`token`] are newtypes that can only hold valid values.

pub mod acquisition;
pub mod batching;
pub mod contention;
pub mod holds;
pub mod id;
pub mod lease;
pub mod mutex;
pub mod name;
pub mod policy;
pub mod queue;
pub mod quorum;
pub mod release;
pub mod schedule;
pub mod state;
pub mod time;
pub mod token;
pub mod watchdog;

pub use acquisition::{Acquisition, LeaseOptions};
pub use batching::Batching;
pub use contention::{Chain, Handoff};
pub use holds::{HoldId, Holds, Term};
pub use id::{ClientId, LeaseId, OwnerId};
pub use lease::{Action, Lease};
pub use mutex::{Grant, Loss, Notice, Op, Outcome, Record, RecordHolder};
pub use name::{Name, NameError, ScopeName};
pub use policy::{Policy, PolicyError};
pub use queue::{Queue, Waiter};
pub use release::{AbandonedLease, LateRelease, PendingReleases, ReleaseOrder};
pub use schedule::Schedule;
pub use state::{Cause, State, StateKind};
pub use time::{Instant, StoreTime, Ttl};
pub use token::{Token, TokenCount};
