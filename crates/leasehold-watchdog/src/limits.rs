//! Limits on clients, leases and open files.

/// Limits of a node. A client or lease beyond them is refused; its process still renews its leases itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of clients. 10,000 by default.
    pub clients: usize,
    /// The maximum number of leases of one client. 100,000 by default.
    pub leases_per_client: usize,
    /// The maximum number of leases of all clients. 500,000 by default. Each takes about 250 bytes and its name.
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
    /// The maximum number of connections without a client.
    const GUESTS: usize = 128;

    /// The number of files that are reserved for the stores, for HTTP and for the node itself.
    const FILES_RESERVED: usize = 128;

    /// The number of files of a connection: its socket, the pidfd of its peer, and a received descriptor that is
    /// not handled yet.
    pub(crate) const FILES_PER_CONNECTION: usize = 3;

    /// The maximum number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.clients.saturating_add(Self::GUESTS)
    }

    /// The maximum number of files of connections and watched processes. `open_max` is the limit of this process.
    pub(crate) fn files(open_max: Option<u64>) -> usize {
        let open_max = open_max.and_then(|open_max| usize::try_from(open_max).ok());
        let files = open_max.map(|open_max| open_max.saturating_sub(Self::FILES_RESERVED));
        files.map_or(usize::MAX, |files| files.max(Self::FILES_PER_CONNECTION))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_leave_files_for_the_stores() {
        assert_eq!(Limits::files(None), usize::MAX);
        assert_eq!(Limits::files(Some(1_024)), 896);
        // One can connect at least.
        assert_eq!(Limits::files(Some(64)), 3);
    }
}
