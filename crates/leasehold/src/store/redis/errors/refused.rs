//! What a server refuses, by its words.

use super::known::{NO_CHANNEL, NO_KEY, code_and_words, find};
use crate::ErrorKind;

/// What a server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The command, for this user or altogether.
    Command,
    /// The key, for this user.
    Keys,
    /// The channel, for this user.
    Channels,
    /// Everything, at this moment.
    Moment,
}

/// The words of a server for a command that it does not have.
const UNKNOWN: [&str; 3] = [
    "unknown command",
    "unknown redis command",
    "unknown subcommand",
];

/// What an error refuses, by its words. `None` if it has another cause, such as the type of a value: then the
/// command was allowed.
pub(crate) fn refused_words(text: &str) -> Option<Refused> {
    let (code, words) = code_and_words(text);
    // The words differ in scripts.
    let lower = words.to_lowercase();
    if UNKNOWN.iter().any(|unknown| lower.contains(unknown)) {
        return Some(Refused::Command);
    }
    let known = find(code, words)?;
    match (known.kind, known.advice) {
        (_, NO_KEY) => Some(Refused::Keys),
        (_, NO_CHANNEL) => Some(Refused::Channels),
        (ErrorKind::Unauthorized | ErrorKind::NoPassword | ErrorKind::WrongPassword, _) => {
            Some(Refused::Command)
        }
        (ErrorKind::Store, _) if code != "WRONGTYPE" => Some(Refused::Moment),
        _ => None,
    }
}
