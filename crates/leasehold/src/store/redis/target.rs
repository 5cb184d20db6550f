//! Where a connection goes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::address::Address;
use super::connect::dial;
use super::deployment::Deployment;
use super::errors;
use super::notifications::Notifications;
use super::sentinel::Sentinels;
use super::session::Session;
use crate::store::options::OpenOptions;
use crate::{Error, ErrorKind, Result};

/// Where a connection goes. Its `Display` is a URL without a password.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// To this server, whatever it is.
    Fixed(Address),
    /// To the server that sentinels take for the master.
    Found(Sentinels),
}

impl Target {
    /// Where the server of a deployment is that has one.
    pub(super) fn of(deployment: Deployment, options: &OpenOptions) -> Result<Self> {
        match deployment {
            Deployment::Single(address) => Ok(Self::Fixed(address)),
            Deployment::Sentinel(set) => {
                let password = options.sentinel_password.clone();
                Ok(Self::Found(Sentinels::new(set, password)))
            }
            other => {
                let message = "this deployment is not supported";
                Err(Error::new(ErrorKind::Unsupported, message).at_store(other))
            }
        }
    }

    /// Connects. Takes as long as it takes, but for what others than the server itself do: that must
    /// leave most of this time to it.
    pub(super) async fn dial(
        &self,
        notifications: &Arc<Notifications>,
        within: Duration,
    ) -> Result<Session> {
        match self {
            Self::Fixed(address) => dial(address, notifications).await,
            Self::Found(set) => set.dial(notifications, within / 3).await,
        }
    }

    /// There was no connection in time.
    pub(super) fn no_connection_within(&self, timeout: Duration) -> Error {
        match self {
            Self::Fixed(address) => errors::no_connection_within(timeout, address),
            Self::Found(_) => errors::nothing_found_within(timeout),
        }
    }

    /// Whether another server may take the target of the one there.
    pub(super) fn moves(&self) -> bool {
        matches!(self, Self::Found(_))
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
