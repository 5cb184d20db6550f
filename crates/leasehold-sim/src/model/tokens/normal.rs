//! What makes two states the same.

use std::array;

use super::setup::{Back, Broken, Setup};
use super::state::{ATTEMPTS, Acquire, Fence, Packed, Stage, Stand, State};
use crate::model::order::orders;

impl<const N: usize> State<N> {
    /// Leaves out what no step and no property can use any more.
    pub(super) fn forget(&mut self, setup: Setup) {
        let out = self.masters.iter().any(|it| it.stage == Stage::Out);
        let open = self.masters.iter().any(|it| it.stage == Stage::Open);
        let open = open && !setup.together;
        let catching_up = open || (out && setup.back == Back::CaughtUp);
        if !catching_up {
            self.read = 0;
        }
        for master in &mut self.masters {
            master.read &= catching_up;
        }
        for at in 0..setup.attempts {
            self.forget_messages(setup, at);
        }
        let waited_for = out && !matches!(setup.back, Back::AtOnce | Back::CaughtUp);
        for master in &mut self.masters {
            // Who will write no more does not need its lease.
            let holder = usize::from(master.hold).checked_sub(1);
            let cell = holder.map(|at| master.cells[at]);
            let of_use = cell.is_some_and(|cell| {
                matches!(cell.acquire, Acquire::Granted(_)) || cell.fence == Fence::Sent
            });
            if !of_use {
                master.hold = 0;
            }
            master.old &= waited_for && master.hold != 0;
        }
        self.forget_attempts(setup);
    }

    fn forget_messages(&mut self, setup: Setup, at: usize) {
        let anybody = setup.broken.is_some_and(Broken::writes_by_anybody);
        let everywhere = setup.broken == Some(Broken::WriteEverywhere);
        let twice = setup.broken == Some(Broken::IdTwice);
        let writing = self.attempts[at].stand == Stand::Writing;
        for master in &mut self.masters {
            let held = usize::from(master.hold) == at + 1;
            let cell = &mut master.cells[at];
            // Or may hold it yet.
            let late = everywhere && cell.acquire == Acquire::Open;
            let of_use = held || anybody || late || (twice && writing);
            if cell.fence == Fence::Sent && !of_use {
                cell.fence = Fence::None;
            }
        }
        let masters = self.masters.iter();
        let taken = masters.filter(|it| it.cells[at].fence != Fence::None);
        let hopeless = taken.count() < Self::majority() && setup.broken != Some(Broken::InDoubt);
        if writing && hopeless {
            self.attempts[at].stand = Stand::Over;
        }
        let stand = self.attempts[at].stand;
        for master in &mut self.masters {
            let cell = &mut master.cells[at];
            if stand != Stand::Writing && cell.fence == Fence::Taken {
                cell.fence = Fence::None;
            }
            if stand == Stand::Over && cell.acquire != Acquire::Open {
                cell.acquire = Acquire::Spent;
            }
        }
    }

    fn forget_attempts(&mut self, setup: Setup) {
        // On one store, who was granted the lock has owned it, whether it has heard of it or not.
        let mut may_win = vec![Stand::Writing, Stand::Won];
        if N == 1 {
            may_win.push(Stand::Asking);
        }
        let may_win = self.standing(&may_win);
        let won = self.standing(&[Stand::Won]);
        for at in 0..setup.attempts {
            let mut masters = self.masters.iter();
            let sent = masters.any(|master| master.cells[at].fence == Fence::Sent);
            let attempt = &mut self.attempts[at];
            attempt.owned_before &= may_win;
            match attempt.stand {
                Stand::Over => {
                    (attempt.before, attempt.owned_before) = (0, 0);
                    if !sent {
                        attempt.token = 0;
                    }
                }
                Stand::Won => {
                    attempt.before = 0;
                    // Compared with all that have won already. A resource compares them later.
                    if !setup.resource {
                        attempt.owned_before &= !won;
                    }
                }
                _ => {}
            }
        }
    }

    /// The one form of all states that differ only in the names of masters and attempts.
    pub(super) fn arranged(&self, attempts: usize) -> Packed<N> {
        let keys: [_; ATTEMPTS] = array::from_fn(|at| self.key(at));
        let alike = |one: usize, other: usize| {
            let idle = |at: usize| self.attempts[at].stand == Stand::Idle;
            idle(one) && idle(other)
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
            places[*at] = place;
        }
        let rename = |set: u8| {
            let members = (0..ATTEMPTS).filter(|at| set & 1 << at != 0);
            members.fold(0, |all, at| all | 1 << places[at])
        };
        let mut renamed = *self;
        renamed.attempts = order.map(|at| {
            let mut attempt = self.attempts[at];
            attempt.before = rename(attempt.before);
            attempt.owned_before = rename(attempt.owned_before);
            attempt
        });
        for master in &mut renamed.masters {
            master.cells = order.map(|at| master.cells[at]);
            if let Some(holder) = usize::from(master.hold).checked_sub(1) {
                master.hold = places[holder] as u8 + 1;
            }
        }
        renamed
    }

    /// What an attempt looks like, whatever its letter and those of the masters.
    fn key(&self, at: usize) -> (u32, u64) {
        let attempt = self.attempts[at];
        let sets = [attempt.before, attempt.owned_before];
        let [before, owned_before] = sets.map(|set| set.count_ones() as u8);
        let stand = attempt.stand as u8 | u8::from(attempt.wrote) << 7;
        let own = u32::from_le_bytes([stand, attempt.token, before, owned_before]);
        let cells = self.masters.iter().map(|master| {
            let held = usize::from(master.hold) == at + 1;
            let cell = u64::from(master.cells[at].pack()) << 1 | u64::from(held);
            // Their sum does not depend on the order of the masters.
            (cell << 8 | u64::from(master.counter)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 3
        });
        (own, cells.sum())
    }
}
