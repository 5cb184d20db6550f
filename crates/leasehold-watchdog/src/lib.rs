//! One node of Leasehold's independent watchdog.
//!
//! A process that holds a lock renews its lease itself, as long as it runs. One that is stopped, swapped out
//! or collects its garbage does not, and would lose the lock though it is alive; and when it is killed,
//! others wait for the rest of the lease. A [`Node`] stands beside it and tells the two apart:
//!
//! * A client that is silent and lives has its leases renewed, for [`Settings::max_pause`] at most.
//! * A client whose processes are all gone has its leases released at once. The node sees them end by
//!   their pidfds; that a connection ends proves nothing.
//! * For a client on another machine it only renews, as long as its connection stands.
//!
//! Whatever it does names one lease, whose id is never used twice. So nothing that it does too late or twice
//! hurts anybody, nodes need not agree, and no lock depends on a node being up.
//!
//! ```no_run
//! # async fn doc() -> Result<(), leasehold_watchdog::Error> {
//! use leasehold_watchdog::{Listen, Node, Settings, StoreSettings};
//!
//! let node = Node::start(Settings {
//!     listen: vec![Listen::parse("unix:/run/leasehold/watchdog.sock")?],
//!     stores: vec![StoreSettings {
//!         url: "redis://db".into(),
//!         ..StoreSettings::default()
//!     }],
//!     ..Settings::default()
//! })
//! .await?;
//! // ... until somebody wants it to stop ...
//! node.stop().await;
//! # Ok(()) }
//! ```

mod access;
mod batch;
mod client;
mod connection;
mod error;
mod files;
#[cfg(any(test, feature = "__fuzz"))]
#[doc(hidden)]
pub mod fuzzing;
mod handover;
mod http;
mod journal;
mod limits;
mod listen;
mod metrics;
mod monitors;
mod node;
mod process;
mod scheduler;
mod service_manager;
mod session;
mod settings;
mod shard_limiter;
mod shared;
mod status;
mod stores;
mod tasks;

pub use self::access::{Namespaces, Permission};
pub use self::error::Error;
pub use self::limits::Limits;
pub use self::node::Node;
pub use self::settings::{Listen, Settings, StoreSettings, TlsFiles, Token};
