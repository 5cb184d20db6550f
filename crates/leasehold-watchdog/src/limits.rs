//! How much a node takes on.

/// How much a node takes on. What is beyond is refused, and whoever is refused renews its leases itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many clients.
    pub clients: usize,
    /// How many leases of one client.
    pub leases_per_client: usize,
    /// How many leases in all. Each takes about 250 bytes, and its name.
    pub leases: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 10_000,
            leases_per_client: 100_000,
            leases: 500_000,
        }
    }
}

impl Limits {
    /// How many may be connected who are no clients, or not yet.
    const GUESTS: usize = 128;

    /// How many files are for the stores, for what is asked over HTTP, and for the node itself.
    const FILES_RESERVED: usize = 128;

    /// How many files a connection takes: its socket, and the process at its other end.
    const FILES_EACH: usize = 2;

    /// How many may be connected where this process may have so many files open.
    pub(crate) fn connections(&self, files: Option<u64>) -> usize {
        let wanted = self.clients.saturating_add(Self::GUESTS);
        let files = files.and_then(|files| usize::try_from(files).ok());
        let possible =
            files.map(|files| files.saturating_sub(Self::FILES_RESERVED) / Self::FILES_EACH);
        possible.map_or(wanted, |possible| possible.clamp(1, wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_stores() {
        let limits = Limits::default();
        assert_eq!(limits.connections(None), 10_128);
        assert_eq!(limits.connections(Some(1_048_576)), 10_128);
        assert_eq!(limits.connections(Some(1_024)), 448);
        assert_eq!(limits.connections(Some(64)), 1);
    }
}
