//! Refusals of single commands.

use redis::Value;

use super::known::find;
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
    let (code, words) = (error.code(), error.details().unwrap_or_default());
    let passing = find(code, words).is_some_and(|known| known.kind == ErrorKind::Store);
    Some(Refusal {
        words: quote(&format!("{code} {words}")),
        lasting: !passing,
        denied: code == DENIED,
    })
}
