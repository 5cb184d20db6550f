//! The steps of a state.

use super::setup::{Mutation, Recovery, Tokens};
use super::state::{Acquire, Admission, Attempt, Master, Phase, State, Write};
use crate::model::explore::Take;
use crate::model::labels::{list, majorities, members, name, set};

impl<const N: usize> Tokens<N> {
    pub(super) fn all_steps(&self, state: &State<N>, take: Take<'_, State<N>>) {
        let mut idle = false;
        for at in 0..self.attempts {
            match state.attempts[at].phase {
                // The idle ones do not differ.
                Phase::Idle if idle => continue,
                Phase::Idle => {
                    idle = true;
                    if self.reads_before() {
                        self.read_before(state, at, take);
                        continue;
                    }
                }
                Phase::Acquiring => self.choose_token(state, at, take),
                Phase::Writing => self.win(state, at, take),
                Phase::Won | Phase::Over => {}
            }
            for master in 0..N {
                self.grant(state, at, master, take);
                self.store_token(state, at, master, take);
            }
        }
        for master in 0..N {
            self.restart(state, master, take);
            self.recover(state, master, take);
        }
    }

    fn reads_before(&self) -> bool {
        self.mutation.is_some_and(Mutation::reads_before)
    }

    /// An attempt reads the counters of a majority before its first request.
    fn read_before(&self, state: &State<N>, at: usize, take: Take<'_, State<N>>) {
        for readers in majorities(N) {
            let read = members(readers).map(|master| state.masters[master].counter);
            let mut next = *state;
            next.begin(at, 0);
            next.attempts[at].token = read.max().unwrap_or(0);
            let step = format_args!("{} reads from {}", name(at), list(readers));
            take(&step, next);
        }
    }

    /// A master runs an acquire. A lease that holds the lock has expired: that may happen at any moment, and
    /// makes no difference before.
    fn grant(&self, state: &State<N>, at: usize, master: usize, take: Take<'_, State<N>>) {
        let target = &state.masters[master];
        let cell = target.cells[at];
        let running = matches!(state.attempts[at].phase, Phase::Acquiring | Phase::Writing);
        let again = self.mutation == Some(Mutation::IdTwice) && running && state.rest.faults > 0;
        let held = usize::from(target.hold) == at + 1;
        if (cell.acquire != Acquire::Open && !again) || held {
            return;
        }
        if state.attempts[at].phase != Phase::Idle {
            return self.grant_to(*state, at, master, take);
        }
        for proposal in 0..=self.proposals {
            let mut next = *state;
            next.begin(at, proposal);
            self.grant_to(next, at, master, take);
        }
    }

    fn grant_to(&self, mut next: State<N>, at: usize, master: usize, take: Take<'_, State<N>>) {
        let Attempt {
            phase, proposal, ..
        } = next.attempts[at];
        let target = &mut next.masters[master];
        let cell = target.cells[at];
        (target.hold, target.old) = (0, false);
        let Some(first) = target.acquire(at, proposal, self.mutation) else {
            return;
        };
        if cell.acquire != Acquire::Open {
            next.rest.faults -= 1;
        }
        let cell = &mut next.masters[master].cells[at];
        cell.acquire = match cell.acquire {
            Acquire::Open if phase == Phase::Acquiring => Acquire::Granted(first),
            Acquire::Granted(first) => Acquire::Granted(first),
            _ => Acquire::Spent,
        };
        if N == 1 {
            next.own_only_store(at);
        } else if phase == Phase::Acquiring && proposal != 0 {
            self.own_by_proposal(&mut next, at);
        }
        let (master, name) = (master + 1, name(at));
        let proposed = match proposal {
            0 => String::new(),
            _ => format!(", who proposed {proposal},"),
        };
        let step = format_args!("{master} grants to {name}{proposed} with token {first}");
        take(&step, next);
    }

    /// An attempt owns the lock once so many masters have taken its proposal and hold its lease.
    fn own_by_proposal(&self, state: &mut State<N>, at: usize) {
        let masters = state.masters.iter();
        let taken = masters.filter(|master| {
            let granted = master.cells[at].acquire;
            usize::from(master.hold) == at + 1
                && matches!(granted, Acquire::Granted(first) if self.is_taken(state, at, first))
        });
        if taken.count() >= State::<N>::majority() && !state.attempts[at].owned {
            state.own(at);
        }
    }

    fn is_taken(&self, state: &State<N>, at: usize, first: u8) -> bool {
        let proposal = state.attempts[at].proposal;
        let for_another = self.mutation == Some(Mutation::TakenForAnother) && first == proposal + 1;
        proposal != 0 && (first == proposal || for_another)
    }

    /// An attempt receives the grants of a majority or more, and writes its token, or uses its proposal.
    fn choose_token(&self, state: &State<N>, at: usize, take: Take<'_, State<N>>) {
        let majority = State::<N>::majority();
        let waits = |count| count > majority && state.attempts[at].proposal != 0;
        let is_enough = |count| count == majority || waits(count);
        for replies in (0..1_u32 << N).filter(|set| is_enough(set.count_ones() as usize)) {
            let grants =
                members(replies).map(|master| match state.masters[master].cells[at].acquire {
                    Acquire::Granted(first) => Some((master, first)),
                    _ => None,
                });
            let Some(grants) = grants.collect::<Option<Vec<_>>>() else {
                continue;
            };
            let Some((token, to)) = self.token_for(state, at, &grants) else {
                continue;
            };
            // The proposal was taken where it may be forgotten by now. A token is written only where it is not.
            let in_time = !state.attempts[at].late || self.mutation == Some(Mutation::UseLate);
            if to == 0 && !in_time {
                continue;
            }
            let mut next = *state;
            for (index, master) in next.masters.iter_mut().enumerate() {
                let cell = &mut master.cells[at];
                if cell.acquire != Acquire::Open {
                    cell.acquire = Acquire::Spent;
                }
                if to & 1 << index != 0 {
                    cell.write = Write::Sent;
                }
            }
            next.attempts[at].token = token;
            next.attempts[at].phase = Phase::Writing;
            // Its proposal may have made it an owner before.
            if N > 1 && (to != 0 || self.mutation == Some(Mutation::NoSecondPhase)) {
                next.own(at);
            }
            if to == 0 {
                self.succeed(&mut next, at);
            }
            let name = name(at);
            let step = format_args!("{name} owns {}: token {token}", list(replies));
            take(&step, next);
        }
    }

    /// The token of an attempt, and the masters to which it is written. None: it is used immediately.
    fn token_for(&self, state: &State<N>, at: usize, grants: &[(usize, u8)]) -> Option<(u8, u32)> {
        let firsts = grants.iter().map(|(_, first)| *first);
        if N == 1 || self.mutation == Some(Mutation::NoSecondPhase) {
            return Some((firsts.max()?, 0));
        }
        let proposal = state.attempts[at].proposal;
        let taken = grants
            .iter()
            .filter(|(_, first)| self.is_taken(state, at, *first));
        let enough = match self.mutation {
            Some(Mutation::TakenByMinority) => Some(1),
            Some(Mutation::TakenForAnother) => Some(State::<N>::majority()),
            _ => None,
        };
        if enough.is_some_and(|enough| taken.count() >= enough) {
            return Some((proposal, 0));
        }
        let (token, to) = State::<N>::token_of(proposal, grants)?;
        let to = to.iter().fold(0, |all, master| all | 1 << master);
        match self.mutation {
            Some(Mutation::WriteEverywhere) => Some((token, (1 << N) - 1)),
            Some(_) if self.reads_before() => Some((state.attempts[at].token + 1, to)),
            _ => Some((token, to)),
        }
    }

    /// A master runs the request that sets a token.
    fn store_token(&self, state: &State<N>, at: usize, master: usize, take: Take<'_, State<N>>) {
        if state.masters[master].cells[at].write != Write::Sent {
            return;
        }
        let mut next = *state;
        let token = state.attempts[at].token;
        if !next.masters[master].set_token(at, token, self.mutation) {
            return;
        }
        next.masters[master].cells[at].write = Write::Stored;
        let (master, name) = (master + 1, name(at));
        let step = format_args!("{master} stores token {token} of {name}");
        take(&step, next);
    }

    /// An attempt receives the replies of a majority that has stored its token.
    fn win(&self, state: &State<N>, at: usize, take: Take<'_, State<N>>) {
        let masters = state.masters.iter();
        let stored = masters.filter(|master| master.cells[at].write == Write::Stored);
        let stored = stored.count() >= State::<N>::majority();
        let won = match self.mutation {
            // The round has no record of these masters, or of this token.
            Some(Mutation::WriteEverywhere) => stored,
            Some(_) if self.reads_before() => stored,
            Some(Mutation::InDoubt) => true,
            _ => state.won(at).is_some(),
        };
        if won {
            let mut next = *state;
            self.succeed(&mut next, at);
            take(&format_args!("{} has won", name(at)), next);
        }
    }

    fn succeed(&self, state: &mut State<N>, at: usize) {
        state.attempts[at].phase = Phase::Won;
        state.check_success(at);
        if self.refill {
            for master in &mut state.masters {
                master.cells[at].acquire = Acquire::Open;
            }
        }
    }

    /// A master is restarted.
    fn restart(&self, state: &State<N>, master: usize, take: Take<'_, State<N>>) {
        let is_admitted = |each: &Master| each.admission == Admission::Admitted;
        let in_turn = self.together || state.masters.iter().all(is_admitted);
        let fails = state.rest.faults > 0 && self.mutation != Some(Mutation::IdTwice);
        if !(fails && in_turn && is_admitted(&state.masters[master])) {
            return;
        }
        let mut next = *state;
        next.rest.faults -= 1;
        for each in &mut next.masters {
            each.old = each.hold != 0;
        }
        for attempt in &mut next.attempts {
            attempt.old = attempt.phase == Phase::Acquiring;
        }
        let restarted = &mut next.masters[master];
        if self.recovery != Recovery::WithData {
            (restarted.hold, restarted.counter) = (0, 0);
        }
        restarted.admission = match self.recovery {
            Recovery::AtOnce => Admission::Admitted,
            _ => Admission::KeptOut,
        };
        take(&format_args!("{} is restarted", master + 1), next);
    }

    /// A restarted master waits, reads, and is admitted.
    fn recover(&self, state: &State<N>, master: usize, take: Take<'_, State<N>>) {
        let number = master + 1;
        let mut next = *state;
        match (state.masters[master].admission, self.recovery) {
            (Admission::Admitted, _) => {}
            (Admission::Due, _) if self.together => self.admission_in_one_step(state, master, take),
            (Admission::Due, _) | (Admission::KeptOut, Recovery::CaughtUp) => {
                self.catch_up(state, master, take);
                if next.try_admission(self, master).is_some() {
                    take(&format_args!("{number} is admitted"), next);
                }
            }
            (Admission::KeptOut, recovery) => {
                // Leases that were not won are not renewed.
                for each in next.masters.iter_mut().filter(|each| each.old) {
                    each.hold = 0;
                }
                for attempt in next.attempts.iter_mut().filter(|attempt| attempt.old) {
                    attempt.late = true;
                }
                next.masters[master].admission = match recovery {
                    Recovery::AfterTtl => Admission::Admitted,
                    _ => Admission::Due,
                };
                take(&format_args!("{number} was kept out for a ttl"), next);
            }
        }
    }

    /// The master reads the counters of some others, and is admitted.
    fn admission_in_one_step(&self, state: &State<N>, out: usize, take: Take<'_, State<N>>) {
        for others in (0..1_u32 << N).filter(|others| others & 1 << out == 0) {
            let mut next = *state;
            members(others).for_each(|at| next.read_from(at));
            if next.try_admission(self, out).is_some() {
                for master in &mut next.masters {
                    master.read = false;
                }
                let (number, others) = (out + 1, list(others));
                let step = format_args!("{number} reads from {others} and is admitted");
                take(&step, next);
            }
        }
    }

    /// The master reads the counter of another one.
    fn catch_up(&self, state: &State<N>, out: usize, take: Take<'_, State<N>>) {
        for (at, other) in state.masters.iter().enumerate() {
            let mut next = *state;
            if at == out || other.read {
                continue;
            }
            next.read_from(at);
            let (out, at, counter) = (out + 1, at + 1, other.counter);
            take(&format_args!("{out} reads {counter} from {at}"), next);
        }
    }
}

impl<const N: usize> State<N> {
    /// Reads the counter of another master.
    pub(super) fn read_from(&mut self, at: usize) {
        self.masters[at].read = true;
        self.rest.read = self.rest.read.max(self.masters[at].counter);
    }

    fn begin(&mut self, at: usize, proposal: u8) {
        self.attempts[at].phase = Phase::Acquiring;
        self.attempts[at].proposal = proposal;
        self.attempts[at].before = self.in_phases(&[Phase::Won]);
    }

    /// An attempt that is granted the lock by the only store owns it.
    fn own_only_store(&mut self, at: usize) {
        let cells = &self.masters[0].cells;
        let owners = set(cells, |cell| cell.acquire != Acquire::Open);
        self.attempts[at].owned_before = owners & !(1 << at);
        self.attempts[at].owned = true;
    }

    /// An attempt owns the lock, later than all others that do or did.
    fn own(&mut self, at: usize) {
        self.attempts[at].owned_before = self.owners() & !(1 << at);
        self.attempts[at].owned = true;
        for other in &mut self.attempts {
            other.owned_before &= !(1 << at);
        }
    }
}
