//! The setup of a model: its size, times and mutation.

use std::time::Duration;

/// A model of the record of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// How many clients there are.
    pub(crate) clients: usize,
    /// The duration of a tick. The rule's allowance for drift is two ticks of a millisecond.
    pub(crate) tick: Duration,
    /// How many ticks a store keeps a lease.
    pub(crate) ttl: u8,
    /// How many ticks the lock is to stay taken from its grant on.
    pub(crate) min_hold: u8,
    /// By how many ticks the clock of each client may gain on that of the store, at any moments.
    pub(crate) gain: u8,
    /// Whether there is a run, which a release completes.
    pub(crate) runs: bool,
    /// How often an operator frees the lock.
    pub(crate) revocations: u8,
    /// The rule that is changed.
    pub(crate) mutation: Option<Mutation>,
}

/// A rule that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A renewal of the last holder renews its minimum hold.
    RenewalLengthens,
    /// An enter of the last holder makes its lease the holder again.
    EnterRevives,
    /// A release frees the lock at once.
    FreesEarly,
    /// A release ends the lease of any holder.
    ReleasesAny,
    /// The rest does not allow for drift.
    WithoutDrift,
    /// The release of a lost lease begins a minimum hold, too.
    AfterLoss,
    /// The store writes a completion whatever lease holds the lock.
    CompletesUnheld,
    /// A client that waits does not ask again whether the run is complete.
    DecidesOnce,
}

impl Record {
    /// Two clients, leases of three seconds, a minimum hold of four, clocks that agree, and no mutation.
    pub(crate) const RULE: Self = Self {
        clients: 2,
        tick: Duration::from_secs(1),
        ttl: 3,
        min_hold: 4,
        gain: 0,
        runs: false,
        revocations: 1,
        mutation: None,
    };
}
