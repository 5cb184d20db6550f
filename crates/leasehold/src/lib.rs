//! Distributed locks that know when they are lost.
//!
//! Services and jobs on several machines must not do the same work at once. A lock in a shared store keeps them apart,
//! but a store can only *lend* a lock, as a *lease*: a process that pauses, a network that breaks or a server that forgets
//! ends it. This library renews a lease in the background, and reports its loss a third of its ttl *before* another client
//! can have the lock.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use leasehold::Client;
//!
//! let client = Client::connect("memory:").await?; // or sqlite:PATH, redis://host
//! let mutex = client.mutex("orders/42")?;
//! mutex
//!     .run(async |guard| {
//!         // ... write with guard.token(); dropped at its next .await if the lease is lost ...
//!     })
//!     .await?;
//! # Ok::<(), leasehold::Error>(()) }).unwrap();
//! ```
//!
//! # Which lock do I need
//!
//! | task | made by | held as |
//! |---|---|---|
//! | one at a time does something | [`Client::mutex`] | [`Guard`] |
//! | the same, and may lock again inside | [`Client::mutex`] with an [`Owner`] | [`Guard`] |
//! | one process serves, and the others find it | [`Client::election`] | [`Leadership`] |
//! | something is done once in each period, by one of many machines | [`Client::job`] | [`Run`] |
//! | something is done once, such as a migration of a version | [`Client::once`] | [`Run`] |
//! | many begin when all are ready | [`Client::latch`] | - |
//! | the resource itself refuses a late holder | [`Guard::token`], with [`fence`] | - |
//!
//! [`LeaseOptions`] are the settings of all of them: ttl, longest and shortest hold, replicas, owner.
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
//! [`Guard::lost`] returns when it is lost, and [`Guard::state`] is what it is worth at this instant.
//! [`Mutex::inspect`] and [`Client::locks`] describe the holders of locks and their waiters, [`Mutex::events`] what happens
//! to a lock.
//!
//! # Which store
//!
//! | the locks are used by | URL |
//! |---|---|
//! | the processes of one machine | `sqlite:PATH` |
//! | many machines | `redis://HOST` |
//! | many machines, with a server that is replaced when it fails | `redis+sentinel://HOST,.../MASTER` |
//! | many machines, with more locks than one server serves | `redis+cluster://HOST,...` |
//! | many machines, if the locks must survive the loss of any server | `redlock://HOST,HOST,HOST` |
//! | one process, in tests | `memory:`, or a [`MemoryStore`](store::MemoryStore) with its own clock |
//!
//! [`store::open`] has the URLs in full, and [`ClientBuilder`] the settings of a connection.
//!
//! # What to know
//!
//! * The futures of this crate need a Tokio runtime with its timers enabled; without one, a connection is an error that
//!   says so. Programs without an async runtime use [`blocking`].
//! * Bind a guard to `_guard`: `let _ = mutex.lock().await?` drops it at once.
//! * Work is `async |guard| { .. }`. The form `|guard| async move { .. }` does not compile: see [`Mutex::run`].
//! * Work that computes or blocks its thread delays the renewals. It belongs into `spawn_blocking`.
//! * Each acquisition excludes all others, even in the same task, unless an [`Owner`] enters its lock again.
//! * Tests run on a [`MemoryStore`](store::MemoryStore), whose [clock](clock::ManualClock) they move by hand: see the
//!   example `testing` of the repository.
//!
//! # Observability
//!
//! Events go to `tracing`: a lease in jeopardy is a warning, a lost one an error. A task that waits for longer than a
//! ttl while its own client holds the lock is a warning, because it may wait for itself. Metrics go to the `metrics`
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
//! | `serde` | `Serialize` for [`LockInfo`], [`ClientInfo`], [`WaiterInfo`], [`Completion`] and the report of a diagnosis | 26 |
//! | `watchdog` | [`watchdog`]: leases that a service keeps alive while this process cannot | 49 |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
pub mod clock;
mod completion;
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
mod lease_options;
mod owner;
mod random;
mod secret;
#[cfg(feature = "serde")]
mod serialize;
pub mod store;
mod sync;
#[cfg(feature = "watchdog")]
pub mod watchdog;

pub use leasehold_core::{
    Cause, ClientId, Instant, LatchStatus, Leader, LeaseId, LockEvent, State, StateKind, Token,
};

pub use crate::client::{Client, ClientBuilder, Shutdown};
pub use crate::completion::Completion;
#[doc(hidden)]
pub use crate::durability::ReplicaCountError;
pub use crate::durability::{Durability, ReplicaCount};
pub use crate::error::{Error, ErrorKind, Result};
pub use crate::guard::{Guard, States};
pub use crate::info::LockInfo;
pub use crate::lease_options::LeaseOptions;
pub use crate::owner::Owner;
pub use crate::secret::Secret;
pub use crate::store::internal::{ClientInfo, WaiterInfo};
pub use crate::sync::election::{Election, Leaders, Leadership};
pub use crate::sync::job::{Job, Ran, Run};
pub use crate::sync::latch::Latch;
pub use crate::sync::lock_events::LockEvents;
pub use crate::sync::mutex::{Mutex, WaitStatus};

/// What the other crates of this project need: crates that are released together with this one, and tests. Not part of the
/// public API.
#[doc(hidden)]
pub mod __private {
    pub mod store {
        //! Stores, and the types of their interface.

        pub use crate::store::internal::*;
    }

    #[cfg(feature = "watchdog")]
    pub mod frame {
        //! Frames of the watchdog.

        pub use crate::watchdog::frame::*;
    }

    #[cfg(feature = "watchdog")]
    pub mod wire {
        //! Messages of the watchdog.

        pub use crate::watchdog::wire::*;
    }

    #[cfg(feature = "watchdog")]
    pub mod observer {
        //! Queries to a node of the watchdog.

        pub use crate::watchdog::observer::*;
    }
}

/// The examples in the READMEs of the repository and of this package are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../README.md")]
struct Readme;

/// So are those in the pages of the repository.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/election.md")]
#[doc = include_str!("../../../docs/fencing.md")]
#[doc = include_str!("../../../docs/jobs.md")]
#[doc = include_str!("../../../docs/recipes.md")]
#[doc = include_str!("../../../docs/testing.md")]
#[doc = include_str!("../../../docs/watchdog.md")]
struct Pages;
