//! The rule that ships, at work on a packed state.

use std::time::Duration;

use leasehold_core::mutex::{self, Loss, Op, Outcome, Record};
use leasehold_core::quorum::{
    Decision, Observation, Round, RunId, Size, Step, Verdict, Vote, decide, quarantine,
};
use leasehold_core::time::{self, Instant, StoreTime, Ttl};
use leasehold_core::token::TokenCount;

use super::setup::{Admission, Deadline, Fault, Setup};
use super::state::{Acquire, Master, Renew, State};
use crate::model::core;

/// Now on every clock. Only spans make a difference.
const NOW: StoreTime = StoreTime::from_micros(1_000_000_000);

/// The run of a master, and the one before.
const RUNS: [RunId; 2] = [RunId(2), RunId(1)];

/// Ticks that never end.
pub(super) const EVER: u8 = u8::MAX;

impl Setup {
    pub(super) fn ttl(self) -> Ttl {
        Ttl::remainder(self.tick * u32::from(self.ttl))
    }

    /// Does what the rule says, on a master that is not kept out.
    pub(super) fn apply(self, master: &mut Master, op: &Op) -> Option<Outcome> {
        if master.out > 0 {
            return None;
        }
        let holder = usize::from(master.hold).checked_sub(1);
        let ends = NOW.after_span(self.tick * u32::from(master.left));
        let mut record = Record {
            hold: holder.map(|attempt| core::hold(attempt, ends)),
            ..Record::default()
        };
        let outcome = mutex::apply(&mut record, op, NOW, |_| false);
        master.used |= matches!(outcome, Outcome::Granted { .. });
        let hold = record.holder(NOW);
        master.hold = hold.map_or(0, |hold| 1 + core::attempt(hold.lease));
        let left = hold.map_or(Duration::ZERO, |hold| NOW.until(hold.expires_at));
        master.left = self.ticks(left);
        Some(outcome)
    }

    /// In how many ticks from now, this one counted, a span is not over.
    fn ticks(self, span: Duration) -> u8 {
        let ticks = span.as_nanos().div_ceil(self.tick.as_nanos());
        u8::try_from(ticks).unwrap_or(EVER)
    }

    /// In how many ticks from now a lease is relied on that was asked for `age` ticks ago.
    pub(super) fn relied_on(self, age: u8) -> u8 {
        let now = Instant::from_nanos(u64::from(u32::MAX) << 20);
        let sent = now.before(self.tick * u32::from(age));
        let deadline = match self.deadline {
            Deadline::Rule => time::deadline(sent, self.ttl()),
            Deadline::FromReply => time::deadline(now, self.ttl()),
            Deadline::WithoutMargin => sent.after(self.ttl().as_duration()),
            Deadline::Never => return EVER,
        };
        self.ticks(now.until(deadline))
    }

    /// Whether masters are inspected before they are admitted.
    pub(super) fn is_inspected(self) -> bool {
        let faults = [Fault::Restart, Fault::Flush, Fault::OldData, Fault::OldCopy];
        self.unused || faults.contains(&self.fault)
    }

    /// In how many ticks the wait of every master is over, and one more.
    pub(super) fn out_max(self) -> u8 {
        self.ticks(quarantine(self.ttl())) + 1
    }

    /// What a master says of itself.
    fn observation(self, master: &Master) -> Observation {
        let waited = self.tick * u32::from(master.out.saturating_sub(1));
        let uptime = match self.fault {
            Fault::Flush | Fault::OldCopy => quarantine(Ttl::MAX),
            _ => waited,
        };
        Observation {
            run: RUNS[0],
            uptime,
            now: NOW.after_span(waited),
            admitted: match self.fault {
                _ if master.out == 0 => Some(RUNS[0]),
                Fault::OldData | Fault::OldCopy => Some(RUNS[1]),
                _ => None,
            },
            high: core::token(u8::from(master.used)),
            since: (master.out > 0).then_some(NOW),
        }
    }

    /// Whether a master that is out is admitted if these others answer, and whether it knows a token then.
    pub(super) fn admits<const N: usize>(
        self,
        state: &State<N>,
        at: usize,
        others: u32,
    ) -> Option<bool> {
        let master = &state.masters[at];
        let unused = Observation {
            admitted: None,
            high: None,
            ..self.observation(master)
        };
        let silent = match (self.admission, others.count_ones()) {
            (Admission::NoAnswer, 0) | (Admission::OneAnswer, 1) => Some(unused),
            (Admission::SettingOfNow | Admission::SameProcess, _)
                if unused != self.observation(master) =>
            {
                return Some(true);
            }
            _ => None,
        };
        let inspected = state.masters.iter().enumerate().map(|(nth, it)| {
            let answers = nth == at || others & 1 << nth != 0;
            answers.then(|| self.observation(it)).or(silent)
        });
        let inspected: Vec<_> = inspected.collect();
        let size = Size::new(N).ok()?;
        // The clocks stand still between the two inspections: that is as early as it can be.
        match decide(size, self.ttl(), at, inspected[at].as_ref(), &inspected) {
            Decision::Admit { floor } => Some(floor.is_some()),
            _ => None,
        }
    }

    /// Writes a token to the masters that the round says, and whether it is won then.
    ///
    /// At once: later, the leases could only be over. Its counters are left out; they do not say who
    /// holds the lock.
    pub(super) fn write<const N: usize>(self, state: &mut State<N>, at: usize, heard: u32) -> bool {
        let Some(first) = core::token(1) else {
            return false;
        };
        let Ok(size) = Size::new(N) else {
            return state.masters[0].cells[at].acquire == Acquire::Granted;
        };
        let mut round = Round::new(size, TokenCount::MIN);
        let mut step = Step::Wait;
        for master in (0..N).filter(|master| heard & 1 << master != 0) {
            step = round.handle_reply(master, Some(Outcome::Granted { first }));
        }
        let Step::Write { first, to } = step else {
            return false;
        };
        let op = core::fence(at, first);
        let mut steps = to.iter().map(|master| {
            let answer = self.apply(&mut state.masters[master], &op);
            round.handle_token_reply(master, answer)
        });
        steps.any(|step| matches!(step, Step::Won { .. }))
    }

    /// What a master answers to a renewal.
    pub(super) fn renew(self, master: &mut Master, at: usize) -> Option<Renew> {
        let op = Op::Renew {
            lease: core::lease(at),
            ttl: self.ttl(),
        };
        match self.apply(master, &op)? {
            Outcome::Renewed => Some(Renew::Done),
            Outcome::Lost(Loss::Gone) => Some(Renew::Gone),
            _ => None,
        }
    }

    /// Which masters have lost a lease that a majority has renewed. `None`: none has.
    pub(super) fn voted<const N: usize>(self, state: &State<N>, at: usize) -> Option<u32> {
        let cells = state.masters.iter().map(|master| master.cells[at].renew);
        let cells: Vec<_> = cells.enumerate().collect();
        let Ok(size) = Size::new(N) else {
            return (cells[0].1 == Renew::Done).then_some(0);
        };
        let mut vote = Vote::new(size);
        let gone = cells.iter().filter(|(_, renew)| *renew == Renew::Gone);
        let done = cells.iter().filter(|(_, renew)| *renew == Renew::Done);
        let mut verdicts = gone.chain(done).map(|(master, renew)| {
            let answer = match renew {
                Renew::Done => Outcome::Renewed,
                _ => Outcome::Lost(Loss::Gone),
            };
            vote.handle_reply(*master, Some(answer))
        });
        let verdict = verdicts.find_map(|verdict| verdict)?;
        let gone = || vote.gone().iter().fold(0, |all, master| all | 1 << master);
        (verdict == Verdict::Done).then(gone)
    }
}
