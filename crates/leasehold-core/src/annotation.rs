//! Annotations: texts that the holder of a lock stores beside its record.
//!
//! The value of a leader and the completion records of jobs are annotations. Only the holder writes one, so
//! whatever it says was true under its lease. It stays when the lease ends, until it expires: what it means then is
//! decided by the reader.

use std::fmt;
use std::sync::Arc;

use crate::id::LeaseId;
use crate::name::{self, NameError};
use crate::token::Token;

/// The longest text in bytes: a value of 4 KiB and its number.
pub const ANNOTATION_BYTES_MAX: usize = 4096 + 64;

/// The longest key of a completion in bytes.
pub const COMPLETION_KEY_BYTES_MAX: usize = 256;

/// A text that a holder has stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The lease that held the lock when it was written.
    pub lease: LeaseId,
    /// The first fencing token of that lease.
    pub token: Token,
    /// The text.
    pub text: Arc<str>,
}

/// The key of a run that is to be completed once, such as a version.
///
/// 1 to [`COMPLETION_KEY_BYTES_MAX`] bytes of UTF-8 without control characters, and without a space at the start or end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CompletionKey(Arc<str>);

impl CompletionKey {
    /// Parses a key.
    ///
    /// # Errors
    ///
    /// [`NameError`] if it is invalid.
    pub fn parse(key: &str) -> Result<Self, NameError> {
        name::check_text(key, COMPLETION_KEY_BYTES_MAX)?;
        Ok(Self(key.into()))
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CompletionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_key_has_up_to_256_bytes_without_control_characters() {
        for key in ["v1.2.3", "a b/c:*?[x]{}", "昼 夜 🔒", &"n".repeat(256)] {
            assert_eq!(CompletionKey::parse(key).unwrap().as_str(), key);
        }
        let refused = |key: &str| CompletionKey::parse(key).unwrap_err();
        assert_eq!(refused(""), NameError::Empty);
        assert_eq!(refused("a\nb"), NameError::Forbidden('\n'));
        assert_eq!(refused(" a"), NameError::LeadingSpace);
        let (bytes, bytes_max) = (258, COMPLETION_KEY_BYTES_MAX);
        let too_long = NameError::TooLong { bytes, bytes_max };
        assert_eq!(refused(&"ä".repeat(129)), too_long);
    }
}
