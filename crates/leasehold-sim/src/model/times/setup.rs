//! The setup of a model: its size, ttl, faults and mutations.

use std::time::Duration;

setup! {
    /// A model of leases in time.
    ///
    /// By the rule: three attempts, leases of three seconds, clocks that agree, and no mutation.
    Times<const N: usize> {
        /// How many acquisitions there are, each of a client of its own.
        attempts: usize = 3,
        /// The duration of a tick. The rule's allowance for drift is a hundredth of a ttl and 2 ms: no tick of a
        /// second, two ticks of a millisecond.
        tick: Duration = Duration::from_secs(1),
        /// How many ticks a store keeps a lease.
        ttl: u8 = 3,
        /// By how many ticks the clock of each master may gain on those of the clients, at any moments.
        gain: u8 = 0,
        /// How many faults happen.
        faults: u8 = 0,
        /// Which fault.
        fault: Fault = Fault::Restart,
        /// Whether no master is admitted at first, and none was ever used.
        unused: bool = false,
        /// The rule by which a master is admitted.
        admission: Admission = Admission::Rule,
        /// Whether every master that grants takes the proposal, so that there is no second phase.
        proposed: bool = false,
        /// Whether holders renew their leases.
        renewed: bool = false,
        /// The rule for the deadline of a holder.
        deadline: Deadline = Deadline::Rule,
    }
}

/// A fault of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is restarted empty. It is admitted by the rule.
    Restart,
    /// It is restarted empty. It is admitted by the rule if it has forgotten the lease of an owner, and otherwise grants
    /// immediately.
    RestartUnowned,
    /// It goes on empty, or is exchanged for a server that has run for long.
    Flush,
    /// It is restarted with its data from before the first lease.
    OldData,
    /// It goes on with an old copy of its data, which was fetched from a former replica.
    OldCopy,
    /// It is restarted empty, and grants immediately.
    RestartAtOnce,
    /// It is restarted empty, and kept out for a tick less than the ttl.
    RestartEarly,
    /// Its clock is set forward by a ttl.
    Jump,
}

/// How a master is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// By the rule, whichever of the others reply.
    Rule,
    /// If no other replies, silent ones count as ones that were never used.
    NoReply,
    /// The same if one other replies.
    OneReply,
    /// At once if it has any data, because its server syncs each write now.
    CurrentSetting,
    /// At once if its process was not restarted: the record in an old copy names that process.
    SameProcess,
    /// By the rule, but a decision may take effect after the master has lost the data that it was based on.
    Unchecked,
}

/// From when a holder counts its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// From before the first request, with an allowance for drift: the rule.
    Rule,
    /// From when it receives the reply.
    FromReply,
    /// From before the first request, but to the end of the ttl.
    WithoutMargin,
    /// It reads no clock, or was stopped after that.
    Never,
}
