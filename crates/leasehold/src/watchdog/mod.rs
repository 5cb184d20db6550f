//! The client side of the watchdog: a service outside of this process that renews its leases while the process
//! cannot, and releases them as soon as the process is dead.
//!
//! A process renews its leases itself while it runs. A process that is stopped, swapped out or in a garbage
//! collection cannot, and loses its leases although it is alive. When a process dies, other clients wait for
//! the rest of its ttl. A node of the watchdog on the same machine tells the two cases apart. A node on another
//! machine only renews leases and never releases any.
//!
//! ```no_run
//! # async fn connect() -> leasehold::Result<()> {
//! use leasehold::Client;
//! use leasehold::watchdog::Watchdog;
//!
//! let watchdog = Watchdog::local().and("tcp://watch.example:7420")?;
//! let client = Client::builder()
//!     .watchdog(watchdog)
//!     .connect("redis://db.example")
//!     .await?;
//! # let child = std::process::Command::new("report").spawn().unwrap();
//! # #[cfg(target_os = "linux")]
//! client.watch_process(child.id())?; // a child that works under a lock and may outlive this process
//! # Ok(()) }
//! ```
//!
//! No lock depends on the watchdog: while no node is reachable, leases are renewed and lost as without one. With a
//! watchdog, a lease whose deadline passed while this process was paused is in [`State::Jeopardy`] with
//! [`Cause::Paused`] until the store has replied whether the lease still exists. [`Guard::ensure`] and [`Mutex::run`]
//! wait for that reply. `docs/watchdog.md` of the repository describes the service.
//!
//! [`State::Jeopardy`]: crate::State::Jeopardy
//! [`Cause::Paused`]: crate::Cause::Paused
//! [`Guard::ensure`]: crate::Guard::ensure
//! [`Mutex::run`]: crate::Mutex::run

mod address;
pub(crate) mod frame;
pub(crate) mod observer;
mod status;
pub(crate) mod wire;

use std::path::{Path, PathBuf};

pub(crate) use self::address::Address;
#[doc(hidden)]
pub use self::status::{NodeState, NodeStatus, WatchdogStatus};
use crate::{Result, Secret};

/// The nodes of the watchdog that monitor a client, and the credentials for them.
///
/// ```
/// use leasehold::watchdog::Watchdog;
///
/// let nodes = Watchdog::local()
///     .and("tcp://watch.example:7420")?
///     .token("from the configuration")
///     .store_name("locks")
///     .required();
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Watchdog {
    pub(crate) nodes: Vec<Address>,
    pub(crate) required: bool,
    pub(crate) token: Option<Secret>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) store: Option<String>,
}

impl Watchdog {
    /// The node on this machine. Its socket is `leasehold/watchdog.sock` in `$XDG_RUNTIME_DIR`, or in `/run` for root and
    /// without that variable.
    #[must_use]
    pub fn local() -> Self {
        Self::of(Address::Unix(default_socket()))
    }

    /// The node at an address: `unix:PATH`, or `tcp://HOST:PORT`, which is always TLS.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) for an invalid address.
    pub fn at(address: &str) -> Result<Self> {
        address.parse().map(Self::of)
    }

    fn of(node: Address) -> Self {
        Self {
            nodes: vec![node],
            required: false,
            token: None,
            ca_file: None,
            store: None,
        }
    }

    /// Adds a node. All leases are registered with each node, so one reachable node is enough.
    ///
    /// # Errors
    ///
    /// As [`Watchdog::at`].
    pub fn and(self, address: &str) -> Result<Self> {
        Ok(self.with(address.parse()?))
    }

    /// Adds the node on this machine.
    #[doc(hidden)]
    #[must_use]
    pub fn and_local(self) -> Self {
        self.with(Address::Unix(default_socket()))
    }

    fn with(mut self, node: Address) -> Self {
        if !self.nodes.contains(&node) {
            self.nodes.push(node);
        }
        self
    }

    /// Requires a registration before a lock counts as acquired: an acquisition waits for a node, and fails without
    /// one. Otherwise acquisitions do not wait for the watchdog.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// The token for nodes on other machines.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Secret::new(token));
        self
    }

    /// A PEM file with the certificate authorities of nodes on other machines; those of the system if not set.
    #[must_use]
    pub fn ca_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(file.into());
        self
    }

    /// The name of the store at the nodes; its URL without a password if not set.
    #[must_use]
    pub fn store_name(mut self, name: impl Into<String>) -> Self {
        self.store = Some(name.into());
        self
    }

    /// The socket of the first node on this machine.
    #[doc(hidden)]
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        self.nodes.iter().find_map(|node| match node {
            Address::Unix(path) => Some(&**path),
            Address::Tcp(..) => None,
        })
    }
}

/// The default socket of the node on this machine.
#[doc(hidden)]
#[must_use]
pub fn default_socket() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own =
        own.filter(|directory| directory.is_absolute() && !rustix::process::geteuid().is_root());
    own.unwrap_or_else(|| PathBuf::from("/run"))
        .join("leasehold/watchdog.sock")
}
