//! What one of many masters knows of itself.
//!
//! A master that has forgotten what it granted could grant it again, and repeat its tokens. So each has a
//! mark that says for which run of its process it is fit. One that was started again does nothing until
//!
//! 1. every lease that anybody could have held or asked for when it went has ended: the longest ttl that
//!    is used, and drift. Only then
//! 2. the largest tokens that a majority of all masters know, this one not counted, are read, and it gives
//!    out none below.
//!
//! Neither is enough alone: the model shows a repeated token for each.

use std::time::Duration;

use super::Size;
use crate::mutex::{self, Op, Outcome, Record};
use crate::time::{self, StoreTime, Ttl};
use crate::token::Token;

/// One run of a master's process. Drawn anew at each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub u128);

/// A master as it stands at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Master {
    /// The run of its process.
    pub run: RunId,
    /// Its mark. `None`: it has none, or has forgotten it.
    pub mark: Option<Mark>,
}

/// What a master keeps beside its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// For which run it is fit.
    pub run: RunId,
    /// It gives out no token that is not larger.
    pub floor: Option<Token>,
    /// The largest token that it knows, of all names.
    pub high: Option<Token>,
}

/// The master was started again and may have forgotten what it granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unarmed;

/// How long a master is kept out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// So long still.
    For(Duration),
    /// Not any more: it may be armed, with the largest tokens that the others know.
    Over,
}

impl Master {
    /// Whether it may do anything.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.mark.is_some_and(|mark| mark.run == self.run)
    }

    /// Applies an operation to the record of a name by the rule of [`mutex`], and keeps the mark.
    /// Nobody waits in a queue of one of many masters.
    ///
    /// # Errors
    ///
    /// [`Unarmed`]: nothing was done.
    pub fn apply(
        &mut self,
        record: &mut Record,
        op: &Op,
        now: StoreTime,
    ) -> Result<Outcome, Unarmed> {
        let run = self.run;
        let mark = self.mark.as_mut().filter(|mark| mark.run == run);
        let mark = mark.ok_or(Unarmed)?;
        record.last_token = record.last_token.max(mark.floor);
        let outcome = mutex::apply(record, op, now, |_| false);
        mark.high = mark.high.max(record.last_token);
        Ok(outcome)
    }

    /// Makes it fit for this run, with the largest token that each of some other masters knows, which
    /// must be fit themselves: who has forgotten, too, knows nothing.
    ///
    /// # Errors
    ///
    /// [`Unarmed`] if these are no majority of all.
    pub fn arm(&mut self, size: Size, others: &[Option<Token>]) -> Result<(), Unarmed> {
        if others.len() < size.majority() {
            return Err(Unarmed);
        }
        let floor = others.iter().copied().max().flatten();
        let kept = self.mark.and_then(|mark| mark.high.max(mark.floor));
        self.mark = Some(Mark {
            run: self.run,
            floor: floor.max(kept),
            high: floor.max(kept),
        });
        Ok(())
    }
}

/// How long a master that may have forgotten is kept out, if `longest` is the longest ttl in use.
#[must_use]
pub fn quarantine(longest: Ttl) -> Duration {
    let longest = longest.as_duration();
    longest + time::drift(longest)
}

impl Waiting {
    /// How long a master is kept out that can have forgotten nothing for `since`.
    #[must_use]
    pub fn since(since: Duration, longest: Ttl) -> Self {
        match quarantine(longest).checked_sub(since) {
            Some(left) if !left.is_zero() => Self::For(left),
            _ => Self::Over,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::id::{ClientId, LeaseId};
    use crate::token::TokenCount;

    fn token(value: u64) -> Token {
        Token::new(value).unwrap()
    }

    fn acquire(number: u64) -> Op {
        Op::Acquire {
            lease: LeaseId {
                client: ClientId::from_random([1; 16]),
                number,
            },
            count: NonZeroU32::MIN,
            ttl: Ttl::from_millis(1_000).unwrap(),
            tokens: TokenCount::MIN,
            wait: false,
        }
    }

    fn size() -> Size {
        Size::new(3).unwrap()
    }

    #[test]
    fn a_master_does_nothing_before_it_is_armed_and_after_it_was_started_again() {
        let now = StoreTime::from_micros(5);
        let mut record = Record::default();
        let mut master = Master {
            run: RunId(1),
            mark: None,
        };
        assert_eq!(master.apply(&mut record, &acquire(1), now), Err(Unarmed));
        assert_eq!(master.arm(size(), &[None]), Err(Unarmed));
        assert_eq!(master.arm(size(), &[None, None]), Ok(()));
        let first = token(5);
        let granted = Ok(Outcome::Granted { first });
        assert_eq!(master.apply(&mut record, &acquire(1), now), granted);
        assert_eq!(master.mark.and_then(|mark| mark.high), Some(first));
        master.run = RunId(2);
        assert!(!master.is_armed());
        assert_eq!(master.apply(&mut record, &acquire(1), now), Err(Unarmed));
    }

    #[test]
    fn a_master_goes_on_above_what_the_others_know() {
        let now = StoreTime::from_micros(5);
        let mut master = Master {
            run: RunId(1),
            mark: None,
        };
        let others = [Some(token(7)), Some(token(900)), None];
        assert_eq!(master.arm(size(), &others), Ok(()));
        let mut record = Record::default();
        let first = token(901);
        let granted = Ok(Outcome::Granted { first });
        assert_eq!(master.apply(&mut record, &acquire(1), now), granted);
    }

    #[test]
    fn a_master_that_kept_its_mark_goes_on_above_it() {
        let mark = Mark {
            run: RunId(1),
            floor: None,
            high: Some(token(50)),
        };
        let mut master = Master {
            run: RunId(2),
            mark: Some(mark),
        };
        assert_eq!(master.arm(size(), &[None, Some(token(3))]), Ok(()));
        assert_eq!(master.mark.and_then(|mark| mark.floor), Some(token(50)));
    }

    #[test]
    fn the_wait_covers_the_longest_lease_and_drift() {
        let longest = Ttl::from_millis(1_000).unwrap();
        let left = Waiting::since(Duration::from_millis(1_000), longest);
        assert!(matches!(left, Waiting::For(left) if left >= Duration::from_millis(12)));
        let over = Waiting::since(quarantine(longest), longest);
        assert_eq!(over, Waiting::Over);
    }
}
