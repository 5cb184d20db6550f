//! The error of a token that is too old.

use std::error::Error as StdError;
use std::fmt;

use crate::Token;

/// A later holder has used the resource: nothing was written, and the holder of this token must stop.
///
/// [`Gate`](super::Gate) has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stale {
    /// The refused token.
    pub token: Token,
    /// The largest token admitted before.
    pub newest: Token,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token, newest } = self;
        write!(
            f,
            "the fencing token {token} is stale: a later holder with {newest} was here"
        )
    }
}

impl StdError for Stale {}
