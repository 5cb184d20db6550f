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

    /// Takes in that a holder does not rely on the lock any more. Without effect for all but the
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
    fn holders_in_turn_are_no_violation() {
        let mut sequence = Sequence::default();
        for (holder, token) in [('a', 3), ('b', 4), ('c', 9)] {
            assert_eq!(sequence.acquired(holder, token), Ok(()));
            sequence.ended(holder);
        }
        assert_eq!((sequence.acquisitions(), sequence.current()), (3, None));
    }

    #[test]
    fn an_acquisition_before_the_end_of_another_hold_is_two_holders() {
        let mut sequence = Sequence::default();
        sequence.acquired('a', 1).unwrap();
        assert_eq!(sequence.acquired('b', 2), Err(Violation::TwoHolders));
        // The end of the first hold is not the end of the second.
        sequence.ended('a');
        assert_eq!(sequence.current(), Some('b'));
    }

    #[test]
    fn a_hold_does_not_begin_again() {
        let mut sequence = Sequence::default();
        sequence.acquired('a', 1).unwrap();
        sequence.ended('a');
        assert_eq!(sequence.acquired('a', 2), Err(Violation::Revived));
    }

    #[test]
    fn tokens_grow() {
        for token in [6, 7] {
            let mut sequence = Sequence::default();
            sequence.acquired('a', 7).unwrap();
            sequence.ended('a');
            assert_eq!(
                sequence.acquired('b', token),
                Err(Violation::TokenNotLarger)
            );
        }
    }

    #[test]
    fn tokens_identify_holds() {
        let mut sequence = Sequence::of_tokens();
        for (token, expected) in [
            (5, Ok(())),
            (7, Err(Violation::TwoHolders)),
            (7, Err(Violation::TokenNotLarger)),
        ] {
            assert_eq!(sequence.acquired(token, token), expected);
            if token == 7 {
                sequence.ended(7);
            }
        }
    }

    #[test]
    fn an_instant_has_one_holder() {
        let mut sequence = Sequence::default();
        assert_eq!(sequence.observe([]), Ok(()));
        assert_eq!(sequence.observe([('a', 1)]), Ok(()));
        assert_eq!(sequence.observe([('a', 1)]), Ok(()));
        assert_eq!(sequence.observe([('b', 2)]), Ok(()));
        assert_eq!(sequence.acquisitions(), 2);
        assert_eq!(
            sequence.observe([('b', 2), ('c', 3)]),
            Err(Violation::TwoHolders)
        );
        assert_eq!(sequence.observe([('a', 1)]), Err(Violation::Revived));
    }
}
