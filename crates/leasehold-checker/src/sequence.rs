//! Holds of one lock in the order in which one observer sees them.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

/// Checks holds of one lock in the order in which one observer sees them.
#[derive(Clone, Debug)]
pub struct Sequence<H> {
    current: Option<H>,
    /// `None`: holds that have ended are not remembered.
    ended: Option<HashSet<H>>,
    largest_token: u64,
    acquisitions: u64,
}

/// How holds of one lock contradict the promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two holders relied on the lock at the same instant.
    TwoHolders,
    /// A hold was relied on after its end.
    Revived,
    /// The token of a later hold is not larger.
    TokenNotLarger,
}

impl Sequence<u64> {
    /// Checks holds that are identified by their tokens, which are passed twice. The order of tokens shows a hold that
    /// begins again, so none is remembered: this is cheap enough for benchmarks.
    pub fn of_tokens() -> Self {
        Self {
            ended: None,
            ..Self::default()
        }
    }
}

impl<H: Copy + Eq + Hash> Sequence<H> {
    /// Takes in that a holder acquired the lock.
    ///
    /// # Errors
    ///
    /// The promise that this violates. The acquisition counts all the same, so that what follows can
    /// be checked.
    pub fn acquired(&mut self, holder: H, token: u64) -> Result<(), Violation> {
        let violation = if self.current.is_some_and(|current| current != holder) {
            Some(Violation::TwoHolders)
        } else if self.has_ended(holder) {
            Some(Violation::Revived)
        } else if token <= self.largest_token {
            Some(Violation::TokenNotLarger)
        } else {
            None
        };
        let last = self.current.replace(holder);
        self.remember(last);
        self.largest_token = self.largest_token.max(token);
        self.acquisitions += 1;
        violation.map_or(Ok(()), Err)
    }

    /// Takes in that a holder no longer relies on the lock. Without effect for all but the
    /// current holder.
    pub fn ended(&mut self, holder: H) {
        let last = self.current.take_if(|current| *current == holder);
        self.remember(last);
    }

    fn has_ended(&self, holder: H) -> bool {
        let ended = self.ended.as_ref();
        ended.is_some_and(|ended| ended.contains(&holder))
    }

    fn remember(&mut self, last: Option<H>) {
        if let Some(ended) = &mut self.ended {
            ended.extend(last);
        }
    }

    /// Takes in who relies on the lock at one instant: all holders, each with its token.
    ///
    /// A hold can end between two observations but only begin with an event, so an observer that looks
    /// after every event sees every overlap.
    ///
    /// # Errors
    ///
    /// The promise that this violates.
    pub fn observe(
        &mut self,
        holders: impl IntoIterator<Item = (H, u64)>,
    ) -> Result<(), Violation> {
        let mut holders = holders.into_iter();
        let first = holders.next();
        if holders.next().is_some() {
            return Err(Violation::TwoHolders);
        }
        if let Some(current) = self.current
            && first.is_none_or(|(holder, _)| holder != current)
        {
            self.ended(current);
        }
        match first {
            Some((holder, token)) if self.current.is_none() => self.acquired(holder, token),
            _ => Ok(()),
        }
    }

    /// The holder, if there is one.
    pub fn current(&self) -> Option<H> {
        self.current
    }

    /// The number of acquisitions.
    pub fn acquisitions(&self) -> u64 {
        self.acquisitions
    }
}

impl<H> Default for Sequence<H> {
    fn default() -> Self {
        Self {
            current: None,
            ended: Some(HashSet::new()),
            largest_token: 0,
            acquisitions: 0,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TwoHolders => "two holders relied on the lock at the same instant",
            Self::Revived => "a hold was relied on after its end",
            Self::TokenNotLarger => "the token of a later hold is not larger",
        })
    }
}

impl std::error::Error for Violation {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_are_found_where_holders_do_not_take_turns() {
        use Violation::{Revived, TokenNotLarger, TwoHolders};

        // Each acquisition, whether the hold ends after it, and its violation.
        for acquisitions in [
            &[(1, 3, true, None), (2, 4, true, None), (3, 9, true, None)][..],
            &[(1, 1, false, None), (2, 2, false, Some(TwoHolders))],
            &[(1, 1, true, None), (1, 2, true, Some(Revived))],
            &[(1, 7, true, None), (2, 6, true, Some(TokenNotLarger))],
            &[(1, 7, true, None), (2, 7, true, Some(TokenNotLarger))],
        ] {
            let mut sequence = Sequence::default();
            for &(holder, token, ends, violation) in acquisitions {
                assert_eq!(sequence.acquired(holder, token).err(), violation);
                // The end of another hold is not the end of this one.
                sequence.ended(0);
                assert_eq!(sequence.current(), Some(holder));
                if ends {
                    sequence.ended(holder);
                }
            }
            assert_eq!(sequence.acquisitions(), acquisitions.len() as u64);
        }
    }

    #[test]
    fn tokens_identify_holds() {
        let mut sequence = Sequence::of_tokens();
        assert_eq!(sequence.acquired(5, 5), Ok(()));
        assert_eq!(sequence.acquired(7, 7), Err(Violation::TwoHolders));
        sequence.ended(7);
        assert_eq!(sequence.acquired(7, 7), Err(Violation::TokenNotLarger));
    }

    #[test]
    fn an_instant_has_one_holder() {
        let mut sequence = Sequence::default();
        for (holders, expected) in [
            (&[][..], Ok(())),
            (&[('a', 1)], Ok(())),
            (&[('a', 1)], Ok(())),
            (&[('b', 2)], Ok(())),
            (&[('b', 2), ('c', 3)], Err(Violation::TwoHolders)),
            (&[('a', 1)], Err(Violation::Revived)),
        ] {
            assert_eq!(sequence.observe(holders.iter().copied()), expected);
        }
        assert_eq!(sequence.acquisitions(), 3);
    }
}
