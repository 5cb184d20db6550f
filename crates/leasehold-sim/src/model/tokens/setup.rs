//! The setup of a model: its size, faults and mutation.

setup! {
    /// A model of tokens over a majority.
    ///
    /// By the rule: three attempts, no restarts and no mutation.
    Tokens<const N: usize> {
        /// How many acquisitions there are.
        attempts: usize = 3,
        /// Counters begin at every combination of 0 to this.
        counters: u8 = 1,
        /// An attempt has no proposal, or one from 1 to this.
        proposals: u8 = 0,
        /// How many times a master may be restarted. With [`Mutation::IdTwice`]: how many acquires are
        /// repeated.
        faults: u8 = 0,
        /// Whether a second master may be restarted before the first is admitted. Then the first is kept out for
        /// longer, and all masters that reply are inspected in one step.
        together: bool = false,
        /// How a restarted master recovers.
        recovery: Recovery = Recovery::Rule,
        /// Whether winners repeat their acquires on masters that do not have their lease.
        refill: bool = false,
        /// The rule that is changed.
        mutation: Option<Mutation> = None,
    }
}

/// The memory of a restarted master, and when it grants again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// It has all its data, and is kept out and admitted by the rule nevertheless.
    WithData,
    /// It is empty, is kept out until the leases from before are over, and is admitted with the tokens of the
    /// others: the rule.
    Rule,
    /// The same, but masters that are not admitted count among the others.
    AdmittedByAll,
    /// It is empty, and grants immediately.
    AtOnce,
    /// It is empty, and grants when the leases from before are over.
    AfterTtl,
    /// It is empty, and is admitted with the tokens of the others immediately.
    CaughtUp,
}

/// A rule that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The largest token of the grants is used.
    NoSecondPhase,
    /// The token is written to every master, not only to those of the first phase.
    WriteEverywhere,
    /// The token is stored where it is larger, whatever lease holds the lock.
    WriteUnheld,
    /// The token is stored where it is larger or equal, whatever lease holds the lock.
    WriteUnheldOrEqual,
    /// The counters are read before the grants, which reserve nothing. A token must be larger.
    ReadBefore,
    /// The same, and a token may be equal.
    ReadBeforeOrEqual,
    /// The same, and any token is stored.
    ReadBeforeOrAny,
    /// An acquire is repeated after its grant was over.
    IdTwice,
    /// An attempt uses its token although it is unknown whether a majority has stored it.
    InDoubt,
    /// A master also takes a proposal that is equal to its counter.
    TakeEqual,
    /// An attempt uses its proposal although only a minority has taken it.
    TakenByMinority,
    /// A proposal counts as taken where the counter was equal to it: taken for another lease.
    TakenForAnother,
    /// An attempt uses its proposal after its deadline.
    UseLate,
}

impl Mutation {
    /// Whether counters are read by themselves.
    pub(super) fn reads_before(self) -> bool {
        matches!(
            self,
            Self::ReadBefore | Self::ReadBeforeOrEqual | Self::ReadBeforeOrAny
        )
    }

    /// Whether a token may be written without holding the lock.
    pub(super) fn writes_unheld(self) -> bool {
        matches!(self, Self::WriteUnheld | Self::WriteUnheldOrEqual)
    }
}
