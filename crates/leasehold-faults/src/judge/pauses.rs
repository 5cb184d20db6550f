//! P4: a process that was stopped for longer than its ttl reads `Lost` at its first look.

use super::facts::{Facts, Hold};
use super::verdict::Verdict;
use crate::clock::Nanos;
use crate::history::Fault;

pub(super) fn check(facts: &Facts, verdict: &mut Verdict) {
    for happened in &facts.faults {
        let named = happened.process.as_deref();
        let mut processes = facts.processes.iter();
        let Some(index) = processes.position(|process| Some(&*process.name) == named) else {
            continue;
        };
        let (stopped, woken) = happened.inner;
        let holds = facts.granted().map(|(hold, _)| hold);
        let holds = holds.filter(|hold| hold.process == index);
        match happened.fault {
            Fault::KillHolder => {
                let held = holds
                    .filter(|hold| holds_at(hold, happened.outer.0))
                    .count();
                verdict.figures.killed_holding += held as u64;
            }
            Fault::PauseHolder | Fault::PauseHolderLong
                if woken - stopped > facts.processes[index].ttl =>
            {
                for hold in holds {
                    verdict.figures.paused_holding += u64::from(holds_at(hold, stopped));
                    look_after(facts, hold, happened.inner, verdict);
                }
            }
            _ => {}
        }
    }
}

fn look_after(facts: &Facts, hold: &Hold, pause: (Nanos, Nanos), verdict: &mut Verdict) {
    let (stopped, woken) = pause;
    if hold.grant.as_ref().is_none_or(|grant| grant.at >= stopped) {
        return;
    }
    let mut looks = hold.looks.iter();
    if let Some(look) = looks.find(|look| look.before > woken && look.until().is_some()) {
        verdict.violation(format!(
            "P4 {} was stopped from {stopped} to {woken}, longer than its ttl, and saw {look:?}",
            facts.describe(hold),
        ));
    }
}

fn holds_at(hold: &Hold, at: Nanos) -> bool {
    hold.beliefs()
        .iter()
        .any(|(from, to)| *from <= at && at < *to)
}
