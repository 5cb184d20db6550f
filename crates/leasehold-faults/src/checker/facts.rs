//! A history, arranged for the checks.

use std::collections::BTreeMap;

use leasehold_checker::HoldInterval;

use super::report::{CheckReport, Count};
use crate::clock::{MILLI, Nanos};
use crate::history::{
    Event, FaultEvent, FencedWrite, History, HoldEvent, LeaseState, Note, ObservationKind,
    ObservedLeader, Sample, Share, WorldInfo,
};

/// An interval in which a holder relies on a lock.
pub(super) type Interval<'a> = HoldInterval<(&'a str, Option<u64>)>;

/// The largest difference between the time in a token and the instant of its grant: a token is larger than the last
/// one, and 257 of them are reserved at once, each for a microsecond.
const TOKEN_ERROR: Nanos = MILLI;

/// What happened in a world.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) processes: Vec<Process>,
    /// Those that were granted, in the order of their requests.
    pub(super) holds: Vec<Hold>,
    /// The process, the hold and the time of each request to re-enter a lease.
    reentries: Vec<(usize, u64, Nanos)>,
    /// Runs of jobs that were not granted, because they were complete before.
    pub(super) complete_before: Vec<Hold>,
    /// The number of acquisitions, granted or not.
    requested: u64,
    pub(super) faults: Vec<FaultEvent>,
    pub(super) samples: Vec<(Nanos, Sample)>,
    pub(super) writes: Vec<(Nanos, FencedWrite)>,
    pub(super) violations: Vec<String>,
    pub(super) held_at_end: Vec<(String, String)>,
    pub(super) watched: bool,
    /// Whether there were many masters, of which fewer than a majority forgot at a time.
    pub(super) many: bool,
    /// Whether no fault makes the store forget a grant: there were many masters, or replicas that acknowledged each.
    pub(super) keeps_grants: bool,
    /// The election, the lease and the instant of each leader after the last fault.
    pub(super) final_leaders: Vec<(String, String, Nanos)>,
    /// The smallest observed token of each lease: that of its grant, or a little larger.
    first_tokens: BTreeMap<String, u64>,
    wall: Option<Nanos>,
}

/// A holder process.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) ttl: Nanos,
    pub(super) handoff: bool,
    /// Times in which none of its threads ran.
    pub(super) stalls: Vec<(Nanos, Nanos)>,
    /// Times in which none of its tasks ran, though a processor was free.
    blocked: Vec<(Nanos, Nanos)>,
    /// When it ended as requested, and the same if it had released everything.
    pub(super) ended: Option<Nanos>,
    pub(super) released: Option<Nanos>,
    /// When it was killed, or executed another program.
    pub(super) died: Option<Nanos>,
    pub(super) observers: BTreeMap<String, Observer>,
    /// The number of its first acquisition here. In a part of a soak those before are in earlier histories.
    pub(super) first: Option<u64>,
    /// The names and numbers of acquisitions that had no result when it died.
    pub(super) pending: BTreeMap<u64, String>,
}

/// An observer of an election.
#[derive(Debug, Default)]
pub(super) struct Observer {
    /// The leaders that it was told of, in this order.
    pub(super) leaders: Vec<(Nanos, Option<ObservedLeader>)>,
    pub(super) failures: Vec<String>,
}

/// An acquisition, from its request to its release.
#[derive(Debug, Default)]
pub(super) struct Hold {
    pub(super) process: usize,
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) requested: Nanos,
    pub(super) fixed: bool,
    /// `None`: it has the lock to itself.
    pub(super) share: Option<Share>,
    /// The key, if it is a run of a job, and when the job was known to be complete for it.
    pub(super) key: Option<String>,
    pub(super) completed: Option<Nanos>,
    /// The hold of the same process whose lease it re-enters.
    reenters: Option<u64>,
    pub(super) granted: Nanos,
    pub(super) lease: String,
    /// `None`: it was not granted.
    pub(super) token: Option<u64>,
    pub(super) ttl: Nanos,
    pub(super) observations: Vec<Observation>,
    refused: bool,
    pub(super) releasing: Option<Nanos>,
    pub(super) released: Option<(Nanos, String)>,
}

/// A state that a holder read at some instant between `before` and `at`.
#[derive(Debug)]
pub(super) struct Observation {
    pub(super) before: Nanos,
    pub(super) at: Nanos,
    pub(super) state: LeaseState,
    pub(super) kind: ObservationKind,
    /// When the critical step that it began ended.
    step_ended: Option<Nanos>,
}

impl Facts {
    pub(super) fn of(history: &History) -> Self {
        let mut facts = Self::default();
        for (at, note) in &history.notes {
            facts.take_note(*at, note.clone());
        }
        for process in &history.processes {
            facts.take_process(process);
        }
        facts.holds.sort_by_key(|hold| hold.requested);
        for hold in &facts.holds {
            let Some(token) = hold.token else {
                continue;
            };
            let first = facts.first_tokens.entry(hold.lease.clone());
            let first = first.or_insert(token);
            *first = token.min(*first);
        }
        facts
    }

    fn take_note(&mut self, at: Nanos, note: Note) {
        match note {
            Note::World(WorldInfo {
                wall,
                servers,
                replicated,
                watched,
            }) => {
                (self.wall, self.many, self.watched) = (wall, servers > 1, watched);
                self.keeps_grants = self.many || replicated;
            }
            Note::Fault(fault) => self.faults.push(fault),
            Note::Sampled(sample) => self.samples.push((at, sample)),
            Note::Wrote(write) => self.writes.push((at, write)),
            Note::Violation(text) => self.violations.push(text),
            Note::HeldAtEnd { name, lease } => self.held_at_end.push((name, lease)),
            Note::FinalLeader { election, lease } => {
                self.final_leaders.push((election, lease, at));
            }
        }
    }

    fn take_process(&mut self, history: &crate::history::Process) {
        let mut deaths = self.faults.iter().filter(|event| {
            event.fault.ends_holder() && event.process.as_deref() == Some(&*history.name)
        });
        let mut process = Process {
            name: history.name.clone(),
            died: deaths.next().map(|event| event.outer.0),
            ..Process::default()
        };
        if history.stderr.contains("panicked") {
            let (name, stderr) = (&history.name, history.stderr.trim());
            self.violations.push(format!("process {name}: {stderr}"));
        }
        let mut holds = BTreeMap::<u64, Hold>::new();
        for (at, event) in &history.events {
            match event {
                Event::Started { ttl_ms, handoff } => {
                    (process.ttl, process.handoff) = (ttl_ms * MILLI, *handoff);
                }
                Event::Stalled { since } => process.stalls.push((*since, *at)),
                Event::Blocked { since } => process.blocked.push((*since, *at)),
                Event::Observing { elections } => {
                    let observer = |name: &String| (name.clone(), Observer::default());
                    process.observers = elections.iter().map(observer).collect();
                }
                Event::LeaderObserved { election, leader } => {
                    let observer = process.observers.entry(election.clone());
                    let told = (*at, leader.clone());
                    observer.or_default().leaders.push(told);
                }
                Event::ObserverFailed { election, reason } => {
                    let observer = process.observers.entry(election.clone());
                    observer.or_default().failures.push(reason.clone());
                }
                Event::Ended { released } => {
                    process.ended = Some(*at);
                    process.released = released.then_some(*at);
                }
                Event::Hold(number, event) => {
                    let hold = holds.entry(*number).or_insert_with(|| Hold {
                        process: self.processes.len(),
                        number: *number,
                        ..Hold::default()
                    });
                    hold.take(*at, event.clone());
                }
            }
        }
        let pending = holds.iter().filter(|(_, hold)| hold.is_pending());
        let pending = pending.map(|(number, hold)| (*number, hold.name.clone()));
        process.pending = pending.collect();
        process.first = holds.keys().next().copied();
        self.processes.push(process);
        self.requested += holds.len() as u64;
        let reentry = |hold: &Hold| Some((hold.process, hold.reenters?, hold.requested));
        self.reentries.extend(holds.values().filter_map(reentry));
        let (granted, others): (Vec<_>, Vec<_>) =
            holds.into_values().partition(|hold| hold.token.is_some());
        self.holds.extend(granted);
        let complete = others.into_iter().filter(|run| run.completed.is_some());
        self.complete_before.extend(complete);
    }

    /// The holds of each lock that has one holder at a time.
    pub(super) fn holds_by_name(&self) -> BTreeMap<&str, Vec<&Hold>> {
        by_name(self.holds.iter().filter(|hold| hold.share.is_none()))
    }

    /// The holds of each lock that is shared.
    pub(super) fn shares_by_name(&self) -> BTreeMap<&str, Vec<&Hold>> {
        by_name(self.holds.iter().filter(|hold| hold.share.is_some()))
    }

    /// When the store granted a lease, by the time in its first token. `None`: tokens have no time.
    pub(super) fn granted_at(&self, lease: &str) -> Option<Nanos> {
        let token = self.first_tokens.get(lease)?;
        (token * 1000).checked_sub(self.wall?)
    }

    /// An instant before the store granted the lease of a hold: without a time in its token, when its first hold was
    /// requested.
    pub(super) fn before_grant(&self, hold: &Hold) -> Nanos {
        let same = |other: &&Hold| other.process == hold.process && other.lease == hold.lease;
        match self.granted_at(&hold.lease) {
            Some(at) => at.saturating_sub(TOKEN_ERROR),
            None => self.holds.iter().find(same).unwrap_or(hold).requested,
        }
    }

    /// The intervals in which the holder of a hold relies on the lock: from each observation to the deadline that it
    /// showed, unless the release begins before. In order, and disjoint. A watchdog ends them with the process.
    pub(super) fn hold_intervals(&self, hold: &Hold) -> Vec<(Nanos, Nanos)> {
        let died = self.processes[hold.process].died.filter(|_| self.watched);
        let ends = [hold.releasing, died].into_iter().flatten();
        let end = ends.min().unwrap_or(Nanos::MAX);
        let mut intervals: Vec<(Nanos, Nanos)> = Vec::new();
        for observation in &hold.observations {
            let Some(until) = observation.state.until() else {
                continue;
            };
            let (from, until) = (observation.at, until.min(end));
            match intervals.last_mut() {
                _ if from >= until => {}
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => intervals.push((from, until)),
            }
        }
        intervals
    }

    /// The intervals of holds, and the hold of each. Those of one owner share their lease and their token, so they are
    /// one holder.
    pub(super) fn intervals_of<'a>(
        &self,
        holds: &[&'a Hold],
    ) -> (Vec<&'a Hold>, Vec<Interval<'a>>) {
        let intervals = holds.iter().flat_map(|hold| {
            let holder = (&*hold.lease, hold.token);
            let intervals = self.hold_intervals(hold).into_iter();
            intervals.map(move |(from, until)| {
                let interval = HoldInterval {
                    from,
                    until,
                    holder,
                };
                (*hold, interval)
            })
        });
        intervals.unzip()
    }

    /// Whether the store may have lost a grant of a name, or ended it early, in this time.
    pub(super) fn forgot(&self, name: &str, from: Nanos, until: Nanos) -> bool {
        self.had_fault(from, until, |event| {
            event.fault.forgets_grants() && event.hits(name)
        })
    }

    /// Whether the store may have granted a name to another during a hold.
    pub(super) fn granted_twice(&self, hold: &Hold, from: Nanos, until: Nanos) -> bool {
        !self.keeps_grants && self.forgot_hold(hold, from, until)
    }

    /// Whether the store may have forgotten one of these holds before the last of them began at an instant. A holder that
    /// it has forgotten is granted no renewal.
    pub(super) fn forgot_any(&self, holds: &[&Hold], at: Nanos) -> bool {
        let granted = holds.iter().map(|hold| self.before_grant(hold)).min();
        let since = |hold: &Hold| granted.max(Some(at.saturating_sub(hold.ttl))).unwrap_or(at);
        let mut holds = holds.iter();
        holds.any(|hold| self.granted_twice(hold, since(hold), at))
    }

    /// The same as [`Facts::forgot`] for one hold. A re-entry after the loss of the counter has a reply with another
    /// token, so the holder takes it for another grant and gives the lease up.
    pub(super) fn forgot_hold(&self, hold: &Hold, from: Nanos, until: Nanos) -> bool {
        let reentered = |&(process, number, requested): &(usize, u64, Nanos)| {
            (process, number) == (hold.process, hold.number) && requested <= until
        };
        let counter = |event: &FaultEvent| event.fault.forgets_counters() && event.hits(&hold.name);
        self.forgot(&hold.name, from, until)
            || (self.had_fault(from, until, counter) && self.reentries.iter().any(reentered))
    }

    /// Whether a fault of some kind overlaps a time.
    pub(super) fn had_fault(
        &self,
        from: Nanos,
        until: Nanos,
        kind: impl Fn(&FaultEvent) -> bool,
    ) -> bool {
        let mut faults = self.faults.iter();
        faults.any(|event| event.overlaps(from, until) && kind(event))
    }

    /// A hold in a violation.
    pub(super) fn describe(&self, hold: &Hold) -> String {
        let process = &self.processes[hold.process].name;
        format!("hold {} of process {process} ({})", hold.number, hold.lease)
    }

    pub(super) fn count(&self, report: &mut CheckReport) {
        for event in &self.faults {
            *report.faults.entry(event.fault).or_default() += 1;
        }
        report.add(Count::Processes, self.processes.len() as u64);
        report.add(Count::Requested, self.requested);
        for process in &self.processes {
            let stalled = |block: &&(Nanos, Nanos)| process.stood_still(block.0, block.1);
            for (from, until) in process.blocked.iter().filter(|block| !stalled(block)) {
                report.add(Count::LongestBlock, (until - from) / MILLI);
            }
        }
        for hold in &self.holds {
            report.add(Count::Granted, 1);
            report.add(Count::LongestWait, (hold.granted - hold.requested) / MILLI);
            report.add(Count::Lost, u64::from(hold.lost().is_some()));
            let steps = hold.observations.iter();
            for step in steps.filter(|step| step.kind == ObservationKind::Step) {
                report.add(Count::Steps, 1);
                let until = step.state.until().unwrap_or(0);
                let late = step.step_ended.is_some_and(|at| at > until);
                report.add(Count::StepsLate, u64::from(late));
            }
        }
    }
}

fn by_name<'a>(holds: impl Iterator<Item = &'a Hold>) -> BTreeMap<&'a str, Vec<&'a Hold>> {
    let mut names = BTreeMap::<&str, Vec<_>>::new();
    for hold in holds {
        names.entry(&hold.name).or_default().push(hold);
    }
    names
}

impl Process {
    /// Whether none of its threads ran at some time.
    pub(super) fn stood_still(&self, from: Nanos, until: Nanos) -> bool {
        let mut stalls = self.stalls.iter();
        stalls.any(|(begin, end)| *begin <= until && *end >= from)
    }
}

impl Hold {
    fn take(&mut self, at: Nanos, event: HoldEvent) {
        match event {
            HoldEvent::Requested {
                name,
                fixed,
                reenters,
            } => {
                self.requested = at;
                (self.name, self.fixed, self.reenters) = (name, fixed, reenters);
            }
            HoldEvent::Shares(share) => self.share = Some(share),
            HoldEvent::Runs(key) => self.key = Some(key),
            HoldEvent::Granted {
                lease,
                token,
                ttl_ms,
            } => {
                (self.granted, self.ttl) = (at, ttl_ms * MILLI);
                (self.lease, self.token) = (lease, Some(token));
            }
            HoldEvent::Observed {
                before,
                state,
                kind,
            } => self.observations.push(Observation {
                before,
                at,
                state,
                kind,
                step_ended: None,
            }),
            HoldEvent::Stepped(_) => {
                let mut observations = self.observations.iter_mut().rev();
                let step = observations.find(|step| step.kind == ObservationKind::Step);
                if let Some(step) = step {
                    step.step_ended = Some(at);
                }
            }
            HoldEvent::Completed => self.completed = Some(at),
            HoldEvent::Releasing => self.releasing = self.releasing.or(Some(at)),
            HoldEvent::Released { outcome } => self.released = Some((at, outcome)),
            HoldEvent::NotGranted { .. } => self.refused = true,
        }
    }

    /// Whether its acquisition has no result.
    fn is_pending(&self) -> bool {
        self.token.is_none() && !self.refused
    }

    /// Whether it reads what others may read at the same time.
    pub(super) fn reads(&self) -> bool {
        matches!(self.share, Some(Share::Read | Share::Upgradable))
    }

    pub(super) fn has_permits(&self) -> bool {
        matches!(self.share, Some(Share::Permits { .. }))
    }

    /// The latest deadline that it was shown.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.observations
            .iter()
            .filter_map(|observation| observation.state.until())
            .max()
    }

    /// The first observation after an instant that was not a loss.
    pub(super) fn not_lost_after(&self, at: Nanos) -> Option<&Observation> {
        let mut observations = self.observations.iter();
        observations.find(|observation| observation.before > at && !observation.state.is_lost())
    }

    /// The first observation of a loss.
    pub(super) fn lost(&self) -> Option<&Observation> {
        let mut observations = self.observations.iter();
        observations.find(|observation| observation.state.is_lost())
    }
}
