//! Facts about a ZooKeeper ensemble.

use std::time::Duration;

/// The facts about a ZooKeeper ensemble.
#[derive(Clone, Debug)]
pub(crate) struct ZookeeperFacts {
    /// Its URL without a password.
    pub(crate) name: String,
    /// The number of servers in the URL.
    pub(crate) named: usize,
    /// The number of servers that vote: 0 for one that stands alone. `None`: it cannot be read.
    pub(crate) voters: Option<usize>,
    /// How long a session of a silent client lasts.
    pub(crate) session: Duration,
    /// Whether the URL names a user.
    pub(crate) has_user: bool,
    pub(crate) has_tls: bool,
}
