//! Options of opening a store.

use std::sync::Arc;
use std::time::Duration;

use crate::Secret;
use crate::clock::Clock;

/// Options of opening a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The timeout of a connection attempt.
    pub connect_timeout: Duration,
    /// The timeout of a reply.
    pub response_timeout: Duration,
    /// A user that is not in the URL. It replaces the one in the URL.
    pub username: Option<String>,
    /// A password that is not in the URL. It replaces the one in the URL.
    pub password: Option<Secret>,
    /// The password of the sentinels, if they require one. That of the servers is separate.
    pub sentinel_password: Option<Secret>,
    /// The trusted authorities of a store over TLS, in PEM. They replace the file in the URL.
    pub tls_ca: Option<String>,
    /// The certificate of this client and its private key, in PEM. They replace the files in the URL.
    pub tls_identity: Option<(String, Secret)>,
    /// The clock of this process in a store of documents, for tests. `None`: that of the machine.
    pub clock: Option<Arc<dyn Clock>>,
}

impl OpenOptions {
    /// Whether anything is given that only a connection can use.
    pub(crate) fn has_credentials(&self) -> bool {
        self.username.is_some()
            || self.password.is_some()
            || self.sentinel_password.is_some()
            || self.tls_ca.is_some()
            || self.tls_identity.is_some()
    }

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

    /// Sets a user that is not in the URL. It replaces the one in the URL.
    #[must_use]
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.username = Some(username.into());
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

    /// Sets the trusted authorities of a store over TLS, in PEM. They replace the file in the URL.
    #[must_use]
    pub fn tls_ca(mut self, pem: impl Into<String>) -> Self {
        self.tls_ca = Some(pem.into());
        self
    }

    /// Sets the certificate of this client and its private key, in PEM. They replace the files in the URL.
    #[must_use]
    pub fn tls_identity(mut self, certificate: impl Into<String>, key: impl Into<Secret>) -> Self {
        self.tls_identity = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the clock of this process in a store of documents. The wall clock runs as it does.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(2),
            username: None,
            password: None,
            sentinel_password: None,
            tls_ca: None,
            tls_identity: None,
            clock: None,
        }
    }
}
