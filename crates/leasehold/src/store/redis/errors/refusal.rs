//! What a server does not do, and why.

use redis::Value;

use super::known::{NO_CHANNEL, NO_KEY, find, is_code};
use super::quote;
use crate::ErrorKind;

/// That the server does not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Refusal {
    /// What it says.
    pub(in crate::store::redis) words: String,
    /// Whether it is for want of a right or of the command, not of the moment.
    pub(in crate::store::redis) lasting: bool,
    /// Whether it is for want of a right: others may have it.
    pub(in crate::store::redis) denied: bool,
}

/// The code of what a user lacks the right for.
pub(in crate::store::redis) const DENIED: &str = "NOPERM";

/// The refusal that an answer is, if it is one.
pub(in crate::store::redis) fn refusal(answer: &Value) -> Option<Refusal> {
    let Value::ServerError(error) = answer else {
        return None;
    };
    let (code, words) = (error.code(), error.details().unwrap_or_default());
    let passing = find(code, words).is_some_and(|known| known.kind == ErrorKind::Store);
    Some(Refusal {
        words: quote(&format!("{code} {words}")),
        lasting: !passing,
        denied: code == DENIED,
    })
}

/// What a server does not let us do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Refused {
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
pub(in crate::store::redis) fn refused_words(text: &str) -> Option<Refused> {
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
