//! The refusals of a node.

use std::fmt;
use std::io;

use super::transport::Reader;
use crate::watchdog::wire::{Refusal, ToClient};

/// The refusal of a node.
#[derive(Debug)]
pub(super) struct NodeRefusal {
    reason: Refusal,
    /// The stores that it serves, if it does not serve that of the client.
    pub(super) stores: Vec<String>,
}

impl NodeRefusal {
    pub(super) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Whether the next attempt would be refused as well.
    pub(super) fn is_permanent(&self) -> bool {
        matches!(
            self.reason,
            Refusal::Store | Refusal::Token | Refusal::Namespace | Refusal::Value
        )
    }
}

impl fmt::Display for NodeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the node refused a message: {}", self.reason)
    }
}

impl std::error::Error for NodeRefusal {}

/// The refusal that follows a list of the stores that the node serves.
pub(super) async fn store_refusal(reader: &mut Reader, stores: Vec<String>) -> io::Error {
    match reader.next().await {
        Ok(ToClient::Refused(reason)) => refused(reason, stores),
        Ok(other) => unexpected(other),
        Err(error) => error,
    }
}

/// The error with which a connection ends after this message of the node.
pub(super) fn unexpected(message: ToClient) -> io::Error {
    match message {
        ToClient::Refused(reason) => refused(reason, Vec::new()),
        ToClient::Closing => io::Error::other("the node is about to stop"),
        _ => io::ErrorKind::InvalidData.into(),
    }
}

fn refused(reason: Refusal, stores: Vec<String>) -> io::Error {
    let refusal = NodeRefusal { reason, stores };
    io::Error::new(io::ErrorKind::PermissionDenied, refusal)
}
