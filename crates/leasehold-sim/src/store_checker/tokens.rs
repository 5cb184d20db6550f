//! The order of the tokens.

use leasehold_core::{LeaseId, Outcome};

use super::StoreChecker;
use super::hold::{Holds, is_held_by};
use super::promise::Promise;

/// The largest number that is exact in a Lua number, and so the largest token.
const TOKEN_MAX: u64 = (1 << 53) - 1;

impl StoreChecker {
    /// Checks and adds the block of a grant.
    pub(super) fn grant_tokens(
        &mut self,
        Holds { certain, possible }: Holds,
        lease: LeaseId,
        (first, count): (u64, u64),
    ) -> Result<(), Promise> {
        let last = self.last_token;
        let grown = first > last;
        // A repeated request of the holder gets the end of the same block, however long it states the block to
        // be. A block longer than all tokens before it cannot be the same.
        let repeated = first + count - 1 == last;
        let in_order = if is_held_by(certain, lease) {
            repeated || (grown && count > last)
        } else {
            grown || (repeated && is_held_by(possible, lease))
        };
        let is_kept = in_order && (1..=TOKEN_MAX).contains(&first);
        self.last_token = last.max(first + count - 1);
        Promise::TokenOrder.check(is_kept)
    }

    /// Checks and adds a block of tokens that was chosen elsewhere.
    pub(super) fn set_tokens(
        &mut self,
        first: u64,
        count: u64,
        outcome: Outcome,
    ) -> Result<(), Promise> {
        let (before, last) = (self.last_token, first + count - 1);
        let is_kept = match outcome {
            _ if last > TOKEN_MAX => outcome == Outcome::Exhausted,
            Outcome::Stored => before == last || before < first,
            Outcome::Outdated => before != last && before >= first,
            _ => false,
        };
        if outcome == Outcome::Stored {
            self.last_token = before.max(last);
        }
        Promise::TokenOrder.check(is_kept)
    }

    pub(super) fn is_exhausted(&self, now: u64, tokens: u64) -> bool {
        now.max(self.last_token + 1) + tokens - 1 > TOKEN_MAX
    }
}
