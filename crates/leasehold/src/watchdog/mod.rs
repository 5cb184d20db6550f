//! The watchdog, seen from its clients: a service outside of this process that keeps leases alive while
//! this process cannot, and releases them as soon as it is dead.
//!
//! A process renews its leases itself, as long as it runs. One that is stopped, swapped out or collects its
//! garbage does not, and would lose them though it is alive; and when it dies, others wait for the rest of
//! its ttl. A node of the watchdog on the same machine can tell the two apart. One on another machine keeps
//! leases alive, too, and never releases any.
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
//! # Ok(()) }
//! ```
//!
//! No lock depends on it: while no node is there, leases are renewed and lost as without. With one, a lease
//! whose deadline came while this process was paused is [`State::Jeopardy`] with [`Cause::Paused`], not
//! lost, until the store has said whether it is still its own; [`Guard::ensure`] and [`Mutex::run`] wait for
//! that.
//!
//! [`State::Jeopardy`]: crate::State::Jeopardy
//! [`Cause::Paused`]: crate::Cause::Paused
//! [`Guard::ensure`]: crate::Guard::ensure
//! [`Mutex::run`]: crate::Mutex::run

mod address;
pub mod frame;
mod observer;
pub mod wire;

use std::fmt;
use std::path::{Path, PathBuf};

pub(crate) use self::address::Address;
pub use self::observer::Observer;
use self::wire::Secret;
use crate::Result;

/// Which nodes of the watchdog look after a client's leases, and how it gets in there.
#[derive(Clone)]
pub struct Watchdog {
    pub(crate) nodes: Vec<Address>,
    pub(crate) required: bool,
    pub(crate) token: Option<Secret>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) store: Option<String>,
}

impl Watchdog {
    /// The node on this machine, at [`default_socket`].
    #[must_use]
    pub fn local() -> Self {
        Self::of(Address::Unix(default_socket()))
    }

    /// The node at an address: `unix:PATH`, or `tcp://HOST:PORT`, which is always TLS.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) for an address that is none.
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

    /// Another node. Each is told of all leases; one that is left is enough.
    ///
    /// # Errors
    ///
    /// As [`Watchdog::at`].
    pub fn and(self, address: &str) -> Result<Self> {
        Ok(self.with(address.parse()?))
    }

    /// The node on this machine, too.
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

    /// Nobody holds a lock before a node looks after it: an acquisition waits for that, and fails if it
    /// cannot be had. Without it nothing waits.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// What lets us in at nodes on other machines.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Secret::new(token));
        self
    }

    /// A file with the certificates that nodes on other machines are signed with; those that the system
    /// trusts if not set.
    #[must_use]
    pub fn ca_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(file.into());
        self
    }

    /// What the nodes call the store, if not by its URL without a password.
    #[must_use]
    pub fn store_name(mut self, name: impl Into<String>) -> Self {
        self.store = Some(name.into());
        self
    }

    /// The socket of the first node on this machine.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        self.nodes.iter().find_map(|node| match node {
            Address::Unix(path) => Some(&**path),
            Address::Tcp(..) => None,
        })
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog")
            .field("nodes", &self.nodes)
            .field("required", &self.required)
            .finish_non_exhaustive()
    }
}

/// Where the node of this machine listens if nothing else is said: `leasehold/watchdog.sock` in
/// `$XDG_RUNTIME_DIR`, or in `/run` for root and where that is not set.
#[must_use]
pub fn default_socket() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.filter(|folder| folder.is_absolute() && !rustix::process::geteuid().is_root());
    own.unwrap_or_else(|| PathBuf::from("/run"))
        .join("leasehold/watchdog.sock")
}
