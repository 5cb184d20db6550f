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

    /// How many may be connected.
    pub(crate) const fn connections(&self) -> usize {
        self.clients.saturating_add(Self::GUESTS)
    }
}
