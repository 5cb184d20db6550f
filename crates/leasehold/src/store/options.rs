//! Options of opening a store.

use std::time::Duration;

use crate::Secret;

/// Options of opening a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The timeout of a connection attempt.
    pub connect_timeout: Duration,
    /// The timeout of a reply.
    pub response_timeout: Duration,
    /// A password that is not in the URL. It replaces the one in the URL.
    pub password: Option<Secret>,
    /// The password of the sentinels, if they require one. That of the servers is separate.
    pub sentinel_password: Option<Secret>,
}

impl OpenOptions {
    /// Sets the timeout of a connection attempt: 5 s by default.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the timeout of a reply: 2 s by default.
    #[must_use]
    pub const fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Sets a password that is not in the URL. It replaces the one in the URL.
    #[must_use]
    pub fn password(mut self, password: impl Into<Secret>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Sets the password of the sentinels. That of the servers is separate.
    #[must_use]
    pub fn sentinel_password(mut self, password: impl Into<Secret>) -> Self {
        self.sentinel_password = Some(password.into());
        self
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(2),
            password: None,
            sentinel_password: None,
        }
    }
}
