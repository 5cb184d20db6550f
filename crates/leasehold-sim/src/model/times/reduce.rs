//! The reduction of states: without it, there are many more that differ in nothing of interest.

use super::setup::Times;
use super::state::{Acquire, Attempt, Phase, Renew, State};

impl<const N: usize> State<N> {
    /// Removes what no step and no property can use any more.
    pub(super) fn reduce(&mut self, setup: &Times<N>) {
        for at in 0..setup.attempts {
            for master in &mut self.masters {
                let held = usize::from(master.hold) == at + 1;
                let cell = &mut master.cells[at];
                // It would not store the token.
                if cell.acquire == Acquire::Granted && !held {
                    cell.acquire = Acquire::Spent;
                }
            }
            let masters = self.masters.iter();
            let open = masters.filter(|master| master.cells[at].acquire != Acquire::Spent);
            let hopeless = open.count() < N / 2 + 1;
            let attempt = self.attempts[at];
            let over = match attempt.phase {
                Phase::Idle => false,
                Phase::Acquiring => hopeless || setup.reliable_for(attempt.age) == 0,
                Phase::Written => setup.reliable_for(attempt.age) == 0,
                Phase::Holding => attempt.remaining == 0,
                Phase::Over => true,
            };
            if over {
                self.end(at);
            }
        }
        let kept_out = self.masters.iter().any(|master| master.kept_out > 0);
        let inspected = setup.is_inspected() && (kept_out || self.rest.faults > 0);
        for master in &mut self.masters {
            if master.hold == 0 {
                master.remaining = 0;
            }
            master.used &= inspected;
            master.decided &= inspected;
        }
    }

    /// An attempt that cannot hold the lock any more releases its leases, at any time. A later release has the
    /// effect of later requests of the others, so it happens at once.
    fn end(&mut self, at: usize) {
        self.attempts[at] = Attempt {
            phase: Phase::Over,
            ..Attempt::default()
        };
        for master in &mut self.masters {
            if usize::from(master.hold) == at + 1 {
                (master.hold, master.remaining) = (0, 0);
            }
            master.cells[at].acquire = Acquire::Spent;
            master.cells[at].renew = Renew::Open;
        }
    }
}
