//! Faults of the server, and their errors.

use std::error::Error as _;

use tokio_postgres::error::DbError;

use super::need::Need;
use crate::error::Retry;
use crate::store::rows::DamagedText;
use crate::{Error, ErrorKind};

/// What to do without the rights to make the schema.
const SETUP: &str = "run `leasehold doctor --setup` as the owner of the database";

/// Why a transaction has failed before its commit.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server said so, or the connection ended.
    Reply(tokio_postgres::Error),
    /// A part of the records that an operation needs is not loaded.
    Missing(Need),
    /// An operation ends the hold of a lease on which a transaction of a user relies.
    ReliedOn,
    /// A record is damaged.
    Damaged(DamagedText),
    /// That of a name in a list.
    Found(Error),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Reply(error)
    }
}

impl From<DamagedText> for Fault {
    fn from(damaged: DamagedText) -> Self {
        Self::Damaged(damaged)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Reply(error) if refuses_writes(&error) => {
                Self::new(ErrorKind::Unreachable, STANDBY).with_source(error)
            }
            Fault::Reply(error) => describe(error),
            Fault::Found(error) => error,
            Fault::Damaged(damaged) => damaged.into(),
            Fault::ReliedOn => relied_on(),
            Fault::Missing(_) => Self::new(ErrorKind::Store, "a part of its record was not loaded"),
        }
    }
}

/// Whether an error has this code.
pub(super) fn is(error: &tokio_postgres::Error, code: &str) -> bool {
    error.code().is_some_and(|found| found.code() == code)
}

/// Whether a server cannot be written. A standby refuses `BEGIN READ WRITE` with `0A000`.
pub(super) fn refuses_writes(error: &tokio_postgres::Error) -> bool {
    is(error, "25006") || is(error, "0A000")
}

/// Whether an error means that the connection has ended.
pub(super) fn has_ended(error: &tokio_postgres::Error) -> bool {
    error.code().is_none_or(|code| ends_connection(code.code()))
}

/// Whether an error with this code ends the connection. PgBouncer has 08P01 for most failures of its own, such as a server
/// that is restarting.
fn ends_connection(code: &str) -> bool {
    code.starts_with("08") || matches!(code, "57P01" | "57P02" | "57P05")
}

/// Failures of a pooler that do not pass, although they have the same code.
const LASTING: [&str; 4] = [
    "unsupported startup parameter",
    "no such database",
    "no such user",
    "authentication failed",
];

/// A transaction of a user has called `leasehold.held`, and does not end.
pub(super) fn relied_on() -> Error {
    let message = "a transaction that has called leasehold.held for it has not ended; commit before the release";
    Error::new(ErrorKind::Unreachable, message).with_retry(Retry::Refused { after: None })
}

/// There was no reply in time.
pub(super) fn no_reply() -> Error {
    let message = "no reply in time; the server is stopped, slow or cut off, or another session keeps the record locked";
    Error::new(ErrorKind::Unreachable, message)
}

/// The server has committed without its standby.
pub(super) fn not_replicated() -> Error {
    let message = "the server has committed without the reply of its standby, because another session ended the wait for it";
    Error::new(ErrorKind::Unreachable, message)
}

/// Notifications do not arrive.
pub(super) fn no_notifications() -> Error {
    let message = "notifications do not arrive; a pooler in transaction mode keeps them back, so name the server itself by \
                   listen= in the URL";
    Error::new(ErrorKind::Unsupported, message)
}

/// The error of a reply, or of a connection.
pub(super) fn describe(error: tokio_postgres::Error) -> Error {
    let described = match error.as_db_error() {
        Some(reply) => of_reply(reply),
        None => without_reply(&error),
    };
    described.with_source(error)
}

/// What the reader can do about an error of the server.
fn of_reply(reply: &DbError) -> Error {
    let (code, text) = (reply.code().code(), reply.message());
    let error = |kind, advice: &str| Error::new(kind, format!("{advice} ({text})"));
    // The same request may succeed a little later.
    let refused =
        |advice| error(ErrorKind::Unreachable, advice).with_retry(Retry::Refused { after: None });
    match code {
        "28P01" => error(
            ErrorKind::WrongPassword,
            "the server does not accept the user and the password",
        ),
        "28000" => error(
            ErrorKind::Unauthorized,
            "the server does not admit this user here; see its pg_hba.conf",
        ),
        "3D000" => error(
            ErrorKind::InvalidConfig,
            "there is no such database; create it, or correct its name in the URL",
        ),
        "42501" => error(
            ErrorKind::Unauthorized,
            "the user lacks a right; run `leasehold doctor --setup` as the owner of the database",
        ),
        "3F000" | "42P01" | "42883" | "42703" => error(
            ErrorKind::Store,
            "the schema leasehold is missing or incomplete; run `leasehold doctor --setup` as the owner of the database",
        ),
        "25006" => error(ErrorKind::Unreachable, STANDBY),
        "53300" => refused(
            "the server has no connection left; raise its max_connections, or connect through a pooler",
        ),
        "55P03" | "57014" | "25P04" | "40P01" => refused(
            "another session keeps the record locked; find one that is stopped or slow in pg_stat_activity",
        ),
        // Its limit counts the time between statements, not that of a wait for a lock.
        "25P03" => {
            refused("this process was stopped or too slow in a transaction; give it processor time")
        }
        "57P03" => refused(RESTARTING),
        "08P01" if LASTING.iter().any(|words| text.contains(words)) => error(
            ErrorKind::InvalidConfig,
            "the pooler does not accept the user, the database or a setting of the URL",
        ),
        code if ends_connection(code) => error(ErrorKind::Unreachable, RESTARTING),
        "53100" => error(
            ErrorKind::Store,
            "the disk of the server is full; make room on it",
        ),
        "53200" => error(
            ErrorKind::Store,
            "the server has no memory left; raise its max_locks_per_transaction",
        ),
        _ => Error::new(
            ErrorKind::Store,
            format!("the server replied with an error ({code}: {text})"),
        ),
    }
}

const RESTARTING: &str = "the server is starting, stopping, or ended the connection";

const STANDBY: &str = "this server is a standby or read-only, and keeps no locks; name the primary, or all hosts, in the URL";

/// The error of a connection that was not opened, or has ended.
fn without_reply(error: &tokio_postgres::Error) -> Error {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    if cause.contains("password missing") {
        let message =
            "the server requires a password; give it by the options, PGPASSWORD or a password file";
        return Error::new(ErrorKind::NoPassword, message);
    }
    if cause.contains("does not allow writes") {
        return Error::new(ErrorKind::Unreachable, STANDBY);
    }
    let advice = match error.to_string().as_str() {
        "error connecting to server" => {
            "no connection to the server; check host, port and firewall"
        }
        "error performing TLS handshake" => {
            "the TLS handshake failed; check sslmode and sslrootcert in the URL"
        }
        "connection closed" => "the server has closed the connection",
        _ => "the connection to the server failed",
    };
    let cause = match cause.is_empty() {
        true => error.to_string(),
        false => cause,
    };
    Error::new(ErrorKind::Unreachable, format!("{advice} ({cause})"))
}

/// The user may not make the schema.
pub(super) fn no_schema(error: tokio_postgres::Error) -> Error {
    if !is(&error, "42501") {
        return describe(error);
    }
    let message =
        format!("the schema leasehold is missing, and the user may not create it; {SETUP}");
    Error::new(ErrorKind::Unauthorized, message).with_source(error)
}
