//! States of masters, attempts, and the messages between them: how they are stored, and their canonical form.

use std::array;

use super::order::orders;

/// The most attempts that a model can have.
pub(super) const ATTEMPTS: usize = 4;

/// A master, with the messages to and from it.
pub(super) trait MasterState: Copy {
    /// The messages of one attempt.
    type Cell: CellState;

    /// Four bytes: first the attempt whose lease holds the lock, plus one.
    fn head(&self) -> [u8; 4];

    fn cells(&self) -> &[Self::Cell; ATTEMPTS];

    fn new(head: [u8; 4], cells: [Self::Cell; ATTEMPTS]) -> Self;
}

/// The messages between an attempt and a master.
pub(super) trait CellState: Copy {
    fn pack(self) -> u8;

    fn unpack(packed: u8) -> Self;
}

/// One acquisition.
pub(super) trait AttemptState: Copy {
    fn pack(self) -> [u8; 4];

    fn unpack(packed: [u8; 4]) -> Self;

    /// The same, once each attempt has a new place.
    fn renamed(self, places: &[u8; ATTEMPTS]) -> Self;

    /// What does not depend on the order of the attempts.
    fn key(self) -> [u8; 4];

    /// Whether it has no messages and no lease, and differs from others like it in nothing.
    fn is_inactive(self) -> bool;
}

/// A state of a model over `N` masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State<const N: usize, M, A, R> {
    pub(super) masters: [M; N],
    pub(super) attempts: [A; ATTEMPTS],
    pub(super) rest: R,
}

/// A state as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Packed<const N: usize> {
    masters: [u64; N],
    attempts: [u32; ATTEMPTS],
    rest: u32,
}

impl<const N: usize> Packed<N> {
    pub(super) fn unpack<M, A, R>(&self) -> State<N, M, A, R>
    where
        M: MasterState,
        A: AttemptState,
        R: From<[u8; 4]>,
    {
        let master = |packed: u64| {
            let [head @ .., a, b, c, d] = packed.to_le_bytes();
            M::new(head, [a, b, c, d].map(M::Cell::unpack))
        };
        State {
            masters: self.masters.map(master),
            attempts: self.attempts.map(|it| A::unpack(it.to_le_bytes())),
            rest: self.rest.to_le_bytes().into(),
        }
    }
}

impl<const N: usize, M, A, R> State<N, M, A, R>
where
    M: MasterState,
    A: AttemptState,
    R: Copy + Into<[u8; 4]>,
{
    pub(super) fn pack(&self) -> Packed<N> {
        let master = |master: M| {
            let [a, b, c, d] = master.head();
            let [e, f, g, h] = master.cells().map(M::Cell::pack);
            u64::from_le_bytes([a, b, c, d, e, f, g, h])
        };
        Packed {
            masters: self.masters.map(master),
            attempts: self.attempts.map(|it| u32::from_le_bytes(it.pack())),
            rest: u32::from_le_bytes(self.rest.into()),
        }
    }

    /// The one form of all states that differ only in the names of masters and attempts.
    pub(super) fn canonical(&self, attempts: usize) -> Packed<N> {
        let keys: [_; ATTEMPTS] = array::from_fn(|at| self.key(at));
        let alike = |one: usize, other: usize| {
            let [one, other] = [one, other].map(|at| self.attempts[at]);
            one.is_inactive() && one.pack() == other.pack()
        };
        let mut least = None;
        orders(&keys, attempts, alike, |order| {
            let mut packed = match order.is_sorted() {
                true => self.pack(),
                false => self.renamed(order).pack(),
            };
            packed.masters.sort_unstable();
            least = Some(least.map_or(packed, |least: Packed<N>| least.min(packed)));
        });
        least.unwrap_or_else(|| self.pack())
    }

    /// The same with the attempts in another order.
    fn renamed(&self, order: &[usize; ATTEMPTS]) -> Self {
        let mut places = [0; ATTEMPTS];
        for (place, at) in order.iter().enumerate() {
            places[*at] = place as u8;
        }
        let master = |master: M| {
            let mut head = master.head();
            if let Some(holder) = usize::from(head[0]).checked_sub(1) {
                head[0] = places[holder] + 1;
            }
            M::new(head, order.map(|at| master.cells()[at]))
        };
        Self {
            masters: self.masters.map(master),
            attempts: order.map(|at| self.attempts[at].renamed(&places)),
            rest: self.rest,
        }
    }

    /// The properties of an attempt that do not depend on its name and those of the masters.
    fn key(&self, at: usize) -> ([u8; 4], u64) {
        let cells = self.masters.iter().map(|master| {
            let [hold, a, b, c] = master.head();
            let held = u8::from(usize::from(hold) == at + 1);
            let cell = master.cells()[at].pack();
            let cell = u64::from_le_bytes([a, b, c, held, cell, 0, 0, 0]);
            // Their sum does not depend on the order of the masters.
            cell.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 3
        });
        (self.attempts[at].key(), cells.sum())
    }
}
