//! The rule that ships.

use leasehold_core::quorum::{
    Decision, MasterInfo, Round, RunId, Size, Step, Verdict, Vote, decide, quarantine,
};
use leasehold_core::time::{self, Ttl};
use leasehold_core::token::TokenCount;
use leasehold_core::{Loss, Op, Outcome};

use super::setup::{Admission, Deadline, Fault, Times};
use super::state::{Acquire, Master, Renew, State};
use crate::model::core::{self, NOW};

/// The run of a master, and the previous one.
const RUNS: [RunId; 2] = [RunId(2), RunId(1)];

/// Ticks without an end.
pub(super) const UNLIMITED: u8 = u8::MAX;

impl<const N: usize> Times<N> {
    pub(super) fn ttl(&self) -> Ttl {
        Ttl::remainder(self.tick * u32::from(self.ttl))
    }

    /// Applies the rule. `None`: the master is kept out.
    pub(super) fn apply(&self, master: &mut Master, op: &Op) -> Option<Outcome> {
        if master.kept_out > 0 {
            return None;
        }
        let holder = usize::from(master.hold).checked_sub(1);
        let end = NOW.after_span(self.tick * u32::from(master.remaining));
        let mut record = core::record(holder.map(core::lease), end);
        let outcome = core::apply(&mut record, op, NOW);
        master.used |= matches!(outcome, Outcome::Granted { .. });
        let (hold, time_left) = core::hold(&record, NOW);
        (master.hold, master.remaining) = (hold, core::ticks(time_left, self.tick));
        Some(outcome)
    }

    /// For how many ticks a lease can be relied on whose request was sent `age` ticks ago.
    pub(super) fn reliable_for(&self, age: u8) -> u8 {
        let (sent, now) = core::instants(self.tick * u32::from(age));
        let deadline = match self.deadline {
            Deadline::Rule => time::deadline(sent, self.ttl()),
            Deadline::FromReply => time::deadline(now, self.ttl()),
            Deadline::WithoutMargin => sent.after(self.ttl().as_duration()),
            Deadline::Never => return UNLIMITED,
        };
        core::ticks(now.until(deadline), self.tick)
    }

    /// Whether masters are inspected before they are admitted.
    pub(super) fn is_inspected(&self) -> bool {
        let uninspected = [Fault::RestartAtOnce, Fault::RestartEarly, Fault::Jump];
        self.unused || !uninspected.contains(&self.fault)
    }

    /// A tick more than the wait of a master that is kept out.
    pub(super) fn wait_max(&self) -> u8 {
        core::ticks(quarantine(self.ttl()), self.tick) + 1
    }

    /// The result of an inspection.
    fn master_info(&self, master: &Master) -> MasterInfo {
        let waited = self.tick * u32::from(master.kept_out.saturating_sub(1));
        let uptime = match self.fault {
            Fault::Flush | Fault::OldCopy => quarantine(Ttl::MAX),
            _ => waited,
        };
        MasterInfo {
            run: RUNS[0],
            uptime,
            now: NOW.after_span(waited),
            admitted: match self.fault {
                _ if master.kept_out == 0 => Some(RUNS[0]),
                Fault::OldData | Fault::OldCopy => Some(RUNS[1]),
                _ => None,
            },
            high: core::token(u8::from(master.used)),
            since: (master.kept_out > 0).then_some(NOW),
        }
    }

    /// Whether a master is admitted if these others reply: `Some`, with whether it knows a token then.
    pub(super) fn admission_with(&self, state: &State<N>, at: usize, others: u32) -> Option<bool> {
        let master = &state.masters[at];
        let unused = MasterInfo {
            admitted: None,
            high: None,
            ..self.master_info(master)
        };
        let silent = match (self.admission, others.count_ones()) {
            (Admission::NoReply, 0) | (Admission::OneReply, 1) => Some(unused),
            (Admission::CurrentSetting | Admission::SameProcess, _)
                if unused != self.master_info(master) =>
            {
                return Some(true);
            }
            _ => None,
        };
        let inspected = state.masters.iter().enumerate().map(|(nth, master)| {
            let replies = nth == at || others & 1 << nth != 0;
            replies.then(|| self.master_info(master)).or(silent)
        });
        let inspected: Vec<_> = inspected.collect();
        let size = Size::new(N).ok()?;
        // The clocks are stopped between the two inspections: that is the earliest admission.
        match decide(size, self.ttl(), at, inspected[at].as_ref(), &inspected) {
            Decision::Admit { floor } => Some(floor.is_some()),
            _ => None,
        }
    }

    /// Writes a token to the masters of the round, unless they have taken the proposal, and returns whether it is won.
    ///
    /// That takes no time: later, leases could only have expired. Counters are ignored, since exclusion does
    /// not depend on them.
    pub(super) fn write(&self, state: &mut State<N>, at: usize, majority: u32) -> bool {
        let Some(first) = core::token(1) else {
            return false;
        };
        let Ok(size) = Size::new(N) else {
            return state.masters[0].cells[at].acquire == Acquire::Granted;
        };
        let mut round = Round::new(size, TokenCount::MIN, self.proposed.then_some(first));
        let mut step = Step::Wait;
        for master in (0..N).filter(|master| majority & 1 << master != 0) {
            step = round.handle_reply(master, Some(&Outcome::granted(first)));
        }
        let Step::Write { first, to } = step else {
            return step == Step::Won { first };
        };
        let op = core::set_token(at, first);
        let mut steps = to.iter().map(|master| {
            let reply = self.apply(&mut state.masters[master], &op);
            round.handle_token_reply(master, reply.as_ref())
        });
        steps.any(|step| matches!(step, Step::Won { .. }))
    }

    /// The reply of a master to a renewal.
    pub(super) fn renew(&self, master: &mut Master, at: usize) -> Option<Renew> {
        match self.apply(master, &Op::renew(core::lease(at), self.ttl()))? {
            Outcome::Kept => Some(Renew::Renewed),
            Outcome::Lost(Loss::Free) => Some(Renew::Lost),
            _ => None,
        }
    }

    /// The masters that have lost a lease which a majority has renewed. `None`: no majority has.
    pub(super) fn vote(&self, state: &State<N>, at: usize) -> Option<u32> {
        let cells = state.masters.iter().map(|master| master.cells[at].renew);
        let cells: Vec<_> = cells.enumerate().collect();
        let Ok(size) = Size::new(N) else {
            return (cells[0].1 == Renew::Renewed).then_some(0);
        };
        let mut vote = Vote::new(size);
        let lost = cells.iter().filter(|(_, renew)| *renew == Renew::Lost);
        let renewed = cells.iter().filter(|(_, renew)| *renew == Renew::Renewed);
        let mut verdicts = lost.chain(renewed).map(|(master, renew)| {
            let reply = match renew {
                Renew::Renewed => Outcome::Kept,
                _ => Outcome::Lost(Loss::Free),
            };
            vote.handle_reply(*master, Some(&reply))
        });
        let verdict = verdicts.find_map(|verdict| verdict)?;
        let lost = || vote.free().iter().fold(0, |all, master| all | 1 << master);
        (verdict == Verdict::Done).then(lost)
    }
}
