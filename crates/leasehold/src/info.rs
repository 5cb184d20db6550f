//! What a person wants to know of a lock that is held.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{LeaseId, Token};

use crate::store::{About, Entry};

/// A lock that is held, as the store knew it when it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The name of the lock.
    pub name: String,
    /// The lease that holds it.
    pub lease: LeaseId,
    /// How many times its owner has entered it.
    pub count: u32,
    /// The last fencing token given out. `None` if the store has lost the counter.
    pub token: Option<Token>,
    /// How long it is held unless it is renewed or released.
    pub time_left: Duration,
    /// When it was taken, by the store's clock: read off the token, which starts at that time.
    pub since: Option<SystemTime>,
    /// Who holds it. `None` if the client did not say, or has been silent for too long.
    pub client: Option<ClientInfo>,
}

/// Who a client is, by its own account.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientInfo {
    /// The name of its machine.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// The program it runs.
    pub program: String,
    /// A text of the user's choice; may be empty.
    pub label: String,
    /// When it connected, by its own clock.
    pub since: SystemTime,
}

impl LockInfo {
    /// What is known of a lease that nobody had looked at before it was gone.
    pub(crate) fn of(name: &str, lease: LeaseId) -> Self {
        Self {
            name: name.to_owned(),
            lease,
            count: 1,
            token: None,
            time_left: Duration::ZERO,
            since: None,
            client: None,
        }
    }
}

impl From<Entry> for LockInfo {
    fn from(entry: Entry) -> Self {
        Self {
            name: entry.key.name.as_str().to_owned(),
            lease: entry.lease,
            count: entry.count,
            token: entry.token,
            time_left: entry.left,
            since: entry
                .token
                .and_then(|token| UNIX_EPOCH.checked_add(Duration::from_micros(token.get()))),
            client: entry.client.map(ClientInfo::from),
        }
    }
}

impl From<About> for ClientInfo {
    fn from(about: About) -> Self {
        Self {
            host: about.host,
            pid: about.pid,
            program: about.program,
            label: about.label,
            since: UNIX_EPOCH
                .checked_add(Duration::from_millis(about.since_ms))
                .unwrap_or(UNIX_EPOCH),
        }
    }
}
