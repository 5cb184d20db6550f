//! A lock over many masters: each of them applies the rule of [`record`](crate::record) by itself, and a majority
//! decides.
//!
//! The classic text is the "Redlock" page of the Redis documentation. Tokens that grow are added here: reading the largest
//! counter of a majority with the grants, and writing a larger one to a majority, as registers over a majority are read and written since Attiya, Bar-Noy and Dolev,
//! "Sharing memory robustly in message-passing systems" (1995).
//!
//! * [`Tally`] is one request: a [`Round`] if it acquires, a [`Vote`] if it renews, releases or changes the count.
//! * [`proposal()`] chooses the token that an acquisition asks for.
//! * [`Orphans`] are leases that were released before a master has replied to their acquisition.
//! * [`Master`] is one of the masters, and [`decide`] admits one that may have forgotten its grants.

mod admission;
mod master;
mod orphans;
mod proposal;
mod round;
mod tally;
mod vote;

use std::fmt;

pub use self::admission::{Decision, MasterInfo, decide, quarantine};
pub use self::master::{AdmissionRecord, HIGH_STEP, Master, NotAdmitted, RunId};
pub use self::orphans::{Orphans, Replied};
pub use self::proposal::proposal;
pub use self::round::{Defeat, Round, Step};
pub use self::tally::{Addressed, Leftover, Reply, Tally};
pub use self::vote::{Verdict, Vote};

/// How many masters there are: odd, at least three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size(u8);

impl Size {
    /// The largest number of masters.
    pub const MAX: usize = 63;

    /// A number of masters.
    ///
    /// # Errors
    ///
    /// [`SizeError`] if it is even, less than three or more than [`Size::MAX`].
    pub fn new(masters: usize) -> Result<Self, SizeError> {
        match masters {
            0..3 => Err(SizeError(
                "fewer than three masters cannot lose one and keep a majority; name at least three, or one \
                 server with redis://",
            )),
            _ if masters > Self::MAX => Err(SizeError("at most 63 masters are supported")),
            _ if masters.is_multiple_of(2) => Err(SizeError(
                "an even number of masters can lose no more of them than one fewer, and can split into equal \
                 halves; name an odd number",
            )),
            _ => Ok(Self(u8::try_from(masters).unwrap_or(u8::MAX))),
        }
    }

    /// How many masters there are.
    #[must_use]
    pub fn masters(self) -> usize {
        self.0.into()
    }

    /// How many of them are a majority: any two majorities have a master in common.
    #[must_use]
    pub fn majority(self) -> usize {
        self.masters() / 2 + 1
    }

    /// All of them.
    #[must_use]
    pub fn all(self) -> Masters {
        Masters((1 << self.0) - 1)
    }
}

/// A set of masters, by their indices from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Masters(u64);

impl Masters {
    /// Adds one.
    pub fn insert(&mut self, master: usize) {
        if master < Size::MAX {
            self.0 |= 1 << master;
        }
    }

    /// Whether it contains a master.
    #[must_use]
    pub fn contains(self, master: usize) -> bool {
        master < Size::MAX && self.0 & (1 << master) != 0
    }

    /// How many masters it contains.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The indices of its masters.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..Size::MAX).filter(move |master| self.contains(*master))
    }

    /// The masters that are not in the other set.
    #[must_use]
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

/// Why a number of masters is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeError(&'static str);

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for SizeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_number_or_too_few_are_refused_with_a_reason() {
        for (masters, why) in [
            (0, "fewer than three"),
            (1, "fewer than three"),
            (2, "fewer than three"),
            (4, "even"),
            (64, "at most 63"),
        ] {
            let error = Size::new(masters).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_set_ends_with_the_last_master() {
        let mut last = Masters::default();
        last.insert(62);
        last.insert(63);
        assert_eq!(last.iter().collect::<Vec<_>>(), [62]);
        let all = Size::new(63).unwrap().all();
        assert_eq!((last.len(), all.without(last).len()), (1, 62));
    }
}
