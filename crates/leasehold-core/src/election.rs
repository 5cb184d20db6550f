//! Leader election: the leaders that an observer reports.
//!
//! An election is a mutex whose holder stores a value beside the record. Nothing in the rule of the mutex changes:
//! a candidate leads when the lock is granted to it, and its term is the fencing token of that grant.

use std::sync::Arc;

use crate::annotation::Annotation;
use crate::id::LeaseId;
use crate::token::Token;

/// A leader and the value that it has proclaimed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Leader {
    /// The value, such as the address at which the leader serves.
    pub value: Arc<str>,
    /// The term: the fencing token of the leader, which is larger than those of all leaders before it.
    pub term: Token,
    /// The lease of the leader, which names its client.
    pub lease: LeaseId,
}

/// The longest value in bytes: 4 KiB.
pub const VALUE_BYTES_MAX: usize = 4096;

/// A value as the leader stores it: the text of an annotation.
///
/// Its number tells the later one of two values of a leader. A reader needs it: a write without a reply may be applied
/// late, and one of many masters may have missed the last write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proclamation {
    /// How many values this leader has proclaimed, with this one.
    pub number: u64,
    /// The value.
    pub value: Arc<str>,
}

impl Proclamation {
    /// The text form: `<number> <value>`.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{} {}", self.number, self.value)
    }

    /// Parses a text form. `None` if this library does not write such a text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (digits, value) = text.split_once(' ')?;
        let number: u64 = digits.parse().ok()?;
        // A number has one spelling.
        (number.to_string() == digits).then(|| Self {
            number,
            value: value.into(),
        })
    }
}

impl Leader {
    /// The leader in a store that shows this holder and this value. `None`: nobody holds the lock, or the value was
    /// written under an earlier lease, so that the holder has not proclaimed one yet.
    #[must_use]
    pub fn of(holder: Option<LeaseId>, value: Option<&Annotation>) -> Option<Self> {
        Self::numbered(holder, value).map(|(leader, _)| leader)
    }

    /// The same with the number of the value.
    fn numbered(holder: Option<LeaseId>, value: Option<&Annotation>) -> Option<(Self, u64)> {
        let stored = value.filter(|value| holder == Some(value.lease))?;
        let Proclamation { number, value } = Proclamation::parse(&stored.text)?;
        let leader = Self {
            value,
            term: stored.token,
            lease: stored.lease,
        };
        Some((leader, number))
    }
}

/// The leaders that an observer has reported so far: their terms never fall, and the values of a leader never go back.
///
/// A store that lost its last writes in a failover can have a leader of an earlier term again. The observer does not
/// report that leader: a resource that checks tokens refuses its writes. Until a later term begins, it reports that
/// there is no leader, since the one that it reported last no longer holds the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LeaderFilter {
    /// The leader that was reported last. The outer `None`: nothing was reported yet.
    reported: Option<Option<Leader>>,
    /// The latest leader that was reported, and the number of its value. A state without a leader does not end it.
    latest: Option<(Leader, u64)>,
}

impl LeaderFilter {
    /// Takes the next state of the store. Returns what the observer reports, if that differs from its last report.
    pub fn handle(
        &mut self,
        holder: Option<LeaseId>,
        value: Option<&Annotation>,
    ) -> Option<Option<Leader>> {
        let leader = Leader::numbered(holder, value).and_then(|read| self.latest_of(read));
        if self.reported.as_ref() == Some(&leader) {
            return None;
        }
        self.reported = Some(leader.clone());
        Some(leader)
    }

    /// The leader that was read, with its latest value. `None`: its term is over.
    fn latest_of(&mut self, read: (Leader, u64)) -> Option<Leader> {
        if let Some((latest, number)) = &self.latest {
            let is_same = (read.0.term, read.0.lease) == (latest.term, latest.lease);
            if read.0.term <= latest.term && !is_same {
                return None;
            }
            if is_same && read.1 < *number {
                return Some(latest.clone());
            }
        }
        let (leader, _) = self.latest.insert(read);
        Some(leader.clone())
    }
}

#[cfg(test)]
mod tests;
