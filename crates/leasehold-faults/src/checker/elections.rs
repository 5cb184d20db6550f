//! P13: nobody leads without a grant, each term has one leader, and the terms that an observer is told never fall. In
//! the end every observer is told the final leader.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{Facts, Hold, Observer, Process};
use super::report::{CheckReport, Count, Margin};
use crate::clock::{MILLI, Nanos};
use crate::history::ObservedLeader;

/// How long a reading of the store may take on a busy machine, until its observer is told.
const READING_MAX: Nanos = 2_000 * MILLI;

/// An observer, with its process and its election.
type Observing<'a> = (&'a Process, &'a str, &'a Observer);

pub(super) fn check(facts: &Facts, report: &mut CheckReport) {
    let processes = facts.processes.iter();
    let observing: Vec<Observing<'_>> = processes
        .flat_map(|process| {
            let observers = process.observers.iter();
            observers.map(move |(election, observer)| (process, &**election, observer))
        })
        .collect();
    if observing.is_empty() {
        return;
    }
    let elections: BTreeSet<_> = observing.iter().map(|(_, election, _)| *election).collect();
    check_terms(facts, &elections, &observing, report);
    let holds = facts.holds.iter().map(|hold| (&*hold.lease, hold));
    let holds: BTreeMap<_, _> = holds.collect();
    for observing in &observing {
        check_observer(facts, *observing, &holds, report);
    }
    for (election, lease, at) in &facts.final_leaders {
        let observing = observing.iter().filter(|(_, name, _)| name == election);
        for observing in observing {
            check_final(*observing, lease, *at, report);
        }
    }
    for (name, holds) in facts.holds_by_name() {
        if elections.contains(name) {
            report.add(Count::LeaderChanges, holds.len() as u64 - 1);
        }
    }
}

/// Each term of an election belongs to one lease, whoever shows it: its leader or an observer. Readers of another lock have a
/// token in common.
fn check_terms(
    facts: &Facts,
    elections: &BTreeSet<&str>,
    observing: &[Observing<'_>],
    report: &mut CheckReport,
) {
    let holds = facts.holds.iter();
    let led = holds.filter(|hold| elections.contains(&*hold.name));
    let led = led.filter_map(|hold| {
        let term = (&*hold.name, hold.token?);
        Some((term, &*hold.lease))
    });
    let told = observing.iter().flat_map(|(_, election, observer)| {
        let leaders = observer.leaders.iter();
        let leaders = leaders.filter_map(|(_, leader)| leader.as_ref());
        leaders.map(|leader| ((*election, leader.term), &*leader.lease))
    });
    let mut leases = BTreeMap::new();
    for (term, lease) in led.chain(told) {
        let first = *leases.entry(term).or_insert(lease);
        if first != lease {
            let (election, term) = term;
            report.violation(format!(
                "P13 {first} and {lease} lead {election:?} in term {term}"
            ));
        }
    }
}

fn check_observer(
    facts: &Facts,
    (process, election, observer): Observing<'_>,
    holds: &BTreeMap<&str, &Hold>,
    report: &mut CheckReport,
) {
    for reason in &observer.failures {
        let name = &process.name;
        report.violation(format!(
            "P13 the observer of {election:?} in process {name} failed: {reason}"
        ));
    }
    let leaders = observer.leaders.iter();
    let leaders = leaders.filter_map(|(at, leader)| Some((*at, leader.as_ref()?)));
    let mut last: Option<&ObservedLeader> = None;
    for (at, leader) in leaders {
        report.add(Count::LeadersObserved, 1);
        if let Some(last) = last.filter(|last| last.term > leader.term) {
            report.violation(format!(
                "P13 the observer of {election:?} in process {} was told {leader:?} at {at}, after {last:?}",
                process.name
            ));
        }
        let is_new = last.is_none_or(|last| last.lease != leader.lease);
        last = Some(leader);
        match holds.get(&*leader.lease) {
            Some(hold) if is_grant(facts, hold, election, leader) && hold.requested <= at => {
                if is_new {
                    measure(process, hold.granted, at, report);
                    check_current(facts, process, hold, at, report);
                }
            }
            None if died_with_grant(facts, election, leader) => {}
            None if led_before(facts, leader) => {}
            _ => report.violation(format!(
                "P13 the observer of {election:?} in process {} was told a leader without a grant at {at}: {leader:?}",
                process.name
            )),
        }
    }
}

/// Whether a leader is the one that this hold was granted.
fn is_grant(facts: &Facts, hold: &Hold, election: &str, leader: &ObservedLeader) -> bool {
    let process = &facts.processes[hold.process].name;
    hold.name == election
        && hold.token == Some(leader.term)
        && (process, hold.number) == (&leader.process, leader.hold)
}

/// Whether a leader was granted the lock in an earlier part of a soak. A new observer counts a lease that was not released
/// from when it sees it, at some stores.
fn led_before(facts: &Facts, leader: &ObservedLeader) -> bool {
    let first = process_of(facts, leader).and_then(|process| process.first);
    first.is_some_and(|first| leader.hold < first)
}

/// Whether the process of a leader was killed between its grant and the record of it.
fn died_with_grant(facts: &Facts, election: &str, leader: &ObservedLeader) -> bool {
    process_of(facts, leader).is_some_and(|process| {
        let pending = process.pending.get(&leader.hold);
        process.died.is_some() && pending.is_some_and(|name| name == election)
    })
}

fn process_of<'a>(facts: &'a Facts, leader: &ObservedLeader) -> Option<&'a Process> {
    let mut processes = facts.processes.iter();
    processes.find(|process| process.name == leader.process)
}

/// Measures how long after its grant an observer was told a leader, unless the observer's process stood still.
fn measure(process: &Process, granted: Nanos, told: Nanos, report: &mut CheckReport) {
    let began_before = process.observers.values().any(|observer| {
        let first = observer.leaders.first();
        first.is_some_and(|(first, _)| *first <= granted)
    });
    if began_before && !process.stood_still(granted, told) {
        let delay = told.saturating_sub(granted);
        report.margin(Margin::Observed, delay.cast_signed());
    }
}

/// A leader that an observer is told was the holder in the reading, so no other has led for long.
fn check_current(
    facts: &Facts,
    process: &Process,
    hold: &Hold,
    told: Nanos,
    report: &mut CheckReport,
) {
    let later = facts
        .holds
        .iter()
        .filter(|other| other.name == hold.name && other.token > hold.token);
    let Some(next) = later.min_by_key(|other| other.granted) else {
        return;
    };
    let forgot = !facts.keeps_grants && facts.forgot(&hold.name, hold.granted, told);
    if next.granted + READING_MAX < told && !forgot && !process.stood_still(next.granted, told) {
        report.violation(format!(
            "P13 the observer of {:?} in process {} was told {} at {told}, but {} led since {}",
            hold.name,
            process.name,
            facts.describe(hold),
            facts.describe(next),
            next.granted
        ));
    }
}

/// An observer that lives was told the final leader last.
fn check_final(
    (process, election, observer): Observing<'_>,
    lease: &str,
    at: Nanos,
    report: &mut CheckReport,
) {
    let ended = [process.died, process.ended].into_iter().flatten().min();
    if ended.is_some_and(|ended| ended < at) {
        return;
    }
    let mut before = observer.leaders.iter().rev();
    let last = before.find(|(told, _)| *told <= at);
    let last = last.and_then(|(_, leader)| leader.as_ref());
    if last.is_some_and(|leader| leader.lease == lease) {
        return report.add(Count::FinalLeadersObserved, 1);
    }
    report.violation(format!(
        "P13 the observer of {election:?} in process {} was told {last:?} at last, not {lease}",
        process.name
    ));
}
