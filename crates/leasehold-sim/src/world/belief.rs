//! What the clients believe, and the judge of it.

use std::collections::HashSet;
use std::fmt;

use leasehold_core::{LeaseId, Token};

/// A client that relies on a lease, and on the token of one grant of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Belief {
    pub(crate) lease: LeaseId,
    pub(crate) token: Token,
}

/// Reads, after every event, what all clients believe at that instant.
#[derive(Debug, Default)]
pub(crate) struct BeliefJudge {
    holder: Option<Belief>,
    over: HashSet<Belief>,
    largest: u64,
    /// How often a client began to believe.
    pub(crate) begun: u64,
}

/// A promise to the holders that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deception {
    /// Two clients relied on the lock at the same instant.
    TwoHolders,
    /// A client relied on a lease that was over before.
    Revived,
    /// A later holder got a token that is not larger.
    TokenNotLarger,
}

impl fmt::Display for Deception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TwoHolders => "two clients rely on the lock at one instant",
            Self::Revived => "a lease that was over is relied on again",
            Self::TokenNotLarger => "a later holder has no larger token",
        })
    }
}

impl BeliefJudge {
    /// Reads the beliefs of this instant. A belief ends by time alone but begins with an event, so
    /// looking after every event sees every overlap.
    pub(crate) fn see(
        &mut self,
        mut beliefs: impl Iterator<Item = Belief>,
    ) -> Result<(), Deception> {
        let now = beliefs.next();
        if beliefs.next().is_some() {
            return Err(Deception::TwoHolders);
        }
        if self.holder == now {
            return Ok(());
        }
        self.over.extend(self.holder);
        self.holder = now;
        let Some(belief) = now else {
            return Ok(());
        };
        if self.over.contains(&belief) {
            return Err(Deception::Revived);
        }
        if belief.token.get() <= self.largest {
            return Err(Deception::TokenNotLarger);
        }
        self.largest = belief.token.get();
        self.begun += 1;
        Ok(())
    }
}
