//! Refusals of single commands.

use redis::Value;

use super::known::{code_and_words, find};
use super::quote;
use crate::ErrorKind;

/// The refusal of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The words of the server.
    pub(crate) words: String,
    /// Whether a permission or the command is missing, so that a retry cannot help.
    pub(crate) lasting: bool,
    /// Whether a permission is missing, which other users may have.
    pub(crate) denied: bool,
}

/// The error code of a missing permission.
pub(crate) const DENIED: &str = "NOPERM";

/// The refusal in a reply, if it is one.
pub(crate) fn refusal(reply: &Value) -> Option<Refusal> {
    let Value::ServerError(error) = reply else {
        return None;
    };
    let code = error.code();
    let text = format!("{code} {}", error.details().unwrap_or_default());
    Some(Refusal {
        words: quote(&text),
        lasting: is_lasting(&text),
        denied: code == DENIED,
    })
}

/// Whether an error of a command means that a permission or the command is missing.
pub(crate) fn is_lasting(text: &str) -> bool {
    let (code, words) = code_and_words(text);
    find(code, words).is_none_or(|known| known.kind != ErrorKind::Store)
}
