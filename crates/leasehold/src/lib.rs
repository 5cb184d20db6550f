//! Distributed locks that know when they are lost.
//!
//! A lock keeps services and jobs on several machines from doing the same work at the same time. A store can only *lend*
//! a lock, as a *lease*: a process that pauses, a network that breaks or a server that forgets ends it. This library
//! renews leases in the background. It reports a loss a third of the ttl *before* another client can have the lock.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use leasehold::Client;
//!
//! let client = Client::connect("memory:").await?; // or redis://host; one client per process is enough
//! let mutex = client.mutex("orders/42")?;
//! mutex
//!     .run(async |guard| {
//!         // ... write with guard.token(); dropped at its next .await if the lease is lost ...
//!     })
//!     .await?;
//! # Ok::<(), leasehold::Error>(()) }).unwrap();
//! ```
//!
//! # Which lock
//!
//! | task | made by | held as |
//! |---|---|---|
//! | one at a time does something | [`Client::mutex`] | [`Guard`] |
//! | the same, and its owner may enter it again | [`Client::mutex`] with an [`Owner`] | [`Guard`] |
//! | many read, or one writes | [`Client::rw_lock`] | [`ReadGuard`], [`WriteGuard`], [`UpgradableReadGuard`] |
//! | at most five at a time do something | [`Client::semaphore`] | [`Permit`] |
//! | several locks are held at once | [`Client::all`] | [`GuardSet`] |
//! | one process serves, and the others find it | [`Client::election`] | [`Leadership`] |
//! | a job runs once in each period, on one of many machines | [`Client::job`] | [`Run`] |
//! | something is done once for a key, such as a version | [`Client::once`] | [`Run`] |
//! | many start when all are ready | [`Client::latch`] | - |
//!
//! What is held dereferences to its [`Guard`], a [`GuardSet`] to those of its locks. [`LeaseOptions`] are the settings of
//! all leases: ttl, longest and shortest hold, replicas, owner. [`Guard::token`] and [`fence`] let the resource
//! itself refuse a late holder.
//!
//! # Which method
//!
//! | if another client holds the lock | returns a [`Guard`] | drops the work at a loss |
//! |---|---|---|
//! | wait | [`Mutex::lock`] | [`Mutex::run`] |
//! | do something else | [`Mutex::try_lock`] | [`Mutex::try_run`] |
//! | wait for a limited time | [`Mutex::lock_timeout`] | [`Mutex::run_timeout`] |
//!
//! A [`Job`] has the same six methods, and a [`Semaphore`], a [`RwLock`] and a [`LockSet`] have the three of the first column
//! under the names of `tokio::sync`; an [`Election`] has `campaign` instead of `lock`. Every guard has [`run`](Guard::run), which drops a
//! future at the loss. [`Guard::state`] is what a lease is worth at this instant, [`Guard::lost`] waits for
//! its loss, and [`Guard::ensure`] makes sure that it lasts for one more step. [`Mutex::inspect`], [`Client::locks`] and
//! [`Mutex::events`] describe holders, waiters and changes.
//!
//! # Which store
//!
//! | the locks are used by | URL |
//! |---|---|
//! | the processes of one machine | `sqlite:PATH` |
//! | many machines | `redis://HOST`, `postgres://HOST/DB` |
//! | many machines; another server replaces one that fails | `redis+sentinel://HOST,.../MASTER` |
//! | many machines, with more locks than one server serves | `redis+cluster://HOST,...` |
//! | many machines; the locks survive the loss of a server | `etcd://HOST,HOST,HOST`, `zookeeper://HOST,HOST,HOST`, `redlock://HOST,HOST,HOST` |
//! | many machines without a server of their own | `s3://BUCKET`, `gs://BUCKET`, `az://CONTAINER` |
//! | one process, in tests | `memory:`, or a [`MemoryStore`](store::MemoryStore) with a [clock](clock::ManualClock) that the test moves |
//!
//! [`store::open()`] has the complete URLs, [`ClientBuilder`] the settings of a client.
//!
//! # What to know
//!
//! * **Bind a guard to `_guard`.** `let _ = mutex.lock().await?` drops it, which releases the lock.
//! * **Write work as `async |guard| { .. }`.** The form `|guard| async move { .. }` does not compile: see [`Mutex::run`].
//! * **Do not block the runtime.** Work that computes for long or blocks its thread delays the renewals: it belongs into
//!   `spawn_blocking`.
//! * **Use a Tokio runtime with timers** (`enable_all`). Connecting fails without one. Programs without an async runtime
//!   use [`blocking`].
//! * **An acquisition excludes all others**, even those of the same task, unless an [`Owner`] enters its lock again.
//! * **The library starts no job.** The program calls [`Job::run`] at the times of its timer.
//! * **Several services on one store** have a [namespace](ClientBuilder::namespace) each: names of one namespace are shared.
//! * **Call [`Client::shutdown`] at the end** of a service: others get its locks without waiting for the ttl.
//!
//! # Observability
//!
//! Events go to `tracing`: a lease in jeopardy is a warning, a lost one an error. Metrics go to the `metrics` facade;
//! install the recorder before the first client connects. `docs/operations.md` of the repository lists both.
//!
//! # Crate features
//!
//! Features only add. The last column is the number of crates that the library is built from on Linux with this
//! feature alone.
//!
//! | feature | content | crates |
//! |---|---|---|
//! | `redis` (default) | the stores on Redis servers | 71 |
//! | `tls` (default) | the same over TLS: `rediss://` URLs; includes `redis` | 85 |
//! | `sqlite` | the embedded store in a file: `sqlite:` URLs | 34 |
//! | `postgres` | the store in a PostgreSQL database, with or without TLS: `postgres://` URLs | 92 |
//! | `etcd` | the store in etcd, with or without TLS: `etcd://` URLs | 65 |
//! | `zookeeper` | the store in ZooKeeper, with or without TLS: `zookeeper://` URLs | 39 |
//! | `object-store` | the store in a bucket: `s3://`, `gs://` and `az://` URLs | 126 |
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

#[doc(hidden)]
pub use leasehold_core::StateKind;
pub use leasehold_core::record::LeaseKind;
pub use leasehold_core::{
    Access, Cause, ClientId, Instant, LatchStatus, Leader, LeaseId, LockEvent, State, Token,
};

pub use crate::client::{Client, ClientBuilder};
pub use crate::completion::Completion;
#[doc(hidden)]
pub use crate::durability::ReplicaCountError;
pub use crate::durability::{Durability, ReplicaCount};
pub use crate::error::{Error, ErrorKind, Result};
pub use crate::guard::{Guard, States};
pub use crate::info::LockInfo;
pub use crate::lease_options::LeaseOptions;
pub use crate::owner::Owner;
#[doc(hidden)]
pub use crate::secret::Secret;
pub use crate::store::internal::{ClientInfo, HolderInfo, WaiterInfo};
pub use crate::sync::election::{Election, Leaders, Leadership};
pub use crate::sync::job::{Job, Ran, Run};
pub use crate::sync::latch::Latch;
pub use crate::sync::lock_events::LockEvents;
pub use crate::sync::lock_set::{GuardSet, LockSet};
#[doc(hidden)]
pub use crate::sync::mutex::WaitStatus;
pub use crate::sync::mutex::{LockRequest, Mutex};
pub use crate::sync::rw_lock::{ReadGuard, RwLock, UpgradableReadGuard, WriteGuard};
pub use crate::sync::semaphore::{Permit, Semaphore};

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
#[doc = include_str!("../../../docs/semaphores-and-rw-locks.md")]
#[doc = include_str!("../../../docs/testing.md")]
#[doc = include_str!("../../../docs/watchdog.md")]
struct Pages;
