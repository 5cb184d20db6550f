//! What makes two states the same.

use std::array;

use super::setup::Setup;
use super::state::{ATTEMPTS, Acquire, Attempt, Packed, Renew, Stand, State};
use crate::model::order::orders;

impl<const N: usize> State<N> {
    /// Leaves out what no step and no property can use any more.
    pub(super) fn forget(&mut self, setup: Setup) {
        for at in 0..setup.attempts {
            for master in &mut self.masters {
                let held = usize::from(master.hold) == at + 1;
                let cell = &mut master.cells[at];
                // It would not take the token.
                if cell.acquire == Acquire::Granted && !held {
                    cell.acquire = Acquire::Spent;
                }
            }
            let masters = self.masters.iter();
            let hopeful = masters.filter(|it| it.cells[at].acquire != Acquire::Spent);
            let hopeless = hopeful.count() < N / 2 + 1;
            let attempt = self.attempts[at];
            let over = match attempt.stand {
                Stand::Idle => false,
                Stand::Asking => hopeless || setup.relied_on(attempt.age) == 0,
                Stand::Taken => setup.relied_on(attempt.age) == 0,
                Stand::Holding => attempt.left == 0,
                Stand::Over => true,
            };
            if over {
                self.end(at);
            }
        }
        let out = self.masters.iter().any(|it| it.out > 0);
        let asked = setup.is_inspected() && (out || self.faults > 0);
        for master in &mut self.masters {
            if master.hold == 0 {
                master.left = 0;
            }
            master.used &= asked;
            master.decided &= asked;
        }
    }

    /// An attempt that relies on nothing any more releases what it has, sooner or later. To let others
    /// in later is the same as that they ask later, so it is done at once.
    fn end(&mut self, at: usize) {
        self.attempts[at] = Attempt {
            stand: Stand::Over,
            ..Attempt::default()
        };
        for master in &mut self.masters {
            if usize::from(master.hold) == at + 1 {
                (master.hold, master.left) = (0, 0);
            }
            master.cells[at].acquire = Acquire::Spent;
            master.cells[at].renew = Renew::Open;
        }
    }

    /// The one form of all states that differ only in the names of masters and attempts.
    pub(super) fn arranged(&self, attempts: usize) -> Packed<N> {
        let keys: [_; ATTEMPTS] = array::from_fn(|at| self.key(at));
        let alike = |one: usize, other: usize| {
            // Then they have no messages and no leases.
            let same = self.attempts[one].stand == self.attempts[other].stand;
            same && matches!(self.attempts[one].stand, Stand::Idle | Stand::Over)
        };
        let mut least = None;
        orders(&keys, attempts, alike, |order| {
            let mut packed = self.renamed(order).pack();
            packed.sort();
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
        let mut renamed = *self;
        renamed.attempts = order.map(|at| self.attempts[at]);
        for master in &mut renamed.masters {
            master.cells = order.map(|at| master.cells[at]);
            if let Some(holder) = usize::from(master.hold).checked_sub(1) {
                master.hold = places[holder] + 1;
            }
        }
        renamed
    }

    /// What an attempt looks like, whatever its letter and those of the masters.
    fn key(&self, at: usize) -> (u32, u64) {
        let cells = self.masters.iter().map(|master| {
            let held = usize::from(master.hold) == at + 1;
            let cell = u64::from(master.cells[at].pack()) << 1 | u64::from(held);
            let cell = cell << 8 | u64::from(master.left);
            // Their sum does not depend on the order of the masters.
            cell.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 3
        });
        (self.attempts[at].pack(), cells.sum())
    }
}
