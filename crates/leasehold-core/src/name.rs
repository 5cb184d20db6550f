//! Names of locks, namespaces and tenants.

use std::fmt;
use std::sync::Arc;

/// The longest name in bytes.
///
/// Each request and each listing contains names; a longer one is nearly always a document that should have been
/// hashed.
pub const NAME_BYTES_MAX: usize = 512;

/// The longest namespace or tenant in bytes.
pub const SCOPE_BYTES_MAX: usize = 64;

/// The name of one lock, as its user writes it.
///
/// 1 to [`NAME_BYTES_MAX`] bytes of UTF-8 without control characters and without `{` and `}`:
/// braces would move a key to another slot of a Redis Cluster.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// Parses a name.
    ///
    /// # Errors
    ///
    /// [`NameError`] if it is invalid.
    pub fn parse(name: &str) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong {
                bytes: name.len(),
                bytes_max: NAME_BYTES_MAX,
            });
        }
        match name
            .chars()
            .find(|c| c.is_control() || matches!(c, '{' | '}'))
        {
            Some(c) => Err(NameError::Forbidden(c)),
            None => Ok(Self(name.into())),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// A namespace or a tenant: a part of a key that separates users of one store.
///
/// 1 to [`SCOPE_BYTES_MAX`] of the characters `A-Z a-z 0-9 . _ -`, so that no scope can end inside
/// another and so that it fits into a key pattern of an access rule.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopeName(Arc<str>);

impl ScopeName {
    /// Parses a namespace or tenant.
    ///
    /// # Errors
    ///
    /// [`NameError`] if it is invalid.
    pub fn parse(scope: &str) -> Result<Self, NameError> {
        if scope.is_empty() {
            return Err(NameError::Empty);
        }
        if scope.len() > SCOPE_BYTES_MAX {
            return Err(NameError::TooLong {
                bytes: scope.len(),
                bytes_max: SCOPE_BYTES_MAX,
            });
        }
        match scope
            .chars()
            .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')))
        {
            Some(c) => Err(NameError::Forbidden(c)),
            None => Ok(Self(scope.into())),
        }
    }

    /// The scope as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ScopeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ScopeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// Why a text cannot be a name, namespace or tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// It is empty.
    Empty,
    /// It has more bytes than allowed.
    TooLong {
        /// Its length.
        bytes: usize,
        /// The length allowed.
        bytes_max: usize,
    },
    /// It contains a character that is not allowed there.
    Forbidden(char),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty"),
            Self::TooLong { bytes, bytes_max } => {
                write!(f, "it has {bytes} bytes, at most {bytes_max} are allowed")
            }
            Self::Forbidden(c) => write!(f, "the character {c:?} is not allowed in it"),
        }
    }
}

impl std::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_once() {
        assert!(Name::parse("orders/42").is_ok());
        assert!(Name::parse("Aufträge/昼 夜").is_ok());
        assert!(Name::parse(&"n".repeat(512)).is_ok());
        assert_eq!(Name::parse(""), Err(NameError::Empty));
        assert_eq!(
            Name::parse(&"n".repeat(513)),
            Err(NameError::TooLong {
                bytes: 513,
                bytes_max: 512
            })
        );
        for (name, c) in [("a{b", '{'), ("a}b", '}'), ("a\nb", '\n'), ("\0", '\0')] {
            assert_eq!(Name::parse(name), Err(NameError::Forbidden(c)));
        }
    }

    #[test]
    fn scopes_hold_no_separator() {
        assert!(ScopeName::parse("team-a.prod_1").is_ok());
        assert_eq!(ScopeName::parse("a:b"), Err(NameError::Forbidden(':')));
        assert_eq!(ScopeName::parse("ä"), Err(NameError::Forbidden('ä')));
        assert_eq!(ScopeName::parse(""), Err(NameError::Empty));
    }
}
