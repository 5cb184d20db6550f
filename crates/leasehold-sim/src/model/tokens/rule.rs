//! The rule that ships, at work on a packed state; and the broken ones, wrapped around it.
//!
//! No time passes here: leases end by a step of the model, and tokens come of the counters alone.

use std::time::Duration;

use leasehold_core::mutex::{Op, Outcome, Record};
use leasehold_core::quorum::{
    self, AdmissionRecord, Decision, Masters, Observation, Round, RunId, Size, Step, decide,
    quarantine,
};
use leasehold_core::time::{StoreTime, Ttl};
use leasehold_core::token::TokenCount;

use super::setup::{Back, Broken, Setup};
use super::state::{Fence, Master, Stage, State};
use crate::model::core;

const NOW: StoreTime = StoreTime::from_micros(0);

/// The run of a master's process for which it is admitted, and the one that comes after.
const RUNS: [RunId; 2] = [RunId(1), RunId(2)];

/// Any ttl. Nobody waits for its end.
fn ttl() -> Ttl {
    Ttl::remainder(Ttl::USER_MIN.as_duration())
}

impl Master {
    /// What the master is to the rule.
    ///
    /// Its counter stands for the record's, the floor and the largest token that it knows: there is so a floor
    /// above the counter does the same as that counter.
    fn real(&self) -> (quorum::Master, Record) {
        let last_token = core::token(self.counter);
        let expires_at = NOW.after(ttl());
        let holder = usize::from(self.hold).checked_sub(1);
        let record = Record {
            hold: holder.map(|attempt| core::hold(attempt, expires_at)),
            last_token,
            ..Record::default()
        };
        let admission = Some(AdmissionRecord {
            run: RUNS[0],
            floor: last_token,
            high: last_token,
        });
        let run = self.run();
        (quorum::Master { run, admission }, record)
    }

    fn run(&self) -> RunId {
        RUNS[usize::from(self.stage != Stage::Admitted)]
    }

    /// What it says of itself, after the wait.
    fn observation(&self, high: u8) -> Observation {
        Observation {
            run: self.run(),
            uptime: Duration::ZERO,
            now: NOW.after_span(quarantine(ttl()) + Duration::from_micros(1)),
            admitted: Some(RUNS[0]),
            high: core::token(high),
            since: Some(NOW),
        }
    }

    /// Does what the rule says. `None`: it does nothing, as it is not admitted.
    pub(super) fn apply(&mut self, op: &Op) -> Option<Outcome> {
        let (mut real, mut record) = self.real();
        let outcome = real.apply(&mut record, op, NOW).ok()?;
        self.hold = record.hold.map_or(0, |hold| 1 + core::attempt(hold.lease));
        self.counter = core::counter(record.last_token);
        Some(outcome)
    }

    /// Is asked for the lock.
    pub(super) fn acquire(&mut self, attempt: usize, broken: Option<Broken>) -> Option<u8> {
        let before = self.counter;
        let outcome = self.apply(&core::acquire(attempt, ttl()))?;
        let Outcome::Granted { first } = outcome else {
            return None;
        };
        if broken.is_some_and(Broken::reads_before) {
            self.counter = before;
        }
        Some(core::counter(Some(first)))
    }

    /// Is told the token of an attempt, and answers whether it takes it.
    pub(super) fn fence(&mut self, attempt: usize, token: u8, broken: Option<Broken>) -> bool {
        let Some(first) = core::token(token) else {
            return false;
        };
        let op = core::fence(attempt, first);
        match broken {
            Some(broken) => self.fence_by_broken_rule(attempt, token, &op, broken),
            None => self.apply(&op) == Some(Outcome::Fenced),
        }
    }

    fn fence_by_broken_rule(&mut self, attempt: usize, token: u8, op: &Op, broken: Broken) -> bool {
        let before = *self;
        if broken.writes_by_anybody() {
            // As if it held the lock.
            self.hold = attempt as u8 + 1;
        }
        let larger = matches!(broken, Broken::WriteByAnybody | Broken::ReadBefore);
        if larger && token <= before.counter {
            *self = before;
            return false;
        }
        if broken == Broken::ReadBeforeOrAny {
            self.counter = 0;
        }
        let taken = self.apply(op) == Some(Outcome::Fenced);
        self.hold = before.hold;
        if !taken {
            self.counter = before.counter;
        }
        taken
    }
}

impl<const N: usize> State<N> {
    /// How many masters decide. One alone decides by itself.
    pub(super) fn majority() -> usize {
        Size::new(N).map_or(1, Size::majority)
    }

    /// What an attempt writes that hears of these grants, and where.
    pub(super) fn token_of(grants: &[(usize, u8)]) -> Option<(u8, Masters)> {
        let mut round = Round::new(Size::new(N).ok()?, TokenCount::MIN);
        let mut step = Step::Wait;
        for (master, first) in grants {
            let first = core::token(*first)?;
            step = round.handle_reply(*master, Some(Outcome::Granted { first }));
        }
        match step {
            Step::Write { first, to } => Some((core::counter(Some(first)), to)),
            _ => None,
        }
    }

    /// Whether an attempt has won that hears of all masters that have taken its token.
    pub(super) fn is_won(&self, attempt: usize) -> bool {
        let token = self.attempts[attempt].token;
        let cells = self.masters.iter().map(|master| master.cells[attempt]);
        let cells: Vec<_> = cells.enumerate().collect();
        let written = cells.iter().filter(|(_, cell)| cell.fence != Fence::None);
        // The round again: as its token came of these grants.
        let Some(first) = core::token(token.saturating_sub(1)) else {
            return false;
        };
        let Ok(size) = Size::new(N) else {
            return false;
        };
        let mut round = Round::new(size, TokenCount::MIN);
        for (master, _) in written {
            round.handle_reply(*master, Some(Outcome::Granted { first }));
        }
        let taken = cells.iter().filter(|(_, cell)| cell.fence == Fence::Taken);
        let mut steps =
            taken.map(|(master, _)| round.handle_token_reply(*master, Some(Outcome::Fenced)));
        steps.any(|step| matches!(step, Step::Won { first } if core::counter(Some(first)) == token))
    }

    /// Admits a master, if the rule says so by what was read from the others.
    pub(super) fn admit(&mut self, setup: Setup, master: usize) -> bool {
        let Ok(size) = Size::new(N) else {
            return false;
        };
        let inspected = self.masters.iter().enumerate();
        let inspected = inspected.map(|(at, it)| match at == master {
            true => Some(it.observation(it.counter)),
            false => it.read.then(|| Observation {
                run: match setup.back {
                    Back::AdmittedByAnybody => RUNS[0],
                    _ => it.run(),
                },
                // Only the largest makes a difference.
                ..it.observation(self.read)
            }),
        });
        let inspected: Vec<_> = inspected.collect();
        let before = inspected[master].as_ref();
        let decision = decide(size, ttl(), master, before, &inspected);
        let Decision::Admit { floor } = decision else {
            return false;
        };
        let (mut real, _) = self.masters[master].real();
        real.admit(floor);
        let floor = real.admission.and_then(|admission| admission.floor);
        let admitted = &mut self.masters[master];
        admitted.counter = core::counter(floor);
        admitted.stage = Stage::Admitted;
        true
    }

    /// Whether a new attempt is granted the lock once all leases are over and everybody answers.
    pub(super) fn is_free(&self, setup: Setup) -> bool {
        let mut state = *self;
        for master in &mut state.masters {
            (master.hold, master.read) = (0, false);
        }
        for out in 0..N {
            if state.masters[out].stage != Stage::Admitted {
                state.catch_up_with_all(out);
                if !state.admit(setup, out) {
                    return false;
                }
            }
        }
        // No lease of the model has this number.
        let newcomer = super::state::ATTEMPTS;
        let Ok(size) = Size::new(N) else {
            return state.masters[0].acquire(newcomer, None).is_some();
        };
        let mut round = Round::new(size, TokenCount::MIN);
        let asked = (0..N).map(|at| {
            let answer = state.masters[at].apply(&core::acquire(newcomer, ttl()));
            round.handle_reply(at, answer)
        });
        let steps: Vec<_> = asked.collect();
        let mut steps = steps.into_iter();
        let Some(Step::Write { first, to }) = steps.find(|step| *step != Step::Wait) else {
            return false;
        };
        let mut written = to.iter().map(|at| {
            let answer = state.masters[at].apply(&core::fence(newcomer, first));
            round.handle_token_reply(at, answer)
        });
        written.any(|step| step == Step::Won { first })
    }

    fn catch_up_with_all(&mut self, out: usize) {
        self.read = 0;
        for at in 0..N {
            self.masters[at].read = false;
            if at != out {
                self.read_from(at);
            }
        }
    }
}
