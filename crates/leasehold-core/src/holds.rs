//! Re-entry: several holds of one owner on one lease.

use std::time::Duration;

use crate::time::{Instant, Ttl, drift};

/// One hold on a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HoldId(u64);

/// How long a hold needs its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// Renewed until it is released.
    Renewed,
    /// Until this instant and no longer.
    Fixed(Instant),
}

/// The holds of one lease, in the order of entry.
#[derive(Clone, Debug)]
pub struct Holds {
    entries: Vec<(HoldId, Term)>,
    entered: u64,
}

impl Default for Holds {
    fn default() -> Self {
        Self {
            // Nearly always there is one, and there may be a million leases.
            entries: Vec::with_capacity(1),
            entered: 0,
        }
    }
}

impl Holds {
    /// Adds a hold.
    pub fn enter(&mut self, term: Term) -> HoldId {
        let id = HoldId(self.entered);
        self.entered += 1;
        self.entries.push((id, term));
        id
    }

    /// Removes a hold. `false` if there is no such hold.
    pub fn leave(&mut self, id: HoldId) -> bool {
        let before = self.entries.len();
        self.entries.retain(|(entry, _)| *entry != id);
        self.entries.len() < before
    }

    /// Sets the term of a hold, once the time of its request is known.
    pub fn set_term(&mut self, id: HoldId, term: Term) {
        if let Some(entry) = self.entries.iter_mut().find(|(entry, _)| *entry == id) {
            entry.1 = term;
        }
    }

    /// The term of a hold.
    #[must_use]
    pub fn term(&self, id: HoldId) -> Option<Term> {
        self.entries
            .iter()
            .find(|(entry, _)| *entry == id)
            .map(|(_, term)| *term)
    }

    /// How many holds there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Whether any of them needs the lease renewed.
    #[must_use]
    pub fn renewed(&self) -> bool {
        self.entries
            .iter()
            .any(|(_, term)| matches!(term, Term::Renewed))
    }

    /// When the last fixed hold ends. `None`: all are renewed.
    #[must_use]
    pub fn fixed_end(&self) -> Option<Instant> {
        let ends = self.entries.iter().filter_map(|(_, term)| match term {
            Term::Fixed(end) => Some(*end),
            Term::Renewed => None,
        });
        ends.max()
    }

    /// The ttl of an operation that is sent at `now`, so that the lease lasts for every hold.
    ///
    /// It may be shorter than one that the store has confirmed already: a store shortens no lease before its
    /// last release, so replies may arrive in any order, and the latest deadline is valid.
    #[must_use]
    pub fn ttl(&self, now: Instant, renewal: Ttl) -> Ttl {
        let ttls = self.entries.iter().map(|(_, term)| match term {
            Term::Renewed => renewal,
            Term::Fixed(until) => covering(now.until(*until)),
        });
        ttls.max().unwrap_or(Ttl::remainder(Duration::ZERO))
    }
}

/// The ttl whose validity is at least `span`.
fn covering(span: Duration) -> Ttl {
    // drift(ttl) is a hundredth of the ttl; a fiftieth of the shorter span covers it.
    Ttl::remainder(span + drift(span) + span / 50)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn holds_leave_in_any_order() {
        let mut holds = Holds::default();
        let outer = holds.enter(Term::Renewed);
        let inner = holds.enter(Term::Fixed(at(500)));
        assert_eq!(holds.count(), 2);
        assert!(holds.leave(outer));
        assert!(!holds.leave(outer));
        assert!(!holds.renewed());
        assert_eq!(holds.term(inner), Some(Term::Fixed(at(500))));
    }

    #[test]
    fn every_hold_gets_its_time() {
        let renewal = Ttl::from_millis(300).unwrap();
        for left in [1, 10, 299, 300, 301, 5_000, 80_000_000] {
            let now = at(1_000);
            let until = now.after(Duration::from_millis(left));
            let mut holds = Holds::default();
            holds.enter(Term::Fixed(until));
            let fixed = holds.ttl(now, renewal);
            assert!(time::deadline(now, fixed) >= until, "{left} ms left");
            holds.enter(Term::Renewed);
            assert_eq!(holds.ttl(now, renewal), fixed.max(renewal));
        }
    }
}
