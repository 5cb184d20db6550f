//! Passwords and access tokens.

use std::fmt;

/// A text that is never displayed, such as a password. Its `Debug` is `...`.
///
/// The time of a comparison depends only on the lengths.
///
/// ```
/// use leasehold::Secret;
///
/// let password = Secret::from("swordfish");
/// assert_eq!(format!("{password:?}"), "...");
/// assert_eq!(password.expose(), "swordfish");
/// ```
#[derive(Clone, Eq)]
#[cfg_attr(feature = "watchdog", derive(serde::Deserialize, serde::Serialize))]
pub struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.0.as_bytes(), other.0.as_bytes());
        let differ = a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b));
        a.len() == b.len() && differ == 0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("...")
    }
}
