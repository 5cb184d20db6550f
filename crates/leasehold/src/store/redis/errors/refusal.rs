//! Refusals of single commands.

use redis::Value;

use super::known::find;
use super::quote;
use crate::ErrorKind;

/// The refusal of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Refusal {
    /// The words of the server.
    pub(in crate::store::redis) words: String,
    /// Whether a permission or the command is missing, so that a retry cannot help.
    pub(in crate::store::redis) lasting: bool,
    /// Whether a permission is missing, which other users may have.
    pub(in crate::store::redis) denied: bool,
}

/// The error code of a missing permission.
pub(in crate::store::redis) const DENIED: &str = "NOPERM";

/// The refusal in a reply, if it is one.
pub(in crate::store::redis) fn refusal(reply: &Value) -> Option<Refusal> {
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
