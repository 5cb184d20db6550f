//! Fencing tokens: numbers that grow with every grant.

use std::fmt;
use std::num::NonZeroU32;

use crate::time::StoreTime;

/// How long a store keeps the counter of a name after the last grant, in milliseconds: 24 h.
///
/// The counter protects against a clock that was set back; the clock protects against a counter
/// that was lost. So a counter may be dropped once it is older than any plausible set-back.
pub const RETENTION_MS: u64 = 24 * 60 * 60 * 1000;

/// A fencing token: larger than every token granted before under the same name.
///
/// A hybrid of counter and clock: the larger of "last token + 1" and the store's time in microseconds. Over many
/// masters the client proposes that time. It stays below 2^53 for the next 200 years, so it is exact in a Lua number
/// and in JSON. The idea of a hybrid clock is described by Kulkarni and others, "Logical Physical Clocks" (2014).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(u64);

impl Token {
    /// The largest token.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A token from a number of a store. `None` for 0 and beyond [`Token::MAX`].
    #[must_use]
    pub fn new(value: u64) -> Option<Self> {
        (1..=Self::MAX.0).contains(&value).then_some(Self(value))
    }

    /// The token that a clock proposes. `None` beyond [`Token::MAX`], which takes a wrong clock.
    #[must_use]
    pub fn at(now: StoreTime) -> Option<Self> {
        Self::new(now.as_micros().max(1))
    }

    /// The token as a number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

/// As databases store it. It is never negative.
impl From<Token> for i64 {
    fn from(token: Token) -> Self {
        token.0.cast_signed()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// How many tokens one grant reserves: at least one.
pub type TokenCount = NonZeroU32;

/// The first token of a block of `count`, given the last token of the block before and the one that is proposed.
///
/// `None` when the numbers are used up, which takes a wrong clock.
#[must_use]
pub fn next_block(last: Option<Token>, proposal: Token, count: TokenCount) -> Option<Token> {
    let first = last.map_or(proposal.0, |last| proposal.0.max(last.0 + 1));
    let block = Token::new(first)?;
    block_last(block, count).map(|_| block)
}

/// The last token of a block that starts at `first`.
#[must_use]
pub fn block_last(first: Token, count: TokenCount) -> Option<Token> {
    Token::new(first.0 + u64::from(count.get()) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::token;

    const ONE: TokenCount = TokenCount::MIN;

    #[test]
    fn tokens_grow_when_the_clock_or_the_counter_is_lost() {
        let now = Token::at(StoreTime::from_micros(1_000)).unwrap();
        assert_eq!(next_block(None, now, ONE), Some(token(1_000)));
        let ahead = Some(token(5_000));
        assert_eq!(next_block(ahead, now, ONE), Some(token(5_001)));
        assert_eq!(Token::at(StoreTime::default()), Some(token(1)));
    }

    #[test]
    fn a_block_ends_where_the_next_one_may_start() {
        let count = TokenCount::new(256).unwrap();
        let first = token(1_000);
        let last = block_last(first, count).unwrap();
        assert_eq!(last, token(1_255));
    }

    #[test]
    fn tokens_end_below_two_to_the_53() {
        assert_eq!(Token::new(0), None);
        assert_eq!(Token::new(1 << 53), None);
        assert_eq!(Token::at(StoreTime::from_micros(1 << 53)), None);
        assert_eq!(next_block(Some(Token::MAX), token(1), ONE), None);
    }
}
