//! Failed and broken connections.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;

use super::known::{NO_PASSWORD, find};
use super::{described, quote};
use crate::store::redis::address::{Address, Endpoint};
use crate::{Error, ErrorKind};

/// The text of [`without_tls`].
const NO_TLS: &str = "it replies to a request without TLS";

/// A connection could not be opened.
pub(crate) fn no_connection(error: &RedisError, address: &Address) -> Error {
    let words = quote(&match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    });
    let code = error.code().unwrap_or_default();
    let found = match error.kind() {
        redis::ErrorKind::AuthenticationFailed => find("WRONGPASS", ""),
        _ => find(code, error.detail().unwrap_or_default()),
    };
    match found {
        // The server explains at length how a client authenticates.
        Some(known) if known.kind == ErrorKind::NoPassword => known.error(NO_PASSWORD.to_owned()),
        None if error.code().is_none() => {
            let (kind, advice) = unreachable(error, &words, address);
            // The message of the parser does not help a user.
            match error.kind() {
                redis::ErrorKind::Parse => Error::new(kind, advice),
                _ => Error::new(kind, format!("{advice} ({words})")).with_source(error.clone()),
            }
        }
        // The words are all that the error has: as its source they would be shown twice.
        _ => described(found, code, "the server replied with an error", &words),
    }
}

/// The error of a TLS handshake with a server that replies to requests without TLS.
pub(crate) fn without_tls() -> RedisError {
    io::Error::new(io::ErrorKind::InvalidData, NO_TLS).into()
}

/// A connection attempt timed out. `accepts` is whether the server accepts connections.
pub(crate) fn no_connection_within(timeout: Duration, address: &Address, accepts: bool) -> Error {
    if accepts {
        let message = format!(
            "connected, but no reply within {timeout:?}; the server is stopped or busy, is not a Redis server, or wants \
             TLS (rediss://)"
        );
        return Error::new(ErrorKind::Unreachable, message);
    }
    let check = match (&address.endpoint, &address.tls) {
        (Endpoint::Unix(_), _) => "the server is stopped or busy",
        (_, None) => "check host, port and firewall",
        // A server without TLS takes the handshake for an incomplete command, and waits for the rest.
        (_, Some(_)) => "check host, port and firewall, and that it speaks TLS there",
    };
    let message = format!("no connection within {timeout:?}; {check}");
    Error::new(ErrorKind::Unreachable, message)
}

/// The same for a sentinel that replies to requests without TLS. Other errors are returned as they are.
pub(crate) fn of_sentinel(error: Error) -> Error {
    if !error.to_string().contains(NO_TLS) {
        return error;
    }
    let message = format!(
        "the sentinel does not speak TLS there; use redis+sentinel://, which is also without TLS to the servers, or \
         the TLS port of the sentinel ({NO_TLS})"
    );
    error.reworded(message)
}

/// No master was found, or it did not reply, in time.
pub(crate) fn nothing_found_within(timeout: Duration) -> Error {
    let message = format!(
        "no connection to the master within {timeout:?}; check hosts, ports and firewall of the \
         sentinels and of the servers that they name"
    );
    Error::new(ErrorKind::Unreachable, message)
}

/// The server is a sentinel, which cannot keep locks.
pub(crate) fn sentinel(masters: &[String]) -> Error {
    let masters = quote(&masters.join(", "));
    let message = format!(
        "this is a sentinel, not a Redis server; use redis+sentinel://HOST:PORT/MASTER (it watches: \
         {masters})"
    );
    Error::new(ErrorKind::InvalidConfig, message)
}

/// Another server has become the master.
pub(crate) fn replaced() -> Error {
    let message = "the sentinels name another master; changes by the old one will be lost";
    Error::new(ErrorKind::Unreachable, message)
}

/// The server has become a replica during the connection.
pub(crate) fn demoted(error: &Error) -> Error {
    let message = "the server is no longer a master; the sentinels are asked for the new one";
    Error::new(ErrorKind::Unreachable, message).with_source(error.clone())
}

/// There was no reply in time.
pub(crate) fn no_reply_within(timeout: Duration) -> Error {
    let message = format!("no reply within {timeout:?}; the server is stopped, slow or cut off");
    Error::new(ErrorKind::Unreachable, message)
}

/// The connection broke before the reply arrived.
pub(crate) fn no_reply(error: &RedisError) -> Error {
    let message = format!(
        "the connection broke before the reply arrived ({})",
        quote(&error.to_string())
    );
    Error::new(ErrorKind::Unreachable, message).with_source(error.clone())
}

/// The kind and the advice for a server that was not reached. `words` is the text of the error.
fn unreachable(error: &RedisError, words: &str, address: &Address) -> (ErrorKind, &'static str) {
    let unix = matches!(address.endpoint, Endpoint::Unix(_));
    let advice = match io_kind(error) {
        Some(io::ErrorKind::PermissionDenied) if unix => {
            let advice = "this process may not use the socket; check its owner and mode";
            return (ErrorKind::Unauthorized, advice);
        }
        Some(io::ErrorKind::NotFound) if unix => {
            "there is no socket at this path; correct it, or start the server"
        }
        Some(io::ErrorKind::ConnectionRefused) => {
            "no server listens at this address; check the address, and start the server"
        }
        _ if error.kind() == redis::ErrorKind::Parse => {
            "this is not a Redis server; check host and port"
        }
        _ if words.contains("lookup address") => {
            "the name of the host is not known; correct it, or the DNS"
        }
        _ if words.contains("invalid peer certificate") => {
            "the server's certificate is not trusted here; name its authority with ?ca=FILE, and \
             the host as it stands in the certificate"
        }
        _ if words.contains("fatal alert") => {
            "the server refused the TLS handshake; it may want a certificate: ?cert=FILE&key=FILE"
        }
        _ if words.contains("corrupt message") || words.contains(NO_TLS) => {
            "the server does not speak TLS there; use redis://, or its TLS port"
        }
        _ if error.is_connection_dropped() && address.tls.is_none() => {
            "the server closed the connection immediately; if it wants TLS, use rediss://"
        }
        _ => "the server could not be reached",
    };
    (ErrorKind::Unreachable, advice)
}

fn io_kind(error: &RedisError) -> Option<io::ErrorKind> {
    let source = error.source()?;
    let shared = source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
    Some(shared.downcast_ref::<io::Error>()?.kind())
}
