//! What can happen next.

use std::fmt;

use leasehold_core::mutex::Outcome;

use super::rule::EVER;
use super::setup::{Admission, Fault, Setup};
use super::state::{Acquire, Attempt, Master, Renew, Stand, State};
use crate::model::core;
use crate::model::words::{list, majorities, name};

/// What is told of a step.
type Take<'a, const N: usize> = &'a mut dyn FnMut(&dyn fmt::Display, State<N>);

impl Setup {
    pub(super) fn steps<const N: usize>(self, state: &State<N>, take: Take<'_, N>) {
        take(&"a tick", self.tick(state));
        let mut idle = false;
        for at in 0..self.attempts {
            match state.attempts[at].stand {
                // Those that have not begun are all the same.
                Stand::Idle if idle => continue,
                Stand::Idle => idle = true,
                Stand::Asking => self.own(state, at, take),
                Stand::Taken => self.hold(state, at, take),
                Stand::Holding => self.keep(state, at, take),
                Stand::Over => {}
            }
            for master in 0..N {
                self.ask(state, at, master, take);
            }
        }
        for master in 0..N {
            self.fault(state, master, take);
            self.admit(state, master, take);
            self.gain(state, master, take);
        }
    }

    /// Time passes for everybody.
    fn tick<const N: usize>(self, state: &State<N>) -> State<N> {
        let mut next = *state;
        for master in &mut next.masters {
            self.advance(master);
        }
        for attempt in &mut next.attempts {
            match attempt.stand {
                // Longer than a ttl is the same as a ttl.
                Stand::Asking | Stand::Taken => attempt.age = self.ttl.min(attempt.age + 1),
                Stand::Holding if attempt.left != EVER => attempt.left -= 1,
                _ => {}
            }
            if attempt.renewing > 0 {
                attempt.renewing = (self.ttl + 1).min(attempt.renewing + 1);
            }
        }
        next
    }

    /// Time passes for a master.
    fn advance(self, master: &mut Master) {
        master.left = master.left.saturating_sub(1);
        if master.left == 0 {
            master.hold = 0;
        }
        if master.out > 0 {
            // Longer than the wait is the same as the wait.
            master.out = self.out_max().min(master.out + 1);
            if self.fault == Fault::RestartEarly && master.out >= self.ttl {
                master.out = 0;
            }
        }
    }

    /// Somebody decides to admit a master, by what some of the others say, and does so later.
    fn admit<const N: usize>(self, state: &State<N>, master: usize, take: Take<'_, N>) {
        let it = &state.masters[master];
        if it.out == 0 {
            return;
        }
        let number = master + 1;
        let mut next = *state;
        if it.decided {
            next.masters[master].out = 0;
            next.masters[master].decided = self.admission == Admission::Unchecked;
            take(&format_args!("{number} is admitted"), next);
            return;
        }
        for others in (0..1_u32 << N).filter(|others| others & 1 << master == 0) {
            let Some(used) = self.admits(state, master, others) else {
                continue;
            };
            let mut next = *state;
            next.masters[master].used |= used;
            next.masters[master].decided = true;
            let answers = list(others);
            take(
                &format_args!("{number} is to be admitted, {answers} beside it having answered"),
                next,
            );
        }
    }

    /// A master runs an acquire. The attempt begins with the first: to send it earlier would only make
    /// its deadline earlier.
    fn ask<const N: usize>(self, state: &State<N>, at: usize, master: usize, take: Take<'_, N>) {
        if state.masters[master].cells[at].acquire != Acquire::Open {
            return;
        }
        let mut next = *state;
        let asked = &mut next.masters[master];
        let outcome = self.apply(asked, &core::acquire(at, self.ttl()));
        if !matches!(outcome, Some(Outcome::Granted { .. })) {
            return;
        }
        let stand = &mut next.attempts[at].stand;
        if *stand == Stand::Idle {
            *stand = Stand::Asking;
        }
        asked.cells[at].acquire = match stand {
            Stand::Asking => Acquire::Granted,
            _ => Acquire::Spent,
        };
        take(&format_args!("{} grants to {}", master + 1, name(at)), next);
    }

    /// An attempt hears that a majority has granted it, and that takes its token.
    fn own<const N: usize>(self, state: &State<N>, at: usize, take: Take<'_, N>) {
        for heard in majorities(N) {
            let mut masters = state.masters.iter().enumerate();
            let granted = masters.all(|(master, it)| {
                heard & 1 << master == 0 || it.cells[at].acquire == Acquire::Granted
            });
            let mut next = *state;
            if granted && self.write(&mut next, at, heard) {
                next.attempts[at].stand = Stand::Taken;
                for it in &mut next.masters {
                    let acquire = &mut it.cells[at].acquire;
                    if *acquire == Acquire::Granted {
                        *acquire = Acquire::Spent;
                    }
                }
                let (name, heard) = (name(at), list(heard));
                take(
                    &format_args!("{name} owns {heard}, which take its token"),
                    next,
                );
            }
        }
    }

    /// An attempt hears that it has won, and looks at its clock.
    fn hold<const N: usize>(self, state: &State<N>, at: usize, take: Take<'_, N>) {
        let mut next = *state;
        let left = self.relied_on(state.attempts[at].age);
        next.attempts[at] = Attempt {
            stand: Stand::Holding,
            left,
            ..Attempt::default()
        };
        next.won = 2.min(next.won + 1);
        take(
            &format_args!("{} relies on it for {left} ticks", name(at)),
            next,
        );
    }

    /// A holder renews its lease, or relies on it no more.
    fn keep<const N: usize>(self, state: &State<N>, at: usize, take: Take<'_, N>) {
        let mut next = *state;
        next.attempts[at].stand = Stand::Over;
        take(&format_args!("{} is done", name(at)), next);
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
    fn renew_on<const N: usize>(self, state: &State<N>, at: usize, on: usize, take: Take<'_, N>) {
        let mut next = *state;
        let Some(answer) = self.renew(&mut next.masters[on], at) else {
            return;
        };
        next.masters[on].cells[at].renew = answer;
        let renewing = &mut next.attempts[at].renewing;
        *renewing = 1.max(*renewing);
        let (master, name) = (on + 1, name(at));
        match answer {
            Renew::Done => take(&format_args!("{master} renews the lease of {name}"), next),
            _ => take(
                &format_args!("{master} does not know the lease of {name}"),
                next,
            ),
        }
    }

    /// A holder hears that a majority has renewed its lease. It is asked for again where it was lost.
    fn renewed<const N: usize>(self, state: &State<N>, at: usize, take: Take<'_, N>) {
        let Some(gone) = self.voted(state, at) else {
            return;
        };
        let mut next = *state;
        let holder = &mut next.attempts[at];
        holder.left = holder.left.max(self.relied_on(holder.renewing - 1));
        let left = holder.left;
        next.end_renewal(at);
        for (master, it) in next.masters.iter_mut().enumerate() {
            if gone & 1 << master != 0 {
                it.cells[at].acquire = Acquire::Open;
            }
        }
        take(
            &format_args!("{} has renewed, for {left} ticks", name(at)),
            next,
        );
    }

    fn fault<const N: usize>(self, state: &State<N>, master: usize, take: Take<'_, N>) {
        if state.faults == 0 {
            return;
        }
        let number = master + 1;
        let mut next = *state;
        next.faults -= 1;
        let it = &mut next.masters[master];
        (it.hold, it.left, it.used) = (0, 0, false);
        // The script admits only the candidate that was inspected.
        it.decided &= self.admission == Admission::Unchecked;
        match self.fault {
            Fault::Jump => take(&format_args!("the clock of {number} is set forward"), next),
            Fault::RestartAtOnce => take(&format_args!("{number} forgets and goes on"), next),
            _ => {
                it.out = 1;
                take(&format_args!("{number} forgets and is kept out"), next);
            }
        }
    }

    /// The clock of a master goes faster than those of the clients.
    fn gain<const N: usize>(self, state: &State<N>, master: usize, take: Take<'_, N>) {
        let it = state.masters[master];
        if it.gained < self.gain && (it.hold != 0 || it.out > 0) {
            let mut next = *state;
            next.masters[master].gained += 1;
            self.advance(&mut next.masters[master]);
            take(
                &format_args!("the clock of {} gains a tick", master + 1),
                next,
            );
        }
    }
}

impl<const N: usize> State<N> {
    fn end_renewal(&mut self, at: usize) {
        self.attempts[at].renewing = 0;
        for master in &mut self.masters {
            master.cells[at].renew = Renew::Open;
        }
    }
}
