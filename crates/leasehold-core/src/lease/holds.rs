//! Re-entry: several holds of one owner on one lease.

use std::slice;
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
#[derive(Clone, Debug, Default)]
pub struct Holds {
    list: HoldList,
    entered: u64,
}

/// One hold, the usual case, takes no memory of its own: there may be a million leases.
#[derive(Clone, Debug)]
enum HoldList {
    One((HoldId, Term)),
    Many(Vec<(HoldId, Term)>),
}

impl Default for HoldList {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl HoldList {
    fn as_slice(&self) -> &[(HoldId, Term)] {
        match self {
            Self::One(hold) => slice::from_ref(hold),
            Self::Many(holds) => holds,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [(HoldId, Term)] {
        match self {
            Self::One(hold) => slice::from_mut(hold),
            Self::Many(holds) => holds,
        }
    }
}

impl HoldList {
    fn push(&mut self, hold: (HoldId, Term)) {
        match self {
            Self::One(first) => *self = Self::Many(vec![*first, hold]),
            Self::Many(holds) if holds.is_empty() => *self = Self::One(hold),
            Self::Many(holds) => holds.push(hold),
        }
    }

    /// The ids grow in the order of entry.
    fn position(&self, id: HoldId) -> Option<usize> {
        let found = self.as_slice().binary_search_by_key(&id.0, |(id, _)| id.0);
        found.ok()
    }

    fn remove(&mut self, position: usize) {
        match self {
            Self::One(_) => *self = Self::default(),
            Self::Many(holds) => {
                holds.remove(position);
                if let [only] = holds[..] {
                    *self = Self::One(only);
                }
            }
        }
    }
}

impl Holds {
    /// Adds a hold.
    pub fn enter(&mut self, term: Term) -> HoldId {
        let id = HoldId(self.entered);
        self.entered += 1;
        self.list.push((id, term));
        id
    }

    /// Removes a hold. `false` if there is no such hold.
    pub fn leave(&mut self, id: HoldId) -> bool {
        let position = self.list.position(id);
        if let Some(position) = position {
            self.list.remove(position);
        }
        position.is_some()
    }

    /// Sets the term of a hold, once the time of its request is known.
    pub fn set_term(&mut self, id: HoldId, term: Term) {
        if let Some(position) = self.list.position(id)
            && let Some(hold) = self.list.as_mut_slice().get_mut(position)
        {
            hold.1 = term;
        }
    }

    fn iter(&self) -> impl Iterator<Item = (HoldId, Term)> {
        self.list.as_slice().iter().copied()
    }

    /// The term of a hold.
    #[must_use]
    pub fn term(&self, id: HoldId) -> Option<Term> {
        let (_, term) = self.list.as_slice().get(self.list.position(id)?)?;
        Some(*term)
    }

    /// How many holds there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.list.as_slice().len()).unwrap_or(u32::MAX)
    }

    /// Whether any of them needs the lease renewed.
    #[must_use]
    pub fn renewed(&self) -> bool {
        self.iter().any(|(_, term)| matches!(term, Term::Renewed))
    }

    /// When the last fixed hold ends. `None`: all are renewed.
    #[must_use]
    pub fn fixed_end(&self) -> Option<Instant> {
        let ends = self.iter().filter_map(|(_, term)| match term {
            Term::Fixed(end) => Some(end),
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
        let ttls = self.iter().map(|(_, term)| match term {
            Term::Renewed => renewal,
            Term::Fixed(until) => covering(now.until(until)),
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
    use crate::fixture::{at, ms, ttl};
    use crate::time;

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
        let others = [(); 3].map(|()| holds.enter(Term::Renewed));
        assert!(holds.leave(others[1]) && !holds.leave(others[1]));
        assert_eq!(holds.count(), 3);
        assert!(holds.leave(inner) && holds.leave(others[0]));
        assert_eq!(holds.term(others[2]), Some(Term::Renewed));
        assert!(holds.leave(others[2]));
        assert_eq!((holds.count(), holds.term(others[2])), (0, None));
    }

    #[test]
    fn every_hold_gets_its_time() {
        let renewal = ttl(300);
        for left in [1, 10, 299, 300, 301, 5_000, 80_000_000] {
            let now = at(1_000);
            let until = now.after(ms(left));
            let mut holds = Holds::default();
            holds.enter(Term::Fixed(until));
            let fixed = holds.ttl(now, renewal);
            assert!(time::deadline(now, fixed) >= until, "{left} ms left");
            holds.enter(Term::Renewed);
            assert_eq!(holds.ttl(now, renewal), fixed.max(renewal));
        }
    }
}
