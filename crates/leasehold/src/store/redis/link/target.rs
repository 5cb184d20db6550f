//! The target of a connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::connect::{accepts, dial};
use super::notifications::Notifications;
use super::session::Session;
use crate::store::redis::address::Address;
use crate::store::redis::address::deployment::SentinelSet;
use crate::store::redis::errors;
use crate::{Error, Result};

/// The target of a connection. Its `Display` is a URL without a password.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// This server, whatever its role.
    Fixed(Address),
    /// The master that sentinels name.
    Found(SentinelSet),
}

impl Target {
    /// Connects. Has no timeout of its own, but finding the server leaves it most of `within`.
    pub(crate) async fn dial(
        &self,
        notifications: &Arc<Notifications>,
        within: Duration,
    ) -> Result<Session> {
        match self {
            Self::Fixed(address) => dial(address, notifications).await,
            Self::Found(set) => set.dial(notifications, within / 3).await,
        }
    }

    /// Whether a server without TLS accepts connections.
    pub(crate) async fn accepts(&self) -> bool {
        match self {
            Self::Fixed(address) => accepts(address).await,
            Self::Found(_) => false,
        }
    }

    /// The error of a connection attempt that timed out. `accepts` is whether the server accepts connections.
    pub(crate) fn no_connection_within(&self, timeout: Duration, accepts: bool) -> Error {
        match self {
            Self::Fixed(address) => errors::no_connection_within(timeout, address, accepts),
            Self::Found(_) => errors::nothing_found_within(timeout),
        }
    }
}

impl From<Address> for Target {
    fn from(address: Address) -> Self {
        Self::Fixed(address)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(address) => address.fmt(f),
            Self::Found(set) => set.fmt(f),
        }
    }
}
