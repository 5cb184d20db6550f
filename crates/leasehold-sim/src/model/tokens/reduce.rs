//! The reduction of states: without it, there are many more that differ in nothing of interest.

use super::setup::{Mutation, Recovery, Tokens};
use super::state::{Acquire, Admission, Phase, State, Write};

impl<const N: usize> State<N> {
    /// Removes what no step and no property can still use.
    pub(super) fn reduce(&mut self, setup: &Tokens<N>) {
        let mut states = self.masters.iter().map(|master| master.admission);
        let kept_out = states.clone().any(|state| state == Admission::KeptOut);
        let due = states.any(|state| state == Admission::Due) && !setup.together;
        let catching_up = due || (kept_out && setup.recovery == Recovery::CaughtUp);
        if !catching_up {
            self.rest.read = 0;
        }
        for master in &mut self.masters {
            master.read &= catching_up;
        }
        for at in 0..setup.attempts {
            self.reduce_messages(setup, at);
        }
        let waited_for =
            kept_out && !matches!(setup.recovery, Recovery::AtOnce | Recovery::CaughtUp);
        for master in &mut self.masters {
            // An attempt without further writes does not need its lease.
            let holder = usize::from(master.hold).checked_sub(1);
            let cell = holder.map(|at| master.cells[at]);
            let of_use = cell.is_some_and(|cell| {
                matches!(cell.acquire, Acquire::Granted(_)) || cell.write == Write::Sent
            });
            if !of_use {
                master.hold = 0;
            }
            master.old &= waited_for && master.hold != 0;
        }
        for attempt in &mut self.attempts {
            let proposed = attempt.phase == Phase::Acquiring && attempt.proposal != 0;
            attempt.late &= proposed;
            attempt.old &= proposed && waited_for && !attempt.late;
        }
        self.reduce_attempts(setup);
    }

    fn reduce_messages(&mut self, setup: &Tokens<N>, at: usize) {
        let unheld = setup.mutation.is_some_and(Mutation::writes_unheld);
        let everywhere = setup.mutation == Some(Mutation::WriteEverywhere);
        let twice = setup.mutation == Some(Mutation::IdTwice);
        let writing = self.attempts[at].phase == Phase::Writing;
        for master in &mut self.masters {
            let held = usize::from(master.hold) == at + 1;
            let cell = &mut master.cells[at];
            // Or may hold it yet.
            let late = everywhere && cell.acquire == Acquire::Open;
            let of_use = held || unheld || late || (twice && writing);
            if cell.write == Write::Sent && !of_use {
                cell.write = Write::None;
            }
        }
        let masters = self.masters.iter();
        let stored = masters.filter(|master| master.cells[at].write != Write::None);
        let hopeless =
            stored.count() < Self::majority() && setup.mutation != Some(Mutation::InDoubt);
        if writing && hopeless {
            self.attempts[at].phase = Phase::Over;
        }
        let phase = self.attempts[at].phase;
        for master in &mut self.masters {
            let cell = &mut master.cells[at];
            if phase != Phase::Writing && cell.write == Write::Stored {
                cell.write = Write::None;
            }
            if phase == Phase::Over && cell.acquire != Acquire::Open {
                cell.acquire = Acquire::Spent;
            }
        }
    }

    fn reduce_attempts(&mut self, setup: &Tokens<N>) {
        // An attempt can have owned the lock without the reply.
        let may_win = self.in_phases(&[Phase::Acquiring, Phase::Writing, Phase::Won]);
        let won = self.in_phases(&[Phase::Won]);
        for at in 0..setup.attempts {
            let mut masters = self.masters.iter();
            let sent = masters.any(|master| master.cells[at].write == Write::Sent);
            let mut masters = self.masters.iter();
            let open = masters.any(|master| master.cells[at].acquire == Acquire::Open);
            let attempt = &mut self.attempts[at];
            // Or it may win with it.
            if !open && attempt.phase != Phase::Acquiring {
                attempt.proposal = 0;
            }
            attempt.owned_before &= may_win;
            match attempt.phase {
                Phase::Over => {
                    (attempt.before, attempt.owned_before) = (0, 0);
                    attempt.owned = false;
                    if !sent {
                        attempt.token = 0;
                    }
                }
                Phase::Won => {
                    attempt.before = 0;
                    // It was compared with all winners so far.
                    attempt.owned_before &= !won;
                }
                _ => {}
            }
        }
    }
}
