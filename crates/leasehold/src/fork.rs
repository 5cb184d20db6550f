//! The process that a client belongs to.
//!
//! A `fork` copies a client with its leases and its connections. The parent continues to use them. The child
//! has none of the tasks and shares the connections, so its copy of the client does nothing.

use crate::{Error, ErrorKind, Result};

/// The process in which a value was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn current() -> Self {
        Self(std::process::id())
    }

    /// Whether this process is the one, and not a fork of it. Costs a system call.
    pub(crate) fn is_current(self) -> bool {
        self.0 == std::process::id()
    }

    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] in a fork of it.
    pub(crate) fn check(self) -> Result<()> {
        if self.is_current() {
            return Ok(());
        }
        let message = format!(
            "the client belongs to process {}, of which this one is a fork; connect anew here",
            self.0
        );
        Err(Error::new(ErrorKind::Unsupported, message))
    }
}
