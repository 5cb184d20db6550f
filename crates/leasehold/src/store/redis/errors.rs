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

pub(super) use self::cluster::{
    cluster_down, cluster_without_its_name, no_node_for_slot, nodes_disagree, of_cluster,
    slot_is_moving, slots_without_node,
};
pub(super) use self::connection::{
    demoted, no_answer, no_answer_within, no_connection, no_connection_within,
    nothing_found_within, replaced, sentinel,
};
use self::known::{Known, NOT_ADMITTED, find, is_code};
pub(super) use self::refusal::{DENIED, Refusal, refusal};
#[cfg(feature = "doctor")]
pub(super) use self::refused::{Refused, refused_words};
use crate::{Error, ErrorKind};

/// The maximum length of a quotation of the server.
const WORDS_CHARS_MAX: usize = 200;

/// The error of a whole call, and whether it is certain that nothing of the call was applied.
pub(super) fn call(error: &ServerError) -> (Error, bool) {
    let (code, words) = (error.code(), error.details().unwrap_or_default());
    let found = find(code, words);
    let advice = found.map_or("the server answered with an error", |known| known.advice);
    let message = format!("{advice} ({})", quote(&format!("{code} {words}")));
    let error = known_error(found, message);
    let error = match of_replica(code) {
        true => error.with_source(Condition::Replica),
        false => error,
    };
    (error, found.is_some())
}

fn known_error(known: Option<&Known>, message: String) -> Error {
    match known {
        Some(known) => known.error(message),
        None => Error::new(ErrorKind::Store, message),
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
pub(in crate::store) fn is_not_admitted(error: &Error) -> bool {
    Condition::NotAdmitted.is_of(error)
}

/// Whether an error means that the server is a replica.
pub(super) fn is_of_replica(error: &Error) -> bool {
    Condition::Replica.is_of(error)
}

fn of_replica(code: &str) -> bool {
    matches!(code, "READONLY" | "MASTERDOWN")
}

/// The error of one command that certainly changed nothing. `key` may be empty.
pub(super) fn command(command: &str, key: &str, text: &str) -> Error {
    let (code, words) = match text.split_once(' ') {
        Some((code, words)) if is_code(code) => (code, words),
        _ => ("", text),
    };
    let found = find(code, words);
    let advice = found.map_or("the server refused a command", |known| known.advice);
    let (command, words) = (quote(command), quote(text));
    let message = if text == NOT_ADMITTED {
        advice.to_owned()
    } else if key.is_empty() {
        format!("{advice} ({command}: {words})")
    } else {
        format!("{advice} ({command} of key {key:?}: {words})")
    };
    let error = known_error(found, message);
    match code {
        _ if of_replica(code) => error.with_source(Condition::Replica),
        _ if text == NOT_ADMITTED => error.with_source(Condition::NotAdmitted),
        _ => error,
    }
}

/// As [`command`], for an error reply.
pub(super) fn command_error(name: &str, key: &str, error: &ServerError) -> Error {
    let words = error.details().unwrap_or_default();
    command(name, key, &format!("{} {words}", error.code()))
}

/// A user that cannot be notified, while others can: it would wait behind all of them, and its releases would
/// notify no waiter.
pub(super) fn denied_notifications(words: &str) -> Error {
    let message = format!(
        "the user lacks permissions to notify waiters; allow them with the line that leasehold doctor \
         prints ({words})"
    );
    Error::new(ErrorKind::Unauthorized, message)
}

/// An answer that no supported server gives.
pub(super) fn strange_answer() -> Error {
    let message = "the answer makes no sense; this is not a Redis server, or a proxy changes it";
    Error::new(ErrorKind::Store, message)
}

/// A quotation of the server on one line, without a full stop.
pub(super) fn quote(words: &str) -> String {
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_error_of_the_server_has_advice() {
        for (text, kind, advice) in [
            (
                "NOAUTH Authentication required.",
                ErrorKind::Unauthorized,
                "password",
            ),
            (
                "NOPERM this user has no permissions to run the 'eval' command",
                ErrorKind::Unauthorized,
                "allow",
            ),
            (
                "ERR The user executing the script can't run this command or subcommand",
                ErrorKind::Unauthorized,
                "allow",
            ),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                ErrorKind::Unauthorized,
                "~NAMESPACE",
            ),
            (
                "READONLY You can't write against a read only replica.",
                ErrorKind::Store,
                "connect to its master",
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                ErrorKind::Store,
                "maxmemory",
            ),
            (
                "MOVED 3999 127.0.0.1:6381",
                ErrorKind::Unsupported,
                "cluster",
            ),
            (
                "ERR DB index is out of range",
                ErrorKind::InvalidConfig,
                "database",
            ),
            ("something new", ErrorKind::Store, "refused"),
        ] {
            let error = command("SET", "app:{t:n}", text);
            assert_eq!(error.kind(), kind, "{text}");
            let message = error.to_string();
            assert!(message.contains(advice), "{message}");
            assert!(message.contains(r#"SET of key "app:{t:n}""#), "{message}");
            assert!(!message.ends_with('.') && !message.contains('\n'));
        }
    }

    #[test]
    fn transient_errors_are_marked() {
        for text in [
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script.",
            "MASTERDOWN Link with MASTER is down",
            "NOREPLICAS Not enough good replicas to write.",
            "ERR max number of clients reached",
            NOT_ADMITTED,
        ] {
            assert!(command("SET", "", text).is_transient(), "{text}");
        }
        for text in [
            "NOPERM this user has no permissions to run the 'eval' command",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "NOAUTH Authentication required.",
            "READONLY You can't write against a read only replica.",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "MISCONF Redis is configured to save RDB snapshots",
            "something new",
        ] {
            assert!(!command("SET", "", text).is_transient(), "{text}");
        }
    }

    #[test]
    fn only_a_call_that_is_refused_before_it_runs_is_certain() {
        let certain = |text: &str| {
            let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
            match reply {
                Ok(redis::Value::ServerError(error)) => call(&error).1,
                other => unreachable!("{other:?}"),
            }
        };
        assert!(certain("LOADING Redis is loading the dataset in memory"));
        assert!(certain("BUSY Redis is busy running a script."));
        assert!(certain(
            "ERR unknown command 'EVALSHA', with args beginning with: "
        ));
        assert!(!certain("ERR user_script:1: attempt to index a nil value"));
        assert!(!certain("UNHEARD of"));
    }

    proptest! {
        #[test]
        fn no_words_break_a_message(name in any::<String>(), text in any::<String>()) {
            let message = command(&name, "key", &text).to_string();
            prop_assert!(message.contains("of key"));
        }
    }
}
