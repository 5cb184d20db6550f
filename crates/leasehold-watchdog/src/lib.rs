//! One node of Leasehold's independent watchdog.
//!
//! A process that holds a lock renews its lease itself, as long as it runs. A process that is stopped, swapped out
//! or in a garbage collection does not: it would lose the lock although it is alive. When a process is killed,
//! other clients wait for the rest of its lease. A [`Node`] beside it distinguishes the two cases:
//!
//! * The node renews the leases of a client that is silent but alive, for [`Settings::max_pause`] at most.
//! * The node releases the leases of a client as soon as all its processes have ended. It learns that from
//!   their pidfds; the end of a connection proves nothing.
//! * The node only renews the leases of a client on another machine, as long as its connection is open.
//!
//! Each action names one lease, whose id is never used twice. So a late or repeated action is harmless,
//! nodes need not agree, and no lock depends on a running node.
//!
//! ```no_run
//! # async fn doc() -> Result<(), leasehold_watchdog::Error> {
//! use leasehold_watchdog::{Listen, Node, Settings, StoreSettings};
//!
//! let listen = Listen::parse("unix:/run/leasehold/watchdog.sock")?;
//! let store = StoreSettings::new("redis://db");
//! let node = Node::start(Settings::new(vec![listen], vec![store])).await?;
//! // ... until it is to stop ...
//! node.stop().await;
//! # Ok(()) }
//! ```

mod access;
mod client;
mod clients;
mod connection;
mod error;
#[cfg(any(test, feature = "__fuzz"))]
#[doc(hidden)]
pub mod fuzzing;
mod handover;
mod health;
mod http;
mod http_server;
mod journal;
mod limits;
mod listen;
mod metrics;
mod node;
mod permits;
mod process;
mod schedule;
mod scheduler;
mod service_manager;
mod session;
mod settings;
mod shared;
mod status;
mod stores;
mod tasks;

pub use self::access::{Namespaces, Permission};
pub use self::error::Error;
pub use self::health::HealthEndpoint;
pub use self::limits::Limits;
pub use self::node::Node;
pub use self::settings::{Listen, Settings, StoreSettings, TlsFiles, Token};

/// The example in the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
