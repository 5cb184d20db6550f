//! Facts about an etcd cluster.

use std::time::Duration;

/// The facts about an etcd cluster.
#[derive(Clone, Debug)]
pub(crate) struct EtcdFacts {
    /// Its URL without a password.
    pub(crate) name: String,
    /// The members in the URL.
    pub(crate) statuses: Vec<MemberFacts>,
    /// The number of members that vote. `None`: it cannot be read.
    pub(crate) voters: Option<usize>,
    /// How long a session of a silent client lasts. `None`: no lease is granted.
    pub(crate) session: Option<Duration>,
    /// Whether the URL names a user.
    pub(crate) has_user: bool,
    pub(crate) has_tls: bool,
    /// Why the keys cannot be read.
    pub(crate) reading: Option<String>,
    /// The facts that are missing, each with the reason.
    pub(crate) missing: Vec<String>,
}

/// A member, as it reports itself.
#[derive(Clone, Debug)]
pub(crate) struct MemberFacts {
    /// Host and port.
    pub(crate) address: String,
    pub(crate) version: Option<String>,
    /// The size of its database in bytes.
    pub(crate) size: u64,
    /// The size beyond which it refuses writes, which only new versions report.
    pub(crate) quota: Option<u64>,
    /// What it reports about itself, such as `NOSPACE`.
    pub(crate) alarms: Vec<String>,
    /// Why it does not reply, or its reply is refused.
    pub(crate) error: Option<String>,
    /// Whether it belongs to another cluster than the first member that replied.
    pub(crate) is_foreign: bool,
}
