//! The table of the errors of a server and their meanings.

use crate::error::Retry;
use crate::{Error, ErrorKind};

/// The meaning of an error.
pub(crate) struct Known {
    /// The error code. Empty: any.
    pub(crate) code: &'static str,
    /// A part of the message.
    pub(crate) words: &'static str,
    pub(crate) kind: ErrorKind,
    /// Whether the condition ends by itself, so that a later retry may help.
    pub(crate) retry: Retry,
    pub(crate) advice: &'static str,
}

impl Known {
    pub(crate) fn error(&self, message: String) -> Error {
        Error::new(self.kind, message).with_retry(self.retry)
    }
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
        retry: Retry::Never,
        advice,
    }
}

/// An error whose condition ends by itself.
const fn transient(code: &'static str, words: &'static str, advice: &'static str) -> Known {
    Known {
        retry: Retry::Refused { after: None },
        ..known(code, words, ErrorKind::Store, advice)
    }
}

pub(crate) const NO_PASSWORD: &str = "the server requires a password, and none was given: set ClientBuilder::password, and \
     ClientBuilder::username if the server has users";
pub(crate) const WRONG_PASSWORD: &str =
    "the server does not accept this user and password; check both";
pub(crate) const NO_KEY: &str =
    "the user may not use keys of this namespace; allow them with ~NAMESPACE:*";
pub(crate) const NO_CHANNEL: &str =
    "the user may not use channels of this namespace; allow them with &NAMESPACE:*";
pub(crate) const NO_COMMAND: &str = "the user may not run a command that locks need; leasehold doctor prints the line that allows all of them";
pub(crate) const CLUSTER: &str = "this is a node of a cluster; use redis+cluster:// with its host";

/// The error of the scripts for a master that is not admitted.
pub(crate) const NOT_ADMITTED: &str = "NOTADMITTED";

/// Errors that a server returns *before* it runs anything. The first match counts.
#[rustfmt::skip]
const TABLE: &[Known] = &[
    known("NOAUTH", "", ErrorKind::NoPassword, NO_PASSWORD),
    known("WRONGPASS", "", ErrorKind::WrongPassword, WRONG_PASSWORD),
    known("ERR", "invalid password", ErrorKind::WrongPassword, WRONG_PASSWORD),
    known("", " channel", ErrorKind::Unauthorized, NO_CHANNEL),
    known("", "permissions to access", ErrorKind::Unauthorized, NO_KEY),
    known("", "script can't access", ErrorKind::Unauthorized, NO_KEY),
    known("", "script can't run", ErrorKind::Unauthorized, NO_COMMAND),
    known("", "no permissions to", ErrorKind::Unauthorized, NO_COMMAND),
    known("NOPERM", "", ErrorKind::Unauthorized, NO_COMMAND),
    known("DENIED", "", ErrorKind::Unauthorized,
        "the server accepts no clients from other machines; set a password there, or its bind address"),
    known("READONLY", "", ErrorKind::Store,
        "this server is a read-only replica; connect to its master"),
    transient("", NOT_ADMITTED,
        "may have forgotten locks (new, restarted or replicated)"),
    transient("LOADING", "",
        "the server is still loading its data; try again when it is done"),
    known("OOM", "", ErrorKind::Store,
        "the server has no memory left; raise its maxmemory or free some"),
    known("MISCONF", "", ErrorKind::Store,
        "the server cannot save its data and refuses writes; check its disk and its log"),
    transient("NOREPLICAS", "",
        "the server has fewer replicas than its min-replicas-to-write requires; fix them"),
    transient("MASTERDOWN", "",
        "this replica has lost its master; connect to the master"),
    transient("BUSY", "",
        "the server is busy with a slow script; wait, or end it with SCRIPT KILL"),
    transient("ERR", "max number of clients",
        "the server takes no more connections; raise its maxclients or close some"),
    known("WRONGTYPE", "", ErrorKind::Store,
        "the key is not a lock of this version; choose another namespace, or delete that key"),
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

pub(crate) fn find(code: &str, words: &str) -> Option<&'static Known> {
    TABLE
        .iter()
        .find(|known| (known.code.is_empty() || known.code == code) && words.contains(known.words))
}

/// The code of an error, which may be absent, and its words.
pub(crate) fn code_and_words(text: &str) -> (&str, &str) {
    let is_code = |(code, _): &(&str, &str)| code.bytes().all(|byte| byte.is_ascii_uppercase());
    text.split_once(' ').filter(is_code).unwrap_or(("", text))
}
