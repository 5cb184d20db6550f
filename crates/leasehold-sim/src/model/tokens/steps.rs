//! What can happen next.

use std::fmt;

use super::setup::{Back, Broken, Setup};
use super::state::{Acquire, Fence, Stage, Stand, State};
use crate::model::words::{list, majorities, members, name};

/// What is told of a step.
type Take<'a, const N: usize> = &'a mut dyn FnMut(&dyn fmt::Display, State<N>);

impl Setup {
    pub(super) fn steps<const N: usize>(self, state: &State<N>, take: Take<'_, N>) {
        let mut idle = false;
        for at in 0..self.attempts {
            match state.attempts[at].stand {
                // Those that have not begun are all the same.
                Stand::Idle if idle => continue,
                Stand::Idle => {
                    idle = true;
                    if self.reads_before() {
                        self.read_before(state, at, take);
                        continue;
                    }
                }
                Stand::Asking => self.own(state, at, take),
                Stand::Writing => self.win(state, at, take),
                Stand::Won => self.write(state, at, take),
                Stand::Over => {}
            }
            for master in 0..N {
                self.ask(state, at, master, take);
                self.fence(state, at, master, take);
            }
        }
        for master in 0..N {
            self.restart(state, master, take);
            self.come_back(state, master, take);
        }
    }

    fn reads_before(self) -> bool {
        self.broken.is_some_and(Broken::reads_before)
    }

    /// An attempt reads the counters of a majority before it asks anybody.
    fn read_before<const N: usize>(self, state: &State<N>, at: usize, take: Take<'_, N>) {
        for readers in majorities(N) {
            let read = members(readers).map(|master| state.masters[master].counter);
            let mut next = *state;
            next.begin(at);
            next.attempts[at].token = read.max().unwrap_or(0);
            take(
                &format_args!("{} reads from {}", name(at), list(readers)),
                next,
            );
        }
    }

    /// A master runs an acquire. A lease that is in the way is over: that may be at any moment, and
    /// makes no difference before.
    fn ask<const N: usize>(self, state: &State<N>, at: usize, master: usize, take: Take<'_, N>) {
        let asked = &state.masters[master];
        let cell = asked.cells[at];
        let running = matches!(state.attempts[at].stand, Stand::Asking | Stand::Writing);
        let again = self.broken == Some(Broken::IdTwice) && running && state.faults > 0;
        let held = usize::from(asked.hold) == at + 1;
        if (cell.acquire != Acquire::Open && !again) || held {
            return;
        }
        let mut next = *state;
        if next.attempts[at].stand == Stand::Idle {
            next.begin(at);
        }
        let stand = next.attempts[at].stand;
        let ended = usize::from(asked.hold).checked_sub(1);
        let asked = &mut next.masters[master];
        (asked.hold, asked.old) = (0, false);
        let Some(first) = asked.acquire(at, self.broken) else {
            return;
        };
        if cell.acquire != Acquire::Open {
            next.faults -= 1;
        }
        let cell = &mut next.masters[master].cells[at];
        cell.acquire = match cell.acquire {
            Acquire::Open if stand == Stand::Asking => Acquire::Granted(first),
            Acquire::Granted(heard) => Acquire::Granted(heard),
            _ => Acquire::Spent,
        };
        if N == 1 {
            next.own_alone(at);
        }
        let told = Granted {
            master,
            at,
            first,
            ended,
        };
        take(&told, next);
    }

    /// An attempt hears that a majority has granted it, and writes its token.
    fn own<const N: usize>(self, state: &State<N>, at: usize, take: Take<'_, N>) {
        for heard in majorities(N) {
            let grants =
                members(heard).map(|master| match state.masters[master].cells[at].acquire {
                    Acquire::Granted(first) => Some((master, first)),
                    _ => None,
                });
            let Some(grants) = grants.collect::<Option<Vec<_>>>() else {
                continue;
            };
            let Some((token, to)) = self.choose(state, at, &grants) else {
                continue;
            };
            let mut next = *state;
            for (master, it) in next.masters.iter_mut().enumerate() {
                let cell = &mut it.cells[at];
                if cell.acquire != Acquire::Open {
                    cell.acquire = Acquire::Spent;
                }
                if to & 1 << master != 0 {
                    cell.fence = Fence::Sent;
                }
            }
            if N > 1 {
                let owned_before = state.standing(&[Stand::Writing, Stand::Won]);
                next.attempts[at].owned_before = owned_before;
            }
            next.attempts[at].token = token;
            next.attempts[at].stand = Stand::Writing;
            if to == 0 {
                self.succeed(&mut next, at);
            }
            let name = name(at);
            take(
                &format_args!("{name} owns {}: token {token}", list(heard)),
                next,
            );
        }
    }

    /// The token of an attempt, and where it writes it; nowhere, if it uses it at once.
    fn choose<const N: usize>(
        self,
        state: &State<N>,
        at: usize,
        grants: &[(usize, u8)],
    ) -> Option<(u8, u32)> {
        let firsts = grants.iter().map(|(_, first)| *first);
        if N == 1 || self.broken == Some(Broken::NoSecondPhase) {
            return Some((firsts.max()?, 0));
        }
        let (token, to) = State::<N>::token_of(grants)?;
        let to = to.iter().fold(0, |all, master| all | 1 << master);
        match self.broken {
            Some(Broken::WriteEverywhere) => Some((token, (1 << N) - 1)),
            Some(_) if self.reads_before() => Some((state.attempts[at].token + 1, to)),
            _ => Some((token, to)),
        }
    }

    /// A master runs the writing of a token.
    fn fence<const N: usize>(self, state: &State<N>, at: usize, master: usize, take: Take<'_, N>) {
        if state.masters[master].cells[at].fence != Fence::Sent {
            return;
        }
        let mut next = *state;
        let token = state.attempts[at].token;
        if !next.masters[master].fence(at, token, self.broken) {
            return;
        }
        next.masters[master].cells[at].fence = Fence::Taken;
        let (master, name) = (master + 1, name(at));
        take(
            &format_args!("{master} takes token {token} of {name}"),
            next,
        );
    }

    /// An attempt hears that a majority has taken its token.
    fn win<const N: usize>(self, state: &State<N>, at: usize, take: Take<'_, N>) {
        let masters = state.masters.iter();
        let taken = masters.filter(|it| it.cells[at].fence == Fence::Taken);
        let taken = taken.count() >= State::<N>::majority();
        let won = match self.broken {
            // The round knows nothing of these masters, or of this token.
            Some(Broken::WriteEverywhere) => taken,
            Some(_) if self.reads_before() => taken,
            Some(Broken::InDoubt) => true,
            _ => state.is_won(at),
        };
        if won {
            let mut next = *state;
            self.succeed(&mut next, at);
            take(&format_args!("{} has won", name(at)), next);
        }
    }

    fn succeed<const N: usize>(self, state: &mut State<N>, at: usize) {
        state.attempts[at].stand = Stand::Won;
        state.note_success(at);
        if self.refill {
            for master in &mut state.masters {
                master.cells[at].acquire = Acquire::Open;
            }
        }
    }

    /// A winner writes to the resource.
    fn write<const N: usize>(self, state: &State<N>, at: usize, take: Take<'_, N>) {
        let writer = state.attempts[at];
        if !self.resource || writer.token < state.seen {
            return;
        }
        let mut next = *state;
        next.note_write(at);
        next.seen = writer.token;
        next.attempts[at].wrote = true;
        take(&format_args!("the resource accepts {}", name(at)), next);
    }

    /// A master is started again.
    fn restart<const N: usize>(self, state: &State<N>, master: usize, take: Take<'_, N>) {
        let mut masters = state.masters.iter();
        let twice = self.broken == Some(Broken::IdTwice);
        let in_turn = self.together || masters.all(|it| it.stage == Stage::Admitted);
        if twice || state.faults == 0 || !in_turn || state.masters[master].stage != Stage::Admitted
        {
            return;
        }
        let mut next = *state;
        next.faults -= 1;
        for it in &mut next.masters {
            it.old = it.hold != 0;
        }
        let gone = &mut next.masters[master];
        if self.back != Back::WithData {
            (gone.hold, gone.counter) = (0, 0);
        }
        gone.stage = match self.back {
            Back::AtOnce => Stage::Admitted,
            _ => Stage::Out,
        };
        take(&format_args!("{} is started again", master + 1), next);
    }

    /// A master that was started again comes nearer to its work.
    fn come_back<const N: usize>(self, state: &State<N>, master: usize, take: Take<'_, N>) {
        let number = master + 1;
        let mut next = *state;
        match (state.masters[master].stage, self.back) {
            (Stage::Admitted, _) => {}
            (Stage::Open, _) if self.together => self.admit_in_one_step(state, master, take),
            (Stage::Open, _) | (Stage::Out, Back::CaughtUp) => {
                self.catch_up(state, master, take);
                if next.admit(self, master) {
                    take(&format_args!("{number} is admitted"), next);
                }
            }
            (Stage::Out, back) => {
                // Leases that were not won are not renewed.
                for it in next.masters.iter_mut().filter(|it| it.old) {
                    it.hold = 0;
                }
                next.masters[master].stage = match back {
                    Back::AfterTtl => Stage::Admitted,
                    _ => Stage::Open,
                };
                take(&format_args!("{number} was out for a ttl"), next);
            }
        }
    }

    /// Some of the others tell their counters, and the master is admitted.
    fn admit_in_one_step<const N: usize>(self, state: &State<N>, out: usize, take: Take<'_, N>) {
        for others in (0..1_u32 << N).filter(|others| others & 1 << out == 0) {
            let mut next = *state;
            members(others).for_each(|at| next.read_from(at));
            if next.admit(self, out) {
                for master in &mut next.masters {
                    master.read = false;
                }
                let (number, others) = (out + 1, list(others));
                take(
                    &format_args!("{number} reads from {others} and is admitted"),
                    next,
                );
            }
        }
    }

    /// Another master tells its counter.
    fn catch_up<const N: usize>(self, state: &State<N>, out: usize, take: Take<'_, N>) {
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
        self.read = self.read.max(self.masters[at].counter);
    }

    fn begin(&mut self, at: usize) {
        self.attempts[at].stand = Stand::Asking;
        self.attempts[at].before = self.standing(&[Stand::Won]);
    }

    /// Who is granted the lock by the only store owns it.
    fn own_alone(&mut self, at: usize) {
        let cells = self.masters[0].cells.iter().enumerate();
        let granted = cells.filter(|(_, cell)| cell.acquire != Acquire::Open);
        let owners = granted.fold(0, |all, (other, _)| all | 1 << other);
        self.attempts[at].owned_before = owners & !(1 << at);
    }
}

/// A grant, as it is told.
struct Granted {
    master: usize,
    at: usize,
    first: u8,
    /// Whose lease had to be over for it.
    ended: Option<usize>,
}

impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (master, at) = (self.master + 1, name(self.at));
        write!(f, "{master} grants to {at} with token {}", self.first)?;
        match self.ended {
            Some(ended) => write!(f, ", as the lease of {} is over", name(ended)),
            None => Ok(()),
        }
    }
}
