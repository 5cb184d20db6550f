//! The steps of a state, and its reduction: without it, there are many more that differ in nothing of interest.

use leasehold_core::Outcome;

use super::rule::UNLIMITED;
use super::setup::{Admission, Fault, Times};
use super::state::{Acquire, Attempt, Master, Phase, Renew, State};
use crate::model::core;
use crate::model::explore::Take;
use crate::model::labels::{list, majorities, members, name};

impl<const N: usize> Times<N> {
    pub(super) fn all_steps(&self, state: &State<N>, take: Take<'_, State<N>>) {
        take(&"a tick", self.tick(state));
        let mut idle = false;
        for at in 0..self.attempts {
            match state.attempts[at].phase {
                // The idle ones do not differ.
                Phase::Idle if idle => continue,
                Phase::Idle => idle = true,
                Phase::Acquiring => self.store_token(state, at, take),
                Phase::Written => self.hold(state, at, take),
                Phase::Holding => self.hold_on(state, at, take),
                Phase::Over => {}
            }
            for master in 0..N {
                self.grant(state, at, master, take);
            }
        }
        for master in 0..N {
            self.fault(state, master, take);
            self.decide_admission(state, master, take);
            self.gain(state, master, take);
        }
    }

    /// Time passes for all masters and attempts.
    fn tick(&self, state: &State<N>) -> State<N> {
        let mut next = *state;
        for master in &mut next.masters {
            self.advance(master);
        }
        for attempt in &mut next.attempts {
            match attempt.phase {
                // More than a ttl makes no further difference.
                Phase::Acquiring | Phase::Written => attempt.age = self.ttl.min(attempt.age + 1),
                Phase::Holding if attempt.remaining != UNLIMITED => attempt.remaining -= 1,
                _ => {}
            }
            if attempt.renewing > 0 {
                attempt.renewing = (self.ttl + 1).min(attempt.renewing + 1);
            }
        }
        next
    }

    /// Time passes for a master.
    fn advance(&self, master: &mut Master) {
        master.remaining = master.remaining.saturating_sub(1);
        if master.remaining == 0 {
            master.hold = 0;
        }
        if master.kept_out > 0 {
            // More than the wait makes no further difference.
            master.kept_out = self.wait_max().min(master.kept_out + 1);
            if self.fault == Fault::RestartEarly && master.kept_out >= self.ttl {
                master.kept_out = 0;
            }
        }
    }

    /// A client decides to admit a master by the replies of some others, and does so later.
    fn decide_admission(&self, state: &State<N>, master: usize, take: Take<'_, State<N>>) {
        let target = &state.masters[master];
        if target.kept_out == 0 {
            return;
        }
        let number = master + 1;
        let mut next = *state;
        if target.decided {
            next.masters[master].kept_out = 0;
            next.masters[master].decided = self.admission == Admission::Unchecked;
            take(&format_args!("{number} is admitted"), next);
            return;
        }
        for others in (0..1_u32 << N).filter(|others| others & 1 << master == 0) {
            let Some(used) = self.admission_with(state, master, others) else {
                continue;
            };
            let mut next = *state;
            next.masters[master].used |= used;
            next.masters[master].decided = true;
            let others = list(others);
            let step =
                format_args!("the admission of {number} is decided with the replies of {others}");
            take(&step, next);
        }
    }

    /// A master runs an acquire. The attempt begins with the first: an earlier request would only make its
    /// deadline earlier.
    fn grant(&self, state: &State<N>, at: usize, master: usize, take: Take<'_, State<N>>) {
        if state.masters[master].cells[at].acquire != Acquire::Open {
            return;
        }
        let mut next = *state;
        let target = &mut next.masters[master];
        let outcome = self.apply(target, &core::acquire(at, self.ttl(), None));
        if !matches!(outcome, Some(Outcome::Granted { .. })) {
            return;
        }
        let phase = &mut next.attempts[at].phase;
        target.cells[at].acquire = match phase {
            Phase::Idle | Phase::Acquiring => {
                *phase = Phase::Acquiring;
                Acquire::Granted
            }
            _ => Acquire::Spent,
        };
        take(&format_args!("{} grants to {}", master + 1, name(at)), next);
    }

    /// An attempt receives the grants of a majority, which stores its token.
    fn store_token(&self, state: &State<N>, at: usize, take: Take<'_, State<N>>) {
        for majority in majorities(N) {
            let is_granted =
                |at_master: usize| state.masters[at_master].cells[at].acquire == Acquire::Granted;
            let granted = members(majority).all(is_granted);
            let mut next = *state;
            if granted && self.write(&mut next, at, majority) {
                next.attempts[at].phase = Phase::Written;
                for master in &mut next.masters {
                    let acquire = &mut master.cells[at].acquire;
                    if *acquire == Acquire::Granted {
                        *acquire = Acquire::Spent;
                    }
                }
                let (name, majority) = (name(at), list(majority));
                let step = format_args!("{name} owns {majority}, which store its token");
                take(&step, next);
            }
        }
    }

    /// An attempt receives the replies, and reads its clock.
    fn hold(&self, state: &State<N>, at: usize, take: Take<'_, State<N>>) {
        let mut next = *state;
        let remaining = self.reliable_for(state.attempts[at].age);
        next.attempts[at] = Attempt {
            phase: Phase::Holding,
            remaining,
            ..Attempt::default()
        };
        next.rest.won = 2.min(next.rest.won + 1);
        let step = format_args!("{} relies on the lock for {remaining} ticks", name(at));
        take(&step, next);
    }

    /// A holder renews its lease, or stops relying on it.
    fn hold_on(&self, state: &State<N>, at: usize, take: Take<'_, State<N>>) {
        let mut next = *state;
        next.attempts[at].phase = Phase::Over;
        take(&format_args!("{} stops", name(at)), next);
        if !self.renewed {
            return;
        }
        for master in 0..N {
            if state.masters[master].cells[at].renew == Renew::Open {
                self.renew_on(state, at, master, take);
            }
        }
        if state.attempts[at].renewing > 0 {
            let mut next = *state;
            next.end_renewal(at);
            take(&format_args!("{} gives up the renewal", name(at)), next);
            self.renewed(state, at, take);
        }
    }

    /// A master runs a renewal. It is sent with the first: earlier would make its deadline earlier.
    fn renew_on(&self, state: &State<N>, at: usize, on: usize, take: Take<'_, State<N>>) {
        let mut next = *state;
        let Some(reply) = self.renew(&mut next.masters[on], at) else {
            return;
        };
        next.masters[on].cells[at].renew = reply;
        let renewing = &mut next.attempts[at].renewing;
        *renewing = 1.max(*renewing);
        let (master, name) = (on + 1, name(at));
        let step = format_args!("{master} receives a renewal of {name}: {reply:?}");
        take(&step, next);
    }

    /// A holder receives the renewals of a majority. It repeats its acquire where the lease was lost.
    fn renewed(&self, state: &State<N>, at: usize, take: Take<'_, State<N>>) {
        let Some(lost) = self.vote(state, at) else {
            return;
        };
        let mut next = *state;
        let holder = &mut next.attempts[at];
        holder.remaining = holder.remaining.max(self.reliable_for(holder.renewing - 1));
        let remaining = holder.remaining;
        next.end_renewal(at);
        for (index, master) in next.masters.iter_mut().enumerate() {
            if lost & 1 << index != 0 {
                master.cells[at].acquire = Acquire::Open;
            }
        }
        let step = format_args!("{} has renewed, for {remaining} ticks", name(at));
        take(&step, next);
    }

    fn fault(&self, state: &State<N>, master: usize, take: Take<'_, State<N>>) {
        if state.rest.faults == 0 {
            return;
        }
        let mut next = *state;
        next.rest.faults -= 1;
        let target = &mut next.masters[master];
        (target.hold, target.remaining, target.used) = (0, 0, false);
        // The script admits only the run that was inspected.
        target.decided &= self.admission == Admission::Unchecked;
        let is_kept_out = match self.fault {
            Fault::Jump | Fault::RestartAtOnce => false,
            Fault::RestartUnowned => state.has_owner(master),
            _ => true,
        };
        if is_kept_out {
            target.kept_out = 1;
        }
        take(&format_args!("{}: {:?}", master + 1, self.fault), next);
    }

    /// The clock of a master is faster than those of the clients.
    fn gain(&self, state: &State<N>, master: usize, take: Take<'_, State<N>>) {
        let target = state.masters[master];
        if target.gained < self.gain && (target.hold != 0 || target.kept_out > 0) {
            let mut next = *state;
            next.masters[master].gained += 1;
            self.advance(&mut next.masters[master]);
            let step = format_args!("the clock of {} gains a tick", master + 1);
            take(&step, next);
        }
    }
}

impl<const N: usize> State<N> {
    /// Whether the lease that holds the lock on a master is that of an owner.
    fn has_owner(&self, master: usize) -> bool {
        let holder = usize::from(self.masters[master].hold).checked_sub(1);
        let phase = holder.map(|at| self.attempts[at].phase);
        matches!(phase, Some(Phase::Written | Phase::Holding))
    }

    /// Removes what no step and no property can still use.
    pub(super) fn reduce(&mut self, setup: &Times<N>) {
        for at in 0..setup.attempts {
            for master in &mut self.masters {
                let held = usize::from(master.hold) == at + 1;
                let cell = &mut master.cells[at];
                // It would not store the token. A proposal is stored with the grant.
                if cell.acquire == Acquire::Granted && !held && !setup.proposed {
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

    /// An attempt that can no longer hold the lock releases its leases, at any time. A later release has the
    /// effect of later requests of the others, so it happens immediately.
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

    fn end_renewal(&mut self, at: usize) {
        self.attempts[at].renewing = 0;
        for master in &mut self.masters {
            master.cells[at].renew = Renew::Open;
        }
    }
}
