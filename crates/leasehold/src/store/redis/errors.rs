//! The meaning of the errors of a server, and what to do about them.
//!
//! * `known` is the table of errors, `refusal` classifies the refusal of a command.
//! * `connection` describes failed connections, `cluster` the failures of a cluster.

mod cluster;
mod connection;
mod known;
mod refusal;
#[cfg(feature = "doctor")]
mod refused;

use std::error::Error as StdError;
use std::fmt;

use redis::ServerError;

pub(crate) use self::cluster::*;
pub(crate) use self::connection::*;
use self::known::{Known, NOT_ADMITTED, code_and_words, find};
pub(crate) use self::refusal::{DENIED, Refusal, is_lasting, refusal};
#[cfg(feature = "doctor")]
pub(crate) use self::refused::{Refused, refused_words};
use crate::{Error, ErrorKind};

/// The maximum length of a quotation of the server.
const WORDS_CHARS_MAX: usize = 200;

/// The error of a whole call, and whether it is certain that nothing of the call was applied.
pub(crate) fn call(error: &ServerError) -> (Error, bool) {
    let (code, words) = (error.code(), error.details().unwrap_or_default());
    let (known, quotation) = (find(code, words), quote(&format!("{code} {words}")));
    let otherwise = "the server replied with an error";
    let error = described(known, code, otherwise, &quotation);
    (error, known.is_some())
}

/// The error of this code, with the advice in the table, or `otherwise`.
fn described(known: Option<&Known>, code: &str, otherwise: &str, quotation: &str) -> Error {
    let error = match known {
        Some(known) => known.error(format!("{} ({quotation})", known.advice)),
        None => Error::new(ErrorKind::Store, format!("{otherwise} ({quotation})")),
    };
    match code {
        "READONLY" | "MASTERDOWN" => error.with_source(Condition::Replica),
        _ => error,
    }
}

/// The source of an error that the stores handle.
#[derive(Debug, PartialEq, Eq)]
enum Condition {
    NotAdmitted,
    /// Another server may be the master now.
    Replica,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAdmitted => "the master is not admitted",
            Self::Replica => "the server is a replica",
        })
    }
}

impl StdError for Condition {}

impl Condition {
    fn is_of(&self, error: &Error) -> bool {
        let source = error.source().and_then(|source| source.downcast_ref());
        source == Some(self)
    }
}

/// Whether an error means that a master is not admitted.
pub(crate) fn is_not_admitted(error: &Error) -> bool {
    Condition::NotAdmitted.is_of(error)
}

/// Whether an error means that the server is a replica.
pub(crate) fn is_of_replica(error: &Error) -> bool {
    Condition::Replica.is_of(error)
}

/// The error of a read that a replica would serve. Its data may be old.
pub(crate) fn replica() -> Error {
    command("HELLO", "", "READONLY the server is a replica")
}

/// The error of one command that certainly changed nothing. `key` may be empty.
pub(crate) fn command(command: &str, key: &str, text: &str) -> Error {
    let (code, words) = code_and_words(text);
    let known = find(code, words);
    if let (Some(known), NOT_ADMITTED) = (known, text) {
        let error = known.error(known.advice.to_owned());
        return error.with_source(Condition::NotAdmitted);
    }
    let of_key = match key {
        "" => String::new(),
        key => format!(" of key {key:?}"),
    };
    let quotation = format!("{}{of_key}: {}", quote(command), quote(text));
    described(known, code, "the server refused a command", &quotation)
}

/// As [`command`], for an error reply.
pub(crate) fn command_error(name: &str, key: &str, error: &ServerError) -> Error {
    let words = error.details().unwrap_or_default();
    command(name, key, &format!("{} {words}", error.code()))
}

/// A user that cannot be notified, while others can: it would wait behind all of them, and its releases would
/// notify no waiter.
pub(crate) fn denied_notifications(namespace: &str, words: &str) -> Error {
    let message = format!(
        "the user lacks permissions to notify waiters in the namespace {namespace}; leasehold doctor \
         --namespace {namespace} prints the line that allows them ({words})"
    );
    Error::new(ErrorKind::Unauthorized, message)
}

/// A key of ours that has a value which this library did not write.
pub(crate) fn foreign_value(key: &str) -> Error {
    let message = format!("the key {key:?} holds a value that leasehold did not write");
    Error::new(ErrorKind::Store, message)
}

/// A reply that no supported server sends.
pub(crate) fn invalid_reply() -> Error {
    let message =
        "the reply is invalid; this is not a Redis server, or a proxy changes its replies";
    Error::new(ErrorKind::Store, message)
}

/// A quotation of the server on one line, without a full stop.
pub(crate) fn quote(words: &str) -> String {
    let line: String = words
        .trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(WORDS_CHARS_MAX)
        .collect();
    line.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind::{
        InvalidConfig, NoPassword, Store, Unauthorized, Unsupported, WrongPassword,
    };

    #[test]
    fn an_error_of_the_server_has_advice() {
        for (text, kind, is_transient, advice) in [
            ("NOAUTH Authentication", NoPassword, false, "password"),
            ("WRONGPASS invalid", WrongPassword, false, "check both"),
            ("NOPERM no permissions to run", Unauthorized, false, "allow"),
            ("ERR script can't run", Unauthorized, false, "allow"),
            ("NOPERM script can't access", Unauthorized, false, "~NAME"),
            ("NOPERM one of the channels", Unauthorized, false, "&NAME"),
            ("ERR publish to the channel", Unauthorized, false, "&NAME"),
            ("NOPERM access a channel", Unauthorized, false, "&NAME"),
            ("READONLY You can't", Store, false, "connect to its master"),
            ("OOM command not allowed.", Store, false, "maxmemory"),
            ("MISCONF RDB snapshots", Store, false, "check its disk"),
            ("something new", Store, false, "refused"),
            ("MOVED 3999 h:1", Unsupported, false, "cluster"),
            ("ERR DB index", InvalidConfig, false, "database"),
            ("MASTERDOWN Link", Store, true, "master"),
        ] {
            let error = command("SET", "app:{t:n}", text);
            let described = (error.kind(), error.is_transient());
            assert_eq!(described, (kind, is_transient), "{text}");
            let message = error.to_string();
            assert!(message.contains(advice), "{message}");
            assert!(message.contains(r#"SET of key "app:{t:n}""#), "{message}");
            assert!(!message.ends_with('.') && !message.contains('\n'));
        }
        assert!(command("SET", "", NOT_ADMITTED).is_transient());
    }

    #[test]
    fn only_a_call_that_is_refused_before_it_runs_is_certain() {
        for (text, certain) in [
            ("LOADING Redis is loading the dataset in memory", true),
            ("BUSY Redis is busy running a script.", true),
            ("ERR unknown command 'EVALSHA', with args", true),
            ("ERR user_script:1: attempt to index a nil value", false),
            ("UNHEARD of", false),
        ] {
            let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
            let Ok(redis::Value::ServerError(error)) = reply else {
                unreachable!("{reply:?}")
            };
            assert_eq!(call(&error).1, certain, "{text}");
        }
    }
}
