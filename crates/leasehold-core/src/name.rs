//! Names of locks, namespaces and tenants.

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;

use crate::id::ClientId;

/// The longest name in bytes.
///
/// Each request and each listing contains names; a longer one is nearly always a document that should have been
/// hashed.
pub const NAME_BYTES_MAX: usize = 512;

/// The longest namespace or tenant in bytes.
pub const SCOPE_BYTES_MAX: usize = 64;

/// The largest number of buckets: the slots of a Redis Cluster.
pub const BUCKETS_MAX: u16 = 16_384;

/// The name of one lock, as its user writes it, or that of the [record of a client](Name::of_client).
///
/// 1 to [`NAME_BYTES_MAX`] bytes of UTF-8 without control characters, without a space at the start or end, and without
/// `{` and `}`: braces would move a key to another slot of a Redis Cluster.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// Parses a name.
    ///
    /// # Errors
    ///
    /// [`NameError`] if it is invalid.
    pub fn parse(name: &str) -> Result<Self, NameError> {
        check_text(name, NAME_BYTES_MAX)?;
        match name.chars().find(|c| matches!(c, '{' | '}')) {
            Some(c) => Err(NameError::Forbidden(c)),
            None => Ok(Self(name.into())),
        }
    }

    /// The name of the record that describes a client. No user can write it, since it has braces.
    #[must_use]
    pub fn of_client(client: ClientId) -> Self {
        Self(format!("{{{client}}}").into())
    }

    /// The client whose record it names. `None`: it is the name of a lock.
    #[must_use]
    pub fn client(&self) -> Option<ClientId> {
        let client = self.0.strip_prefix('{')?.strip_suffix('}')?;
        client.parse().ok()
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

/// A tenant, or a namespace without its buckets: a part of a key that separates users of one store.
///
/// 1 to [`SCOPE_BYTES_MAX`] of the characters `A-Z a-z 0-9 . _ -`, so that no scope can end inside
/// another and so that it fits into a key pattern of an access rule.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopeName(Arc<str>);

impl ScopeName {
    /// Parses a scope.
    ///
    /// # Errors
    ///
    /// [`NameError`] if it is invalid.
    pub fn parse(scope: &str) -> Result<Self, NameError> {
        if scope.is_empty() {
            return Err(NameError::Empty);
        }
        check_length(scope)?;
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

/// A namespace: a scope, which may be followed by `@` and a number of buckets, at most [`SCOPE_BYTES_MAX`] bytes in
/// all.
///
/// The names of `jobs@64` are in 64 buckets, and those of a bucket share a slot of a Redis Cluster. The number is a part
/// of the namespace, so that clients with different numbers are in different namespaces: no lock has a second key.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace {
    text: Arc<str>,
    buckets: Option<NonZeroU16>,
}

impl Namespace {
    /// Parses a namespace.
    ///
    /// # Errors
    ///
    /// [`NameError`] if it is invalid.
    pub fn parse(namespace: &str) -> Result<Self, NameError> {
        let Some((scope, number)) = namespace.split_once('@') else {
            let ScopeName(text) = ScopeName::parse(namespace)?;
            let buckets = None;
            return Ok(Self { text, buckets });
        };
        check_length(namespace)?;
        ScopeName::parse(scope)?;
        let buckets: Option<NonZeroU16> = number.parse().ok();
        // A second spelling of a number would be another namespace.
        let buckets = buckets
            .filter(|buckets| buckets.get() <= BUCKETS_MAX && buckets.to_string() == number)
            .ok_or(NameError::Buckets)?;
        Ok(Self {
            text: namespace.into(),
            buckets: Some(buckets),
        })
    }

    /// The namespace as text, with the number of its buckets.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The number of its buckets. `None`: each name has a slot of its own.
    #[must_use]
    pub fn buckets(&self) -> Option<NonZeroU16> {
        self.buckets
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, f)
    }
}

/// Checks a text that identifies something: 1 to `bytes_max` bytes of UTF-8 without control characters, and without a
/// space at the start or end, which nobody sees.
pub(crate) fn check_text(text: &str, bytes_max: usize) -> Result<(), NameError> {
    let bytes = text.len();
    match text.chars().find(|c| c.is_control()) {
        _ if text.is_empty() => Err(NameError::Empty),
        _ if bytes > bytes_max => Err(NameError::TooLong { bytes, bytes_max }),
        Some(c) => Err(NameError::Forbidden(c)),
        None if text.starts_with(char::is_whitespace) => Err(NameError::LeadingSpace),
        None if text.ends_with(char::is_whitespace) => Err(NameError::TrailingSpace),
        None => Ok(()),
    }
}

/// Checks the length of a namespace or a tenant.
fn check_length(scope: &str) -> Result<(), NameError> {
    let (bytes, bytes_max) = (scope.len(), SCOPE_BYTES_MAX);
    if bytes > bytes_max {
        return Err(NameError::TooLong { bytes, bytes_max });
    }
    Ok(())
}

/// Why a text cannot be a name, namespace, tenant, completion key or id of an arrival.
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
    /// It begins with a space.
    LeadingSpace,
    /// It ends with a space.
    TrailingSpace,
    /// The text behind its `@` is not a number of buckets.
    Buckets,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty"),
            Self::TooLong { bytes, bytes_max } => {
                write!(f, "it has {bytes} bytes, at most {bytes_max} are allowed")
            }
            Self::Forbidden(c) => write!(f, "the character {c:?} is not allowed in it"),
            Self::LeadingSpace => f.write_str("it begins with a space; remove it"),
            Self::TrailingSpace => f.write_str("it ends with a space; remove it"),
            Self::Buckets => {
                write!(
                    f,
                    "behind the '@' it needs a number of buckets from 1 to {BUCKETS_MAX}"
                )
            }
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
        assert_eq!(Name::parse("a "), Err(NameError::TrailingSpace));
        assert_eq!(Name::parse("\u{a0}a"), Err(NameError::LeadingSpace));
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

    #[test]
    fn a_namespace_names_its_buckets_in_one_way() {
        let buckets = |text| Namespace::parse(text).map(|it| it.buckets().map(NonZeroU16::get));
        assert_eq!(buckets("jobs"), Ok(None));
        assert_eq!(buckets("jobs@1"), Ok(Some(1)));
        assert_eq!(buckets("team-a.prod_1@16384"), Ok(Some(16_384)));
        for text in [
            "jobs@",
            "jobs@0",
            "jobs@064",
            "jobs@+64",
            "jobs@ 64",
            "jobs@64 ",
            "jobs@-1",
            "jobs@16385",
            "jobs@99999",
            "jobs@6@4",
            "jobs@x",
            "jobs@٦٤",
        ] {
            assert_eq!(buckets(text), Err(NameError::Buckets), "{text}");
        }
        assert_eq!(buckets("@64"), Err(NameError::Empty));
        assert_eq!(buckets("a:b@64"), Err(NameError::Forbidden(':')));
        assert_eq!(buckets("a{@64"), Err(NameError::Forbidden('{')));
        let longest = format!("{}@64", "n".repeat(SCOPE_BYTES_MAX - 3));
        assert_eq!(buckets(&longest), Ok(Some(64)));
        let (bytes, bytes_max) = (SCOPE_BYTES_MAX + 1, SCOPE_BYTES_MAX);
        let too_long = NameError::TooLong { bytes, bytes_max };
        assert_eq!(buckets(&format!("n{longest}")), Err(too_long));
        // A tenant has none.
        assert_eq!(ScopeName::parse("a@64"), Err(NameError::Forbidden('@')));
    }
}
