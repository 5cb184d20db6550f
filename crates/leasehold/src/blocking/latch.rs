//! Count-down latches for programs without an async runtime.

use std::time::Duration;

use super::Threads;
use crate::{LatchStatus, Result};

/// A count-down latch with a name. See [`crate::Latch`].
///
/// ```
/// use leasehold::blocking::Client;
///
/// let client = Client::connect("memory:")?;
/// let ready = client.latch("import/ready", 2)?;
/// std::thread::scope(|threads| {
///     threads.spawn(|| ready.arrive_as("tables"));
///     threads.spawn(|| ready.arrive_as("indexes"));
///     ready.wait()
/// })?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Latch {
    threads: Threads,
    latch: crate::Latch,
}

impl Latch {
    pub(super) const fn new(threads: Threads, latch: crate::Latch) -> Self {
        Self { threads, latch }
    }

    /// The name of the latch.
    #[must_use]
    pub fn name(&self) -> &str {
        self.latch.name()
    }

    /// How many arrivals open it.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.latch.count()
    }

    /// The same latch, which is kept for another time. See [`crate::Latch::ttl`].
    ///
    /// # Errors
    ///
    /// As [`crate::Latch::ttl`].
    pub fn ttl(&self, ttl: Duration) -> Result<Self> {
        Ok(Self::new(self.threads.clone(), self.latch.ttl(ttl)?))
    }

    /// Arrives under the id of this client. See [`crate::Latch::arrive`].
    ///
    /// # Errors
    ///
    /// As [`crate::Latch::arrive`], and inside an async runtime.
    pub fn arrive(&self) -> Result<LatchStatus> {
        self.threads.wait(self.latch.arrive())
    }

    /// Arrives under an id. See [`crate::Latch::arrive_as`].
    ///
    /// # Errors
    ///
    /// As [`crate::Latch::arrive_as`], and inside an async runtime.
    pub fn arrive_as(&self, id: impl AsRef<str>) -> Result<LatchStatus> {
        self.threads.wait(self.latch.arrive_as(id))
    }

    /// Waits until the latch is open. See [`crate::Latch::wait`].
    ///
    /// # Errors
    ///
    /// As [`crate::Latch::wait`], and inside an async runtime.
    pub fn wait(&self) -> Result<()> {
        self.threads.wait(self.latch.wait())
    }

    /// Waits until the latch is open, no longer than `timeout`. See [`crate::Latch::wait_timeout`].
    ///
    /// # Errors
    ///
    /// As [`crate::Latch::wait_timeout`], and inside an async runtime.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        self.threads.wait(self.latch.wait_timeout(timeout))
    }

    /// How many have arrived at this moment. See [`crate::Latch::status`].
    ///
    /// # Errors
    ///
    /// As [`crate::Latch::status`], and inside an async runtime.
    pub fn status(&self) -> Result<LatchStatus> {
        self.threads.wait(self.latch.status())
    }

    /// Removes the latch, with all arrivals. See [`crate::Latch::reset`].
    ///
    /// # Errors
    ///
    /// As [`crate::Latch::reset`], and inside an async runtime.
    pub fn reset(&self) -> Result<bool> {
        self.threads.wait(self.latch.reset())
    }
}
