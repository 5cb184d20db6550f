//! The blocking [`Client`].

use std::fmt;
use std::time::Duration;

use super::Mutex;
use super::runtime::Threads;
use crate::{Durability, LockInfo, Result, Shutdown};

/// A process's connection to a store. See [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Client {
    threads: Threads,
    client: crate::Client,
}

/// Settings of a [`Client`], the same as [`crate::ClientBuilder`]'s.
#[derive(Debug, Default)]
#[must_use = "nothing happens until connect"]
pub struct ClientBuilder(crate::ClientBuilder);

impl Client {
    /// Connects with the default settings. See [`crate::Client::connect`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::connect`], and inside an async runtime.
    pub fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url)
    }

    /// A builder for a client with other settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The lock with this name. See [`crate::Client::mutex`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::mutex`].
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        let mutex = self.client.mutex(name)?;
        Ok(Mutex::new(self.threads.clone(), mutex))
    }

    /// The locks that are held. See [`crate::Client::locks`].
    ///
    /// # Errors
    ///
    /// As [`crate::Client::locks`].
    pub fn locks(&self) -> Result<Vec<LockInfo>> {
        self.threads.wait(self.client.locks())
    }

    /// The store, as its URL without a password.
    #[must_use]
    pub fn store(&self) -> &dyn fmt::Display {
        self.client.store()
    }

    /// Releases every lease that is still held. See [`crate::Client::shutdown`].
    ///
    /// When the last client, mutex or guard is dropped, it waits for up to two seconds until the store has
    /// confirmed all releases. A program that ends by [`std::process::exit`] does not.
    ///
    /// # Errors
    ///
    /// As [`crate::Client::shutdown`].
    pub fn shutdown(&self, timeout: Duration) -> Result<Shutdown> {
        self.threads.wait(self.client.shutdown(timeout))
    }
}

impl ClientBuilder {
    /// See [`crate::ClientBuilder::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// See [`crate::ClientBuilder::renew_every`].
    pub fn renew_every(self, interval: Duration) -> Self {
        Self(self.0.renew_every(interval))
    }

    /// See [`crate::ClientBuilder::margin`].
    pub fn margin(self, margin: Duration) -> Self {
        Self(self.0.margin(margin))
    }

    /// See [`crate::ClientBuilder::max_hold`].
    pub fn max_hold(self, max_hold: Duration) -> Self {
        Self(self.0.max_hold(max_hold))
    }

    /// See [`crate::ClientBuilder::namespace`].
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self(self.0.namespace(namespace))
    }

    /// See [`crate::ClientBuilder::tenant`].
    pub fn tenant(self, tenant: impl Into<String>) -> Self {
        Self(self.0.tenant(tenant))
    }

    /// See [`crate::ClientBuilder::label`].
    pub fn label(self, label: impl Into<String>) -> Self {
        Self(self.0.label(label))
    }

    /// See [`crate::ClientBuilder::program`].
    pub fn program(self, program: impl Into<String>) -> Self {
        Self(self.0.program(program))
    }

    /// See [`crate::ClientBuilder::password`].
    pub fn password(self, password: impl Into<String>) -> Self {
        Self(self.0.password(password))
    }

    /// See [`crate::ClientBuilder::durability`].
    pub fn durability(self, durability: Durability) -> Self {
        Self(self.0.durability(durability))
    }

    /// See [`crate::ClientBuilder::sentinel_password`].
    pub fn sentinel_password(self, password: impl Into<String>) -> Self {
        Self(self.0.sentinel_password(password))
    }

    /// See [`crate::ClientBuilder::watchdog`].
    #[cfg(feature = "watchdog")]
    pub fn watchdog(self, watchdog: crate::watchdog::Watchdog) -> Self {
        Self(self.0.watchdog(watchdog))
    }

    /// See [`crate::ClientBuilder::connect_timeout`].
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self(self.0.connect_timeout(timeout))
    }

    /// See [`crate::ClientBuilder::response_timeout`].
    pub fn response_timeout(self, timeout: Duration) -> Self {
        Self(self.0.response_timeout(timeout))
    }

    /// Opens the store that the URL names. See [`crate::ClientBuilder::connect`].
    ///
    /// # Errors
    ///
    /// As [`crate::ClientBuilder::connect`], and inside an async runtime.
    pub fn connect(self, url: &str) -> Result<Client> {
        let threads = Threads::start()?;
        let client = threads.wait(self.0.connect(url))?;
        threads.serve(&client);
        Ok(Client { threads, client })
    }
}
