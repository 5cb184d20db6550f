//! The rule that ships, and mutations around it.
//!
//! No time passes: leases expire by a step of the model, and tokens follow from the counters.

use std::time::Duration;

use leasehold_core::quorum::{
    self, AdmissionRecord, Decision, MasterInfo, Masters, Round, RunId, Size, Step, decide,
    quarantine,
};
use leasehold_core::time::{StoreTime, Ttl};
use leasehold_core::token::TokenCount;
use leasehold_core::{Op, Outcome, Rows};

use super::setup::{Mutation, Recovery, Tokens};
use super::state::{Admission, Master, State, Write};
use crate::model::core;
use crate::model::masters::ATTEMPTS;

const NOW: StoreTime = StoreTime::from_micros(0);

/// The run of a master's process for which it is admitted, and the next one.
const RUNS: [RunId; 2] = [RunId(1), RunId(2)];

/// Any ttl, since no step waits for its end.
const TTL: Ttl = Ttl::USER_MIN;

impl Master {
    /// The master and the record of the rule.
    ///
    /// The counter represents that of the record, the floor and the largest known token: a floor above the
    /// counter has the effect of that counter.
    fn shipped(&self) -> (quorum::Master, Rows) {
        let last_token = core::token(self.counter);
        let holder = usize::from(self.hold).checked_sub(1);
        let mut record = core::record(holder.map(core::lease), NOW.after(TTL));
        record.raise_counter(last_token);
        let admission = Some(AdmissionRecord {
            run: RUNS[0],
            floor: last_token,
            high: last_token,
        });
        let run = self.run();
        (quorum::Master { run, admission }, record)
    }

    fn run(&self) -> RunId {
        RUNS[usize::from(self.admission != Admission::Admitted)]
    }

    /// The result of its inspection, after the wait.
    fn master_info(&self, high: u8) -> MasterInfo {
        MasterInfo {
            run: self.run(),
            uptime: Duration::ZERO,
            now: NOW.after_span(quarantine(TTL) + Duration::from_micros(1)),
            admitted: Some(RUNS[0]),
            high: core::token(high),
            since: Some(NOW),
        }
    }

    /// Applies the rule. `None`: the master is not admitted.
    pub(super) fn apply(&mut self, op: &Op) -> Option<Outcome> {
        let (mut master, mut record) = self.shipped();
        let outcome = master.apply(&mut record, op, NOW).ok()?;
        (self.hold, _) = core::hold(&record, NOW);
        self.counter = core::counter(record.head().counter);
        Some(outcome)
    }

    /// Applies an acquire. Returns the token of a grant.
    pub(super) fn acquire(
        &mut self,
        attempt: usize,
        proposal: u8,
        mutation: Option<Mutation>,
    ) -> Option<u8> {
        let before = self.counter;
        let outcome = self.apply(&core::acquire(attempt, TTL, core::token(proposal)))?;
        let Outcome::Granted { first, .. } = outcome else {
            return None;
        };
        if mutation.is_some_and(Mutation::reads_before) {
            self.counter = before;
        }
        if mutation == Some(Mutation::TakeEqual) && proposal != 0 && proposal == before {
            self.counter = before;
            return Some(proposal);
        }
        Some(core::counter(Some(first)))
    }

    /// Applies the request that sets the token of an attempt. Returns whether the token is stored.
    pub(super) fn set_token(
        &mut self,
        attempt: usize,
        token: u8,
        mutation: Option<Mutation>,
    ) -> bool {
        let op = core::token(token).map(|first| core::set_token(attempt, first));
        op.is_some_and(|op| match mutation {
            Some(mutation) => self.set_token_with(mutation, attempt, token, &op),
            None => self.apply(&op) == Some(Outcome::Stored),
        })
    }

    fn set_token_with(&mut self, mutation: Mutation, attempt: usize, token: u8, op: &Op) -> bool {
        let before = *self;
        if mutation.writes_unheld() {
            // As if it held the lock.
            self.hold = attempt as u8 + 1;
        }
        let larger = matches!(mutation, Mutation::WriteUnheld | Mutation::ReadBefore);
        if larger && token <= before.counter {
            *self = before;
            return false;
        }
        if mutation == Mutation::ReadBeforeOrAny {
            self.counter = 0;
        }
        let stored = self.apply(op) == Some(Outcome::Stored);
        self.hold = before.hold;
        if !stored {
            self.counter = before.counter;
        }
        stored
    }
}

impl<const N: usize> State<N> {
    /// How many masters decide: 1 on one store.
    pub(super) fn majority() -> usize {
        Size::new(N).map_or(1, Size::majority)
    }

    /// The token of an attempt with these grants, and the masters to which it is written: none if a majority has
    /// taken the proposal. `None`: the attempt does not wait for all of these grants.
    pub(super) fn token_of(proposal: u8, grants: &[(usize, u8)]) -> Option<(u8, Masters)> {
        let size = Size::new(N).ok()?;
        let mut round = Round::new(size, TokenCount::MIN, core::token(proposal));
        let mut step = Step::Wait;
        // In the order in which it waits for the most.
        let (taken, others): (Vec<_>, Vec<_>) =
            grants.iter().partition(|(_, first)| *first == proposal);
        for (master, first) in taken.into_iter().chain(others) {
            if step != Step::Wait {
                return None;
            }
            step = round.handle_reply(master, Some(&granted(first)?));
        }
        if step == Step::Wait {
            step = round.end_proposal_wait();
        }
        match step {
            Step::Write { first, to } => Some((core::counter(Some(first)), to)),
            Step::Won { first } => Some((core::counter(Some(first)), Masters::default())),
            _ => None,
        }
    }

    /// The success of an attempt, if it receives the replies of all masters that have stored its token.
    pub(super) fn won(&self, attempt: usize) -> Option<()> {
        // A round that chose a token in the same way, two larger so that there is a proposal: it waited for the
        // grants of all of these masters.
        let token = self.attempts[attempt].token + 2;
        let proposal = core::token(token - 2);
        let mut round = Round::new(Size::new(N).ok()?, TokenCount::MIN, proposal);
        let masters = self.masters.iter().enumerate();
        let written = masters.filter(|(_, master)| master.cells[attempt].write != Write::None);
        for (nth, (index, _)) in written.enumerate() {
            let taken = nth + 1 < Self::majority();
            round.handle_reply(index, Some(&granted(token - 1 - u8::from(taken))?));
        }
        round.end_proposal_wait();
        let first = core::token(token)?;
        let mut masters = self.masters.iter().enumerate();
        let won = masters.any(|(index, master)| {
            master.cells[attempt].write == Write::Stored
                && round.handle_token_reply(index, Some(&Outcome::Stored)) == Step::Won { first }
        });
        won.then_some(())
    }

    /// Admits a master if the rule does, with the counters that were read from the others.
    pub(super) fn try_admission(&mut self, setup: &Tokens<N>, master: usize) -> Option<()> {
        let size = Size::new(N).ok()?;
        let inspected = self.masters.iter().enumerate();
        let inspected = inspected.map(|(at, each)| match at == master {
            true => Some(each.master_info(each.counter)),
            false => each.read.then(|| MasterInfo {
                run: match setup.recovery {
                    Recovery::AdmittedByAll => RUNS[0],
                    _ => each.run(),
                },
                // Only the largest makes a difference.
                ..each.master_info(self.rest.read)
            }),
        });
        let inspected: Vec<_> = inspected.collect();
        let before = inspected[master].as_ref();
        let decision = decide(size, TTL, master, before, &inspected);
        let Decision::Admit { floor } = decision else {
            return None;
        };
        let (mut admitted, _) = self.masters[master].shipped();
        admitted.record_admission(floor);
        self.masters[master].counter = core::counter(admitted.admission?.floor);
        self.masters[master].admission = Admission::Admitted;
        Some(())
    }

    /// Whether a new attempt is granted the lock once all leases have expired and all masters reply.
    pub(super) fn is_free(&self, setup: &Tokens<N>) -> bool {
        let mut state = *self;
        for master in &mut state.masters {
            (master.hold, master.read) = (0, false);
        }
        for master in 0..N {
            if state.masters[master].admission != Admission::Admitted {
                state.catch_up_with_all(master);
                if state.try_admission(setup, master).is_none() {
                    return false;
                }
            }
        }
        // No lease of the model has this number.
        let newcomer = ATTEMPTS;
        let masters = state.masters.iter_mut().enumerate();
        let grants =
            masters.filter_map(|(at, master)| Some((at, master.acquire(newcomer, 0, None)?)));
        let grants: Vec<_> = grants.take(Self::majority()).collect();
        let Some((token, to)) = Self::token_of(0, &grants) else {
            return N == 1 && !grants.is_empty();
        };
        let stored = to
            .iter()
            .filter(|at| state.masters[*at].set_token(newcomer, token, None));
        stored.count() >= Self::majority()
    }

    fn catch_up_with_all(&mut self, out: usize) {
        self.rest.read = 0;
        for at in 0..N {
            self.masters[at].read = false;
            if at != out {
                self.read_from(at);
            }
        }
    }
}

/// A grant with this token.
fn granted(first: u8) -> Option<Outcome> {
    let first = core::token(first)?;
    Some(Outcome::granted(first))
}
