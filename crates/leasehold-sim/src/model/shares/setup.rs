//! The setup of a model: what the clients ask for, its faults and its mutation.

use std::num::NonZeroU32;

use leasehold_core::{Access, Claim};

use super::state::CLIENTS;

setup! {
    /// A lock that clients share.
    Shares {
        /// What each client asks for first, from 1 to 3: to read, to read upgradably or to write, or so many permits.
        sizes: [u8; CLIENTS] = [2, 1, 3],
        /// Whether it is a semaphore with three permits, not a read-write lock.
        counts: bool = false,
        /// How many messages are processed twice, late, or without a reply.
        faults: u8 = 1,
        /// The rule that is changed.
        mutation: Option<Mutation> = None,
    }
}

/// A rule that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A request that fits is granted although others wait.
    PastTheHead,
    /// Each holder may wait to hold more.
    AnyWaits,
    /// The first reader gets the last token that was given out.
    TokenOfWriter,
    /// Each reader gets a token of its own.
    TokenOfReader,
    /// A writer that becomes a reader keeps its token.
    DowngradeKeepsToken,
    /// An upgradable reader that becomes a reader gets a token of its own.
    DowngradeRenewsToken,
    /// A grant does not bring the earliest end forward.
    EarliestStays,
    /// A conversion does not look at the tokens of the lease.
    ConvertsAnyToken,
    /// The limit counts holders, not weights.
    CountsHolders,
    /// A release grants nothing to the waiters.
    LeavesWaiters,
    /// A release of a lease that does not hold ends another one.
    EndsAnother,
    /// A repeated acquire gets a token of its own.
    RepeatRenewsToken,
}

/// The permits of the semaphore.
pub(super) const PERMITS: u8 = 3;

impl Shares {
    pub(super) fn limit(&self) -> u64 {
        match self.counts {
            true => PERMITS.into(),
            false => Access::LIMIT,
        }
    }

    pub(super) fn claim(&self, size: u8) -> Claim {
        let permits = |number: u8| NonZeroU32::MIN.saturating_add(u32::from(number) - 1);
        match size {
            _ if self.counts => Claim::Permits {
                weight: permits(size),
                limit: permits(PERMITS),
                numbered: false,
            },
            1 => Claim::Access(Access::Read),
            2 => Claim::Access(Access::Upgradable),
            _ => Claim::Access(Access::Write),
        }
    }

    /// How much of the limit this is. 0: nothing.
    pub(super) fn weight(&self, size: u8) -> u64 {
        match size {
            0 => 0,
            size => self.claim(size).weight(),
        }
    }

    /// What has this weight.
    pub(super) fn size(&self, weight: u64) -> u8 {
        let mut sizes = 1..=PERMITS;
        let size = sizes.find(|size| self.weight(*size) == weight);
        size.unwrap_or(PERMITS)
    }

    /// Whether it is to read, with or without the right to upgrade.
    pub(super) const fn reads(&self, size: u8) -> bool {
        !self.counts && matches!(size, 1 | 2)
    }

    /// Whether a rule is changed.
    pub(super) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
