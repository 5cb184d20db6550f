//! What a server's errors mean and what to do about them.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use redis::{RedisError, ServerError, Value};

use super::address::{Address, Endpoint};
use crate::{Error, ErrorKind};

/// How much of a server's words a message repeats.
const WORDS_CHARS_MAX: usize = 200;

/// What is known of an error.
struct Known {
    /// The code before the server's words. Empty: any.
    code: &'static str,
    /// What the words contain.
    words: &'static str,
    kind: ErrorKind,
    advice: &'static str,
}

const fn known(
    code: &'static str,
    words: &'static str,
    kind: ErrorKind,
    advice: &'static str,
) -> Known {
    Known {
        code,
        words,
        kind,
        advice,
    }
}

const NO_PASSWORD: &str = "the server wants a password; give one, with a user if it has users";
const WRONG_PASSWORD: &str = "the server does not accept this user and password; check both";
const NO_KEY: &str = "the user may not use keys of this namespace; allow them with ~NAMESPACE:*";
const NO_CHANNEL: &str =
    "the user may not use channels of this namespace; allow them with &NAMESPACE:*";
const NO_COMMAND: &str = "the user may not run a command that locks need; allow it";
const CLUSTER: &str = "this is a node of a cluster; use redis+cluster:// with its host";

/// Errors that a server gives *before* it runs anything. The first that fits counts.
#[rustfmt::skip]
const TABLE: &[Known] = &[
    known("NOAUTH", "", ErrorKind::Unauthorized, NO_PASSWORD),
    known("WRONGPASS", "", ErrorKind::Unauthorized, WRONG_PASSWORD),
    known("ERR", "invalid password", ErrorKind::Unauthorized, WRONG_PASSWORD),
    known("", "of the channels", ErrorKind::Unauthorized, NO_CHANNEL),
    known("", "permissions to access", ErrorKind::Unauthorized, NO_KEY),
    known("", "script can't access", ErrorKind::Unauthorized, NO_KEY),
    known("", "script can't run", ErrorKind::Unauthorized, NO_COMMAND),
    known("", "no permissions to", ErrorKind::Unauthorized, NO_COMMAND),
    known("NOPERM", "", ErrorKind::Unauthorized, NO_COMMAND),
    known("DENIED", "", ErrorKind::Unauthorized,
        "the server lets in nobody from other machines; set a password there, or its bind address"),
    known("READONLY", "", ErrorKind::Store,
        "this server is a read-only replica; connect to its master"),
    known("", UNARMED, ErrorKind::Store,
        "started not long ago, so it may have forgotten locks; it is kept out until the leases from \
         before have ended, which takes as long as the longest ttl"),
    known("LOADING", "", ErrorKind::Store,
        "the server is still loading its data; try again when it is done"),
    known("OOM", "", ErrorKind::Store,
        "the server has no memory left; raise its maxmemory or free some"),
    known("MISCONF", "", ErrorKind::Store,
        "the server cannot save its data and refuses writes; look at its disk and its log"),
    known("NOREPLICAS", "", ErrorKind::Store,
        "the server has fewer replicas than its min-replicas-to-write asks for; mend them"),
    known("MASTERDOWN", "", ErrorKind::Store,
        "this replica has lost its master; connect to the master"),
    known("BUSY", "", ErrorKind::Store,
        "the server is busy with a slow script; wait, or end it with SCRIPT KILL"),
    known("ERR", "max number of clients", ErrorKind::Store,
        "the server takes no more connections; raise its maxclients or close some"),
    known("WRONGTYPE", "", ErrorKind::Store,
        "the key holds something else than a lock; choose another namespace, or delete that key"),
    known("MOVED", "", ErrorKind::Unsupported, CLUSTER),
    known("ASK", "", ErrorKind::Unsupported, CLUSTER),
    known("CROSSSLOT", "", ErrorKind::Unsupported, CLUSTER),
    known("TRYAGAIN", "", ErrorKind::Unsupported, CLUSTER),
    known("CLUSTERDOWN", "", ErrorKind::Unsupported, CLUSTER),
    known("", "DB index", ErrorKind::InvalidConfig,
        "the server has no database of this number; use another, or raise its databases"),
    known("", "unknown command 'SELECT'", ErrorKind::Unsupported,
        "the server has no databases: it is a sentinel, for redis+sentinel://HOST:PORT/MASTER, or not a \
         Redis server"),
    known("", "unknown command", ErrorKind::Unsupported,
        "the server lacks a command that locks need; it was renamed, or this is not a Redis server"),
];

/// An error of a whole call, and whether it is certain that nothing of the call was done.
pub(super) fn call(error: &ServerError) -> (Error, bool) {
    let (code, words) = (error.code(), error.details().unwrap_or_default());
    let found = find(code, words);
    let (kind, advice) = found.map_or(
        (ErrorKind::Store, "the server answered with an error"),
        |known| (known.kind, known.advice),
    );
    let message = format!("{advice} ({})", quote(&format!("{code} {words}")));
    let error = Error::new(kind, message);
    let error = match of_replica(code) {
        true => error.with_source(IsReplica),
        false => error,
    };
    (error, found.is_some())
}

/// What a script says of a master that is not armed.
const UNARMED: &str = "UNARMED";

/// That a master is not armed.
#[derive(Debug)]
struct IsUnarmed;

impl fmt::Display for IsUnarmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the master is not armed")
    }
}

impl StdError for IsUnarmed {}

/// Whether an error says that a master is not armed.
pub(in crate::store) fn is_unarmed(error: &Error) -> bool {
    error
        .source()
        .is_some_and(|source| source.is::<IsUnarmed>())
}

/// That a server is a replica: what makes it so may have made another the master.
#[derive(Debug)]
struct IsReplica;

impl fmt::Display for IsReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server is a replica")
    }
}

impl StdError for IsReplica {}

fn of_replica(code: &str) -> bool {
    matches!(code, "READONLY" | "MASTERDOWN")
}

/// Whether an error says that the server is a replica.
pub(super) fn is_of_replica(error: &Error) -> bool {
    error
        .source()
        .is_some_and(|source| source.is::<IsReplica>())
}

/// An error of one command, of which the script or a pipeline knows that it did nothing. `key` may
/// be empty.
pub(super) fn command(command: &str, key: &str, text: &str) -> Error {
    let (code, words) = match text.split_once(' ') {
        Some((code, words)) if is_code(code) => (code, words),
        _ => ("", text),
    };
    let found = find(code, words);
    let (kind, advice) = found.map_or(
        (ErrorKind::Store, "the server refused a command"),
        |known| (known.kind, known.advice),
    );
    let (command, words) = (quote(command), quote(text));
    let message = if text == UNARMED {
        advice.to_owned()
    } else if key.is_empty() {
        format!("{advice} ({command}: {words})")
    } else {
        format!("{advice} ({command} of key {key:?}: {words})")
    };
    let error = Error::new(kind, message);
    match code {
        _ if of_replica(code) => error.with_source(IsReplica),
        _ if text == UNARMED => error.with_source(IsUnarmed),
        _ => error,
    }
}

/// That the server does not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// What it says.
    pub(super) words: String,
    /// Whether it is for want of a right or of the command, not of the moment.
    pub(super) lasting: bool,
}

/// The refusal that an answer is, if it is one.
pub(super) fn refusal(answer: &Value) -> Option<Refusal> {
    let Value::ServerError(error) = answer else {
        return None;
    };
    let (code, words) = (error.code(), error.details().unwrap_or_default());
    let passing = find(code, words).is_some_and(|known| known.kind == ErrorKind::Store);
    Some(Refusal {
        words: quote(&format!("{code} {words}")),
        lasting: !passing,
    })
}

/// What a server does not let us do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The command is not for this user, or the server does not have it.
    Command,
    /// The key is not for this user.
    Keys,
    /// The channel is not for this user.
    Channels,
    /// It does it for nobody at this moment.
    Moment,
}

/// What a server says to a command that it does not have.
const UNKNOWN: [&str; 3] = [
    "unknown command",
    "unknown redis command",
    "unknown subcommand",
];

/// What the words of an error refuse. `None` if they are about something else, such as what a key
/// holds: then the command was allowed.
pub(super) fn refused_words(text: &str) -> Option<Refused> {
    let (code, words) = match text.split_once(' ') {
        Some((code, words)) if is_code(code) => (code, words),
        _ => ("", text),
    };
    // Scripts say it in other words.
    let lower = words.to_lowercase();
    if UNKNOWN.iter().any(|unknown| lower.contains(unknown)) {
        return Some(Refused::Command);
    }
    let known = find(code, words)?;
    match (known.kind, known.advice) {
        (_, NO_KEY) => Some(Refused::Keys),
        (_, NO_CHANNEL) => Some(Refused::Channels),
        (ErrorKind::Unauthorized, _) => Some(Refused::Command),
        (ErrorKind::Store, _) if code != "WRONGTYPE" => Some(Refused::Moment),
        _ => None,
    }
}

/// As [`command`], for an error that came as one.
pub(super) fn command_error(name: &str, key: &str, error: &ServerError) -> Error {
    let words = error.details().unwrap_or_default();
    command(name, key, &format!("{} {words}", error.code()))
}

/// Why there is no connection.
pub(super) fn no_connection(error: &RedisError, address: &Address) -> Error {
    let words = quote(&match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    });
    let found = match error.kind() {
        redis::ErrorKind::AuthenticationFailed => find("WRONGPASS", ""),
        _ => find(
            error.code().unwrap_or_default(),
            error.detail().unwrap_or_default(),
        ),
    };
    let (kind, advice) = match found {
        Some(known) => (known.kind, known.advice),
        None if error.code().is_some() => (ErrorKind::Store, "the server answered with an error"),
        None => unreachable(error, &words, &address.endpoint),
    };
    Error::new(kind, format!("{advice} ({words})")).with_source(error.clone())
}

/// There was no connection in time.
pub(super) fn no_connection_within(timeout: Duration, address: &Address) -> Error {
    let check = match address.endpoint {
        Endpoint::Tcp { .. } => "check host, port and firewall",
        // A server without TLS waits for the end of what it takes for a line.
        Endpoint::Tls { .. } => "check host, port and firewall, and that it speaks TLS there",
        Endpoint::Unix { .. } => "the server is stopped or busy",
    };
    let message = format!("no connection within {timeout:?}; {check}");
    Error::new(ErrorKind::Unreachable, message)
}

/// No master was found, or none answered, in time.
pub(super) fn nothing_found_within(timeout: Duration) -> Error {
    let message = format!(
        "no connection to the master within {timeout:?}; check hosts, ports and firewall of the \
         sentinels and of the servers that they name"
    );
    Error::new(ErrorKind::Unreachable, message)
}

/// The server is a sentinel, which keeps no locks.
pub(super) fn sentinel(masters: &[String]) -> Error {
    let masters = quote(&masters.join(", "));
    let message = format!(
        "this is a sentinel, not a Redis server; use redis+sentinel://HOST:PORT/MASTER (it watches: \
         {masters})"
    );
    Error::new(ErrorKind::InvalidConfig, message)
}

/// Another server is the master.
pub(super) fn replaced() -> Error {
    let message = "the sentinels name another master; what the old one does is forgotten";
    Error::new(ErrorKind::Unreachable, message)
}

/// The server was made a replica while we were connected.
pub(super) fn demoted(error: &Error) -> Error {
    let message = "the server is no master any more; the sentinels are asked for the new one";
    Error::new(ErrorKind::Unreachable, message).with_source(error.clone())
}

/// There was no answer in time.
pub(super) fn no_answer_within(timeout: Duration) -> Error {
    let message = format!("no answer within {timeout:?}; the server is stopped, slow or cut off");
    Error::new(ErrorKind::Unreachable, message)
}

/// The connection broke before the answer came.
pub(super) fn no_answer(error: &RedisError) -> Error {
    let message = format!(
        "the connection broke before the answer came ({})",
        quote(&error.to_string())
    );
    Error::new(ErrorKind::Unreachable, message).with_source(error.clone())
}

/// A URL of one server names a node of a cluster.
pub(super) fn cluster_without_its_name() -> Error {
    Error::new(ErrorKind::InvalidConfig, CLUSTER)
}

/// What a server answers that is asked about its cluster.
pub(super) fn of_cluster(error: &ServerError) -> Error {
    let words = error.details().unwrap_or_default();
    if words.contains("cluster support disabled") {
        let message = "this server is in no cluster; use redis:// with its host";
        return Error::new(ErrorKind::InvalidConfig, message);
    }
    call(error).0
}

/// Not all slots of a cluster are served.
pub(super) fn slots_without_node(slots: usize) -> Error {
    let message = format!(
        "{slots} slots of the cluster are served by no node; look at CLUSTER INFO, and finish it \
         with redis-cli --cluster fix"
    );
    Error::new(ErrorKind::Store, message)
}

/// No node serves the slot of a lock, as far as anybody knows.
pub(super) fn no_node_for_slot() -> Error {
    let message = "no node of the cluster serves the slot of this lock; look at CLUSTER INFO";
    Error::new(ErrorKind::Unreachable, message)
}

/// A cluster serves nothing, or not this slot.
pub(super) fn cluster_down(answer: &Value) -> Error {
    let words = match answer {
        Value::ServerError(error) => error.details().unwrap_or_default(),
        _ => "",
    };
    let message = format!(
        "the cluster does not serve this lock at this moment; look at CLUSTER INFO ({})",
        quote(words)
    );
    Error::new(ErrorKind::Unreachable, message)
}

/// Some keys of a lock are in one node and some in another.
pub(super) fn slot_is_moving() -> Error {
    let message = "the slot of this lock is on its way to another node; it works again when its keys \
                   have moved, if nobody moves them use redis-cli --cluster fix";
    Error::new(ErrorKind::Unreachable, message)
}

/// Nodes send whoever asks to each other.
pub(super) fn nodes_disagree() -> Error {
    let message = "the nodes of the cluster do not agree who serves the slot of this lock";
    Error::new(ErrorKind::Unreachable, message)
}

/// An answer that no server of ours gives.
pub(super) fn strange_answer() -> Error {
    let message = "the answer makes no sense; this is not a Redis server, or a proxy changes it";
    Error::new(ErrorKind::Store, message)
}

fn find(code: &str, words: &str) -> Option<&'static Known> {
    TABLE
        .iter()
        .find(|known| (known.code.is_empty() || known.code == code) && words.contains(known.words))
}

fn is_code(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Why nothing that speaks Redis was reached. `words` is what the error says.
fn unreachable(error: &RedisError, words: &str, endpoint: &Endpoint) -> (ErrorKind, &'static str) {
    let tls = matches!(endpoint, Endpoint::Tls { .. });
    let unix = matches!(endpoint, Endpoint::Unix { .. });
    let advice = match io_kind(error) {
        Some(io::ErrorKind::PermissionDenied) if unix => {
            let advice = "this process may not use the socket; look at its owner and mode";
            return (ErrorKind::Unauthorized, advice);
        }
        Some(io::ErrorKind::NotFound) if unix => "there is no socket at this path",
        Some(io::ErrorKind::ConnectionRefused) => {
            "nobody listens there; check the address and that the server runs"
        }
        _ if words.contains("lookup address") => "the name of the host is not known",
        _ if words.contains("invalid peer certificate") => {
            "the server's certificate is not to be trusted; name its authority with ?ca=FILE, and \
             the host as it stands in the certificate"
        }
        _ if words.contains("fatal alert") => {
            "the server refused the TLS handshake; it may want a certificate: ?cert=FILE&key=FILE"
        }
        _ if words.contains("corrupt message") => {
            "the server does not speak TLS there; use redis://, or its TLS port"
        }
        _ if error.is_connection_dropped() && !tls => {
            "the server closed the connection at once; if it wants TLS, use rediss://"
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

/// A server's words on one line, without a full stop.
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
    fn what_a_server_says_is_told_with_advice() {
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
    fn only_what_is_refused_before_it_runs_is_certain() {
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
