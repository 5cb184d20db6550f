//! What is explored: how long a lease is, which faults, and which rule is broken, if any.

use std::time::Duration;

/// A model of leases in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// How many acquisitions there are in all, each of a client of its own.
    pub attempts: usize,
    /// How long a tick is. The rule's allowance for drift is a hundredth of a ttl and 2 ms: nothing in
    /// seconds, two ticks in milliseconds.
    pub tick: Duration,
    /// How many ticks a store keeps a lease.
    pub ttl: u8,
    /// By how many ticks the clock of each master may gain on the clients', at any moments.
    pub gain: u8,
    /// What happens to a master, or two.
    pub faults: u8,
    /// What that is.
    pub fault: Fault,
    /// No master is admitted at first, and none was ever used.
    pub unused: bool,
    /// The rule by which a master is admitted.
    pub admission: Admission,
    /// Holders renew their leases.
    pub renewed: bool,
    /// The rule by which a holder counts its deadline.
    pub deadline: Deadline,
}

/// What happens to a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is started again and forgets everything. It is admitted by the rule.
    Restart,
    /// It runs on and forgets everything, or is exchanged for a server that has run for long.
    Flush,
    /// It is started again and remembers what was before the first lease.
    OldData,
    /// It runs on with an old copy of its data, which was fetched from a replica of an earlier time.
    OldCopy,
    /// It forgets everything, and goes on at once.
    RestartAtOnce,
    /// It forgets everything, and is kept out for a tick less than the ttl.
    RestartEarly,
    /// Its clock is set forward by a ttl.
    Jump,
}

/// How a master is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// By the rule, whichever of the others answer.
    Rule,
    /// No other answers, and silent ones count as ones that were never used.
    NoAnswer,
    /// The same when one other answers.
    OneAnswer,
    /// At once if it has any data, because its server syncs each write now.
    SettingOfNow,
    /// At once if its process was not started again: the record in an old copy names that process.
    SameProcess,
    /// By the rule, but a decision may be carried out when the master has forgotten what it was based on.
    Unchecked,
}

/// How a holder counts its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// By the rule: from before the first request, with an allowance for drift.
    Rule,
    /// From when it hears the answer.
    FromReply,
    /// From before the first request, but to the end of the ttl.
    WithoutMargin,
    /// It looks at no clock, or was stopped after it did.
    Never,
}

impl Default for Setup {
    /// Three attempts at leases of three seconds, clocks that agree, and nothing broken.
    fn default() -> Self {
        Self {
            attempts: 3,
            tick: Duration::from_secs(1),
            ttl: 3,
            gain: 0,
            faults: 0,
            fault: Fault::Restart,
            unused: false,
            admission: Admission::Rule,
            renewed: false,
            deadline: Deadline::Rule,
        }
    }
}
