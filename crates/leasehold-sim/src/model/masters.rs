//! States of masters, attempts, and the messages between them, and their canonical form.

use std::array;

/// The most attempts that a model can have.
pub(super) const ATTEMPTS: usize = 4;

/// A master, with the messages to and from it.
pub(super) trait MasterState: Copy + Ord {
    /// The messages of one attempt.
    type Cell: Copy;

    /// The attempt whose lease holds the lock, plus one.
    fn hold(&mut self) -> &mut u8;

    fn cells(&mut self) -> &mut [Self::Cell; ATTEMPTS];
}

/// One acquisition.
pub(super) trait AttemptState: Copy + Default + Ord {
    /// The same, once each attempt has a new place.
    fn renamed(self, _places: &[u8; ATTEMPTS]) -> Self {
        self
    }
}

/// A state of a model over `N` masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct State<const N: usize, M, A, R> {
    pub(super) masters: [M; N],
    pub(super) attempts: [A; ATTEMPTS],
    pub(super) rest: R,
}

impl<const N: usize, M: MasterState, A: AttemptState, R: Copy + Ord> State<N, M, A, R> {
    /// A state before all attempts.
    pub(super) fn new(masters: [M; N], rest: R) -> Self {
        Self {
            masters,
            attempts: [A::default(); ATTEMPTS],
            rest,
        }
    }

    /// The one form of all states that differ only in the names of masters and attempts.
    pub(super) fn canonical(self, attempts: usize) -> Self {
        let orders = (0..(1..=attempts).product()).map(|number| permutation(number, attempts));
        let renamed = orders.map(|order| self.renamed(&order));
        renamed.min().unwrap_or(self)
    }

    /// The same with the attempts in another order, and the masters sorted.
    fn renamed(mut self, order: &[usize; ATTEMPTS]) -> Self {
        let mut places = [0; ATTEMPTS];
        for (place, at) in order.iter().enumerate() {
            places[*at] = place as u8;
        }
        for master in &mut self.masters {
            *master.cells() = order.map(|at| master.cells()[at]);
            if let Some(holder) = usize::from(*master.hold()).checked_sub(1) {
                *master.hold() = places[holder] + 1;
            }
        }
        self.masters.sort_unstable();
        self.attempts = order.map(|at| self.attempts[at].renamed(&places));
        self
    }
}

/// The permutation of the first `count` places with this number.
fn permutation(mut number: usize, count: usize) -> [usize; ATTEMPTS] {
    let mut order = array::from_fn(|at| at);
    for place in 0..count {
        order.swap(place, place + number % (count - place));
        number /= count - place;
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_number_is_another_permutation() {
        let orders: BTreeSet<_> = (0..6).map(|number| permutation(number, 3)).collect();
        assert_eq!(orders.len(), 6);
        assert!(orders.iter().all(|order| order[3] == 3));
    }
}
