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

    /// How many files a connection takes: its socket, the process at its other end, and a descriptor that
    /// was sent along and not taken yet.
    pub(crate) const FILES_PER_CONNECTION: usize = 3;

    /// How many may be connected.
    pub(crate) fn connections(&self) -> usize {
        self.clients.saturating_add(Self::GUESTS)
    }

    /// How many files connections and watched processes may take, where this process may have so many open.
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
