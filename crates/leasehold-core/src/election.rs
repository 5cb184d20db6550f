//! Leader election: what an observer is told.
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

impl Leader {
    /// The leader in a store that shows this holder and this value. `None`: nobody holds the lock, or the value was
    /// written under an earlier lease, so that the holder has not proclaimed one yet.
    #[must_use]
    pub fn of(holder: Option<LeaseId>, value: Option<&Annotation>) -> Option<Self> {
        let value = value.filter(|value| holder == Some(value.lease))?;
        Some(Self {
            value: Arc::clone(&value.text),
            term: value.token,
            lease: value.lease,
        })
    }
}

/// What an observer has been told so far: its terms never fall.
///
/// A store that lost its last writes in a failover can show a leader of an earlier term again. That leader is not
/// told: a resource that checks tokens refuses its writes. Until a later term begins, the observer is told that there
/// is no leader, since the one that it was told does not hold the lock any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LeaderFilter {
    /// The leader that was told last. The outer `None`: nothing was told yet.
    told: Option<Option<Leader>>,
    /// The latest term that was told, and its lease. A state without a leader does not end it.
    latest: Option<(Token, LeaseId)>,
}

impl LeaderFilter {
    /// Takes the next state of the store. Returns what the observer is told, if that differs from what it was told last.
    pub fn handle(
        &mut self,
        holder: Option<LeaseId>,
        value: Option<&Annotation>,
    ) -> Option<Option<Leader>> {
        let leader = Leader::of(holder, value).filter(|leader| self.accepts(leader));
        if let Some(leader) = &leader {
            self.latest = Some((leader.term, leader.lease));
        }
        if self.told.as_ref() == Some(&leader) {
            return None;
        }
        self.told = Some(leader.clone());
        Some(leader)
    }

    fn accepts(&self, leader: &Leader) -> bool {
        self.latest.is_none_or(|(term, lease)| {
            leader.term > term || (leader.term == term && leader.lease == lease)
        })
    }
}

#[cfg(test)]
mod tests;
