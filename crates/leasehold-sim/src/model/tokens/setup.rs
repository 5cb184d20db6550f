//! What is explored: how many of what, which faults, and which rule is broken, if any.

/// A model of tokens over a majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// How many acquisitions there are in all.
    pub attempts: usize,
    /// Counters begin at every mix of 0 to this.
    pub counters: u8,
    /// How many times a master may be started again. With [`Broken::IdTwice`]: how many
    /// acquires are sent again.
    pub faults: u8,
    /// A second master may be started again before the first is admitted. Then the first is kept out for
    /// longer, and all masters that answer are inspected in one step.
    pub together: bool,
    /// What becomes of a master that is started again.
    pub back: Back,
    /// A lease that was won is asked for again on masters that do not have it.
    pub refill: bool,
    /// Winners write to a resource that refuses older tokens.
    pub resource: bool,
    /// The rule that is broken.
    pub broken: Option<Broken>,
}

/// What a master that was started again remembers, and when it does something again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// It has kept everything, and is kept out and admitted by the rule nevertheless.
    WithData,
    /// It has forgotten everything, is kept out until the leases of then are over, and admitted with what
    /// the others know: the rule.
    Rule,
    /// The same, but others count that may not be admitted themselves.
    AdmittedByAnybody,
    /// It has forgotten everything, and goes on at once.
    AtOnce,
    /// It has forgotten everything, and goes on when the leases of then are over.
    AfterTtl,
    /// It has forgotten everything, and is admitted with what the others know, at once.
    CaughtUp,
}

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The largest of the tokens that came with the grants is used.
    NoSecondPhase,
    /// The token is written to every master, not only to those that granted the first phase.
    WriteEverywhere,
    /// The token is written wherever it is larger, whoever holds the lock.
    WriteByAnybody,
    /// The token is written wherever it is larger or the same, whoever holds the lock.
    WriteByAnybodyOrEqual,
    /// The counters are read before the grants, which reserve nothing. A token must be larger.
    ReadBefore,
    /// The same, and a token may be the same.
    ReadBeforeOrEqual,
    /// The same, and a token may be anything.
    ReadBeforeOrAny,
    /// An acquire is sent again after its grant was over.
    IdTwice,
    /// Who does not know whether a majority has taken its token uses it.
    InDoubt,
}

impl Default for Setup {
    /// Three attempts, no restarts, and nothing broken.
    fn default() -> Self {
        Self {
            attempts: 3,
            counters: 1,
            faults: 0,
            together: false,
            back: Back::Rule,
            refill: false,
            resource: false,
            broken: None,
        }
    }
}

impl Broken {
    /// Whether counters are read by themselves.
    pub(super) fn reads_before(self) -> bool {
        matches!(
            self,
            Self::ReadBefore | Self::ReadBeforeOrEqual | Self::ReadBeforeOrAny
        )
    }

    /// Whether a token may be written without holding the lock.
    pub(super) fn writes_by_anybody(self) -> bool {
        matches!(self, Self::WriteByAnybody | Self::WriteByAnybodyOrEqual)
    }
}
