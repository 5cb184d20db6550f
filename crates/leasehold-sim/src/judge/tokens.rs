//! The order of the tokens.

use leasehold_core::{LeaseId, Outcome};

use super::Judge;
use super::promise::{Promise, Violation, broken};
use super::tenure::{Tenure, held_by};

/// The largest number that is exact in a Lua number, and so the largest token.
const TOKEN_MAX: u64 = (1 << 53) - 1;

impl Judge {
    pub(super) fn token_order(
        &self,
        surely: Option<Tenure>,
        maybe: Option<Tenure>,
        lease: LeaseId,
        (first, count): (u64, u64),
    ) -> Result<(), Violation> {
        let last = self.last_token;
        let grown = first > last;
        // The holder that asks again is told the end of the same block, however long it says that
        // it is; a block longer than all tokens before it cannot be the same.
        let repeated = first + count - 1 == last;
        let right = if held_by(surely, lease) {
            repeated || (grown && count > last)
        } else {
            grown || (repeated && held_by(maybe, lease))
        };
        if right && (1..=TOKEN_MAX).contains(&first) {
            return Ok(());
        }
        let what = format!("{lease} got {count} tokens from {first} after {last}");
        broken(Promise::TokenOrder, what)
    }

    /// Reads what became of a block of tokens that was chosen elsewhere.
    pub(super) fn fence(
        &mut self,
        first: u64,
        count: u64,
        outcome: Outcome,
    ) -> Result<(), Violation> {
        let (before, last) = (self.last_token, first + count - 1);
        let right = match outcome {
            _ if last > TOKEN_MAX => outcome == Outcome::Exhausted,
            Outcome::Fenced => before == last || before < first,
            Outcome::Outdated => before != last && before >= first,
            _ => false,
        };
        if outcome == Outcome::Fenced {
            self.last_token = before.max(last);
        }
        if right {
            return Ok(());
        }
        let what = format!("{count} tokens from {first} after {before} were {outcome:?}");
        broken(Promise::TokenOrder, what)
    }

    pub(super) fn exhausted(&self, now: u64, tokens: u64) -> bool {
        now.max(self.last_token + 1) + tokens - 1 > TOKEN_MAX
    }
}
