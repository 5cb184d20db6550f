//! The blocking [`Client`].

use std::fmt;
use std::time::Duration;

use super::Mutex;
use super::runtime::Threads;
use crate::{ClientBuilder, LockInfo, Result, Shutdown};

/// A process's connection to a store. See [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Client {
    threads: Threads,
    client: crate::Client,
}

impl Client {
    /// Connects with the default settings. See [`crate::Client::connect`]. For other settings see
    /// [`ClientBuilder::connect_blocking`].
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect_blocking`].
    pub fn connect(url: &str) -> Result<Self> {
        ClientBuilder::default().connect_blocking(url)
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
    /// Opens the store that the URL names, for a program without an async runtime. See [`blocking`](super).
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`], [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) inside an async
    /// runtime, and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if no threads can be started.
    pub fn connect_blocking(self, url: &str) -> Result<Client> {
        let threads = Threads::start()?;
        let client = threads.wait(self.connect(url))?;
        threads.serve(&client);
        Ok(Client { threads, client })
    }
}
