//! The order of the tokens.

use leasehold_core::{LeaseId, Op, Outcome};

use super::StoreChecker;
use super::hold::{Hold, Holds};
use super::promise::Promise;

/// The largest number that is exact in a Lua number, and so the largest token.
const TOKEN_MAX: u64 = (1 << 53) - 1;

impl StoreChecker {
    /// Checks and adds the block of a grant. A repeated request of the holder gets the first token of its block again.
    pub(super) fn grant_tokens(
        &mut self,
        Holds { certain, possible }: Holds,
        lease: LeaseId,
        (first, count): (u64, u64),
    ) -> Result<(), Promise> {
        let is_repeated = |hold: &Hold| hold.is_of(lease) && hold.first == first;
        let has_grown = first > self.last_token;
        let is_kept = match certain.filter(|hold| hold.is_of(lease)) {
            Some(own) => is_repeated(&own),
            None => has_grown || possible.as_ref().is_some_and(is_repeated),
        };
        if has_grown {
            self.last_token = first + count - 1;
        }
        Promise::TokenOrder.check(is_kept && (1..=TOKEN_MAX).contains(&first))
    }

    /// Checks and adds a block of tokens that was chosen elsewhere.
    pub(super) fn set_tokens(&mut self, op: &Op, outcome: &Outcome) -> Result<(), Promise> {
        let Op::SetToken { first, tokens, .. } = op else {
            return Err(Promise::Reply);
        };
        let first = first.get();
        let (before, last) = (self.last_token, first + u64::from(tokens.get()) - 1);
        let is_kept = match outcome {
            _ if last > TOKEN_MAX => *outcome == Outcome::Exhausted,
            Outcome::Stored => before == last || before < first,
            Outcome::Outdated => before != last && before >= first,
            _ => false,
        };
        if *outcome == Outcome::Stored {
            self.last_token = before.max(last);
            self.hold = self.hold.map(|hold| Hold { first, ..hold });
        }
        Promise::TokenOrder.check(is_kept)
    }

    pub(super) fn is_exhausted(&self, now: u64, tokens: u64) -> bool {
        now.max(self.last_token + 1) + tokens - 1 > TOKEN_MAX
    }
}
