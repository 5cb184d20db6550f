//! The setup of a model: its size, times and mutation.

use std::time::Duration;

setup! {
    /// A model of the record of a lock.
    ///
    /// By the rule: two clients, leases of three seconds, a minimum hold of four, clocks that agree, and no mutation.
    Record {
        /// How many clients there are.
        clients: usize = 2,
        /// The duration of a tick. The rule's allowance for drift is two ticks of a millisecond.
        tick: Duration = Duration::from_secs(1),
        /// How many ticks a store keeps a lease.
        ttl: u8 = 3,
        /// How many ticks the lock is to stay taken from its grant on.
        min_hold: u8 = 4,
        /// By how many ticks the clock of each client may gain on that of the store, at any moments.
        gain: u8 = 0,
        /// How often an operator revokes the lease.
        revocations: u8 = 1,
        /// The rule that is changed.
        mutation: Option<Mutation> = None,
    }
}

/// A rule that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A renewal of the last holder renews its minimum hold.
    RenewalLengthens,
    /// An enter of the last holder makes its lease the holder again.
    EnterRevives,
    /// A release frees the lock immediately.
    FreesEarly,
    /// A release ends the lease of any holder.
    ReleasesAny,
    /// The rest does not allow for drift.
    WithoutDrift,
    /// Even the release of a lost lease begins a minimum hold.
    AfterLoss,
}
