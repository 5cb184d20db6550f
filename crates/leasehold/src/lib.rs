//! Distributed locks that know when they are lost.
//!
//! Services and jobs on several machines must not do the same work at once. A lock in a shared store
//! keeps them apart, but a store can only *lend* a lock: a process that pauses, a network that breaks
//! or a server that forgets ends the loan, and most libraries do not report it. This one does.
//!
//! * A lease is renewed every third of its ttl while its [`Guard`] lives.
//! * [`Guard::state`] is [`State::Held`], [`State::Jeopardy`] after a failed renewal, and
//!   [`State::Lost`] a third of the ttl *before* another can have the lock.
//! * [`Guard::token`] grows with every grant: a resource that checks it refuses a stale holder even
//!   where the store forgot the lock. [`fence`] has ready checks.
//! * [`Mutex::run`] and [`Guard::run`] drop the work when the lease is lost.
//! * Waiting is first come first served, without polling: the release grants to the next in the same
//!   step, and tasks of one process hand a lease on without a round trip.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use leasehold::Client;
//!
//! let client = Client::connect("memory:").await?; // or sqlite:PATH, redis://host
//! let mutex = client.mutex("orders/42")?;
//! mutex
//!     .run(async |lease| {
//!         // ... write with lease.token() ...
//!     })
//!     .await?;
//! # Ok::<(), leasehold::Error>(()) }).unwrap();
//! ```
//!
//! Programs without an async runtime use [`blocking`]: the same names. The futures of this crate need a Tokio
//! runtime with its timers enabled, and panic outside of one. The directory `examples` of the repository has programs
//! for the usual tasks.
//!
//! # Which store
//!
//! | the locks are used by | URL |
//! |---|---|
//! | the processes of one machine | `sqlite:PATH` |
//! | many machines | `redis://HOST`, or the [parts of an address](RedisAddress) |
//! | many machines, with a server that is replaced when it fails | `redis+sentinel://HOST,.../MASTER` |
//! | many machines, with more locks than one server serves | `redis+cluster://HOST,...` |
//! | many machines, if the locks must survive the loss of any server | `redlock://HOST,HOST,HOST` |
//! | one client, in tests | `memory:` |
//!
//! [`store::open`] has the URLs in full.
//!
//! # Which method
//!
//! | if another holds the lock | a [`Guard`] to keep | work that is dropped at a loss |
//! |---|---|---|
//! | wait | [`Mutex::lock`] | [`Mutex::run`] |
//! | do something else | [`Mutex::try_lock`] | [`Mutex::try_run`] |
//! | wait for a limited time | [`Mutex::lock_timeout`] | [`Mutex::run_timeout`] |
//!
//! With a guard, [`Guard::run`] drops work at a loss, [`Guard::ensure`] proves that the lease lasts for one more step,
//! and [`Guard::lost`] returns when it is lost. A task that must enter its lock again needs an [`Owner`].
//! [`Mutex::holder`] and [`Client::locks`] describe the holders of locks and their waiters.
//!
//! A leader that others can find is elected by [`Client::election`]: [`Election::campaign`] returns a [`Leadership`], a
//! guard with a value that [`Election::observe`] shows to everybody. [`Mutex::events`] has the events of any lock.
//! Work that must not be done again, once in a day or once for a version, is a [`Job`]. Members that wait until all have
//! arrived have a [`Latch`].
//!
//! # Observability
//!
//! Events go to `tracing`: a lease in jeopardy is a warning, a lost one an error. A task that waits for longer than a
//! ttl while its own client holds the lock is a warning, too: it may wait for itself. Metrics go to the `metrics`
//! facade, and cost next to nothing without a recorder. Install the recorder before the first client connects;
//! `examples/metrics.rs` does it for Prometheus, and `docs/operations.md` of the repository lists the metrics.
//!
//! # Crate features
//!
//! Features only add. The last column is the number of crates that the library is built from on Linux with this
//! feature alone; without features, it is the same as for `fence`.
//!
//! | feature | content | crates |
//! |---|---|---|
//! | `redis` (default) | the stores on Redis servers | 71 |
//! | `tls` (default) | the same over TLS: `rediss://` URLs; includes `redis` | 85 |
//! | `sqlite` | the embedded store in a file: `sqlite:` URLs | 34 |
//! | `blocking` | [`blocking`]: the API for programs without an async runtime | 21 |
//! | `doctor` | [`doctor`]: settings under which a store can lose locks | 21 |
//! | `fence` | [`fence`]: checks of tokens for protected resources | 21 |
//! | `watchdog` | [`watchdog`]: leases that a service keeps alive while this process cannot | 49 |
//!
//! # Beside other crates that link SQLite
//!
//! A program links SQLite once: Cargo refuses two versions of `libsqlite3-sys`. The default features have none. The
//! feature `sqlite` accepts `rusqlite` 0.32 to 0.41, so that Cargo can choose the version of the other crate:
//!
//! | dependency | default features | with `sqlite` |
//! |---|---|---|
//! | `sqlx = { version = "0.8", features = ["sqlite"] }` | yes | yes |
//! | `sqlx = { version = "0.9", features = ["sqlite"] }` | yes | yes |
//! | `sea-orm = { version = "1", features = ["sqlx-sqlite"] }` | yes | yes |
//! | `sea-orm = { version = "2", features = ["sqlx-sqlite"] }` | yes | yes |
//! | `diesel = { version = "2", features = ["sqlite"] }` | yes | yes |
//! | `rusqlite = "0.41"` | yes | yes |
//! | `rusqlite = "0.31"` | yes | no |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
pub mod clock;
mod completion_info;
mod config;
#[cfg(feature = "doctor")]
pub mod doctor;
mod driver;
mod durability;
mod error;
#[cfg(feature = "fence")]
pub mod fence;
mod fork;
#[cfg(all(feature = "redis", any(test, feature = "__fuzz")))]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod info;
mod owner;
mod random;
mod secret;
pub mod store;
mod sync;
#[cfg(feature = "watchdog")]
pub mod watchdog;

pub use leasehold_core::{
    Cause, ClientId, Instant, LatchStatus, Leader, LeaseId, LockEvent, State, StateKind, Token,
};

pub use crate::client::{Client, ClientBuilder, Shutdown};
pub use crate::completion_info::CompletionInfo;
pub use crate::durability::{Durability, ReplicaCount, ReplicaCountError};
pub use crate::error::{Error, ErrorKind, Result};
pub use crate::guard::{Guard, LossSignal, States};
pub use crate::info::LockInfo;
pub use crate::owner::Owner;
pub use crate::secret::Secret;
#[cfg(feature = "redis")]
pub use crate::store::RedisAddress;
pub use crate::store::{ClientInfo, WaiterInfo};
pub use crate::sync::election::{Election, Leaders, Leadership};
pub use crate::sync::job::{Job, JobBuilder, JobGuard, JobLock, JobOutcome};
pub use crate::sync::latch::Latch;
pub use crate::sync::lock_events::LockEvents;
pub use crate::sync::mutex::Mutex;

/// The wire protocol of the watchdog, for its node: a crate of this project that is released together with this one.
/// Not part of the public API.
#[cfg(feature = "watchdog")]
#[doc(hidden)]
pub mod __private {
    pub mod frame {
        //! Frames.

        pub use crate::watchdog::frame::*;
    }

    pub mod wire {
        //! Messages.

        pub use crate::watchdog::wire::*;
    }
}

/// The examples in the READMEs of the repository and of this package are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../README.md")]
struct Readme;

/// So are those in the page about fencing.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/fencing.md")]
struct Fencing;
