//! Errors that say what to do.

use std::error::Error as StdError;

use super::request::code;
use crate::{Error, ErrorKind};

pub(super) fn unreachable(source: impl StdError + Send + Sync + 'static) -> Error {
    let message =
        "no connection; check host, port and firewall, and zookeepers:// for a port with TLS";
    Error::new(ErrorKind::Unreachable, message).with_source(source)
}

pub(super) fn lost(source: impl StdError + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unreachable, "the connection is lost").with_source(source)
}

pub(super) fn closed() -> Error {
    let message = "the server has closed the connection; if that happens each time, it is not ZooKeeper, has too many \
                   connections of this host (maxClientCnxns), or uses TLS: write zookeepers://";
    Error::new(ErrorKind::Unreachable, message)
}

pub(super) fn not_zookeeper() -> Error {
    let message = "the server does not speak ZooKeeper's protocol; check host and port, and zookeepers:// for one with TLS";
    Error::new(ErrorKind::Unsupported, message)
}

pub(super) fn out_of_order() -> Error {
    let message = "the server has replied to another request than the first one without a reply";
    Error::new(ErrorKind::Unreachable, message)
}

pub(super) fn read_only() -> Error {
    let message = "the server is read-only, because it has lost the majority of its ensemble; start the servers that are down, \
                   and check the network between them";
    Error::new(ErrorKind::Unreachable, message)
}

pub(super) fn too_long() -> Error {
    let message = "the record and the messages to the clients that wait for it are longer than a server accepts; nothing was \
                   applied";
    Error::new(ErrorKind::Store, message)
}

pub(super) fn no_session() -> Error {
    let message = "no server of the ensemble replies, or it has no majority";
    Error::new(ErrorKind::Unreachable, message)
}

/// The error of a code of the server. Nothing was applied.
pub(super) fn described(found: i32) -> Error {
    let (kind, message) = match found {
        code::NO_AUTH => (
            ErrorKind::Unauthorized,
            "the ACL of a node refuses this user; give it cdrwa on the path of the URL and below, or use another path",
        ),
        code::AUTH_FAILED => (
            ErrorKind::WrongPassword,
            "the server refuses this user or password, or digest authentication",
        ),
        code::INVALID_ACL => (
            ErrorKind::Unauthorized,
            "the server accepts no ACL of an unauthenticated user; name a user as in zookeeper://USER:PASSWORD@HOST",
        ),
        code::NOT_READ_ONLY => return read_only(),
        code::UNKNOWN_SESSION | code::SESSION_EXPIRED => (
            ErrorKind::Unreachable,
            "the session has ended; another one begins",
        ),
        code::THROTTLED => (ErrorKind::Unreachable, "the server has too many requests"),
        code::BAD_ARGUMENTS => (
            ErrorKind::InvalidConfig,
            "the server refuses the path of the URL; it must have no part that is empty, . or .., and no control character",
        ),
        code::NO_NODE => (
            ErrorKind::Store,
            "a node was deleted by something else, or the path of the URL does not exist and cannot be created",
        ),
        other => {
            let message = format!("the server replied with the error {other}");
            return Error::new(ErrorKind::Store, message);
        }
    };
    Error::new(kind, message)
}
