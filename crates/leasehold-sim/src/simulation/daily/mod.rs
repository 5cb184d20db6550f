//! A daily job on several machines, over a month.
//!
//! Machines start the job by their own clocks, which disagree, often late and also over a change of summer time. Persons
//! try it by hand. Each start is a process of its own. Runs fail, crash and are paused beyond their lease. Each machine
//! may start a failed run again, and one machine of each day does not fail. So each day must have one run that is
//! complete.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use leasehold_core::job::LEAD_MAX;
use leasehold_core::record::Unless;
use leasehold_core::{JobSchedule, LeaseId, Period, StoreTime};

use super::calendar::{self, DAY, HOUR, MINUTE};
use super::machine::Machine;
use super::{
    Event, Mutation, Occurrence, Scenario, SimulatedClient, Simulation, Timetable, Violation,
};

/// How many days are simulated.
const DAYS: usize = 30;

/// How many machines start the job.
const MACHINES: usize = 5;

/// The machine of a person who tries the job.
const PERSON: usize = MACHINES;

/// The ttl of the leases. For one of minutes, the allowance for drift leaves a waiter hardly any time to accept a grant.
pub(super) const TTL: Duration = Duration::from_secs(MINUTE);

/// How long a run takes, in seconds.
const WORK: Range<u64> = 10..20 * MINUTE;

/// How long a paused run takes at least: its last renewal is forgotten long before it ends.
const PAUSED: Duration = Duration::from_secs(15 * MINUTE);

/// How far the clock of a machine differs from that of the store at most, in seconds. Two of them differ by twice that.
const CLOCK_ERROR: u64 = 5 * MINUTE;

/// How long a machine waits until it starts a failed run again.
const RETRY: Range<u64> = MINUTE..10 * MINUTE;

/// How long before the anchor a trial belongs to the run of the timer, in seconds.
const EARLY: u64 = 3 * HOUR + 15 * MINUTE;

/// How often a failed run is started again.
const ATTEMPTS: u32 = 2;

/// How long a client waits that skips its run if the lock is held: longer than a request and its reply take.
const NO_WAIT: Duration = Duration::from_secs(5);

/// A start of the job: on a machine, for a day, after so many attempts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start(usize, usize, u32);

/// A process of the job.
#[derive(Clone, Copy, Debug)]
struct Process {
    start: Start,
    end: End,
    work: Duration,
    began: bool,
    completed: bool,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Succeeds,
    Fails,
    /// It ends without a release.
    Crashes,
    /// It is paused for longer than its lease.
    Pauses,
}

/// The job, as far as it has got.
#[derive(Debug, Default)]
pub(super) struct Daily {
    /// The processes by the numbers of their machines in the simulation.
    processes: BTreeMap<usize, Process>,
    /// The machine of each day whose runs succeed.
    healthy: Vec<usize>,
    /// The days with a run that failed.
    failed: BTreeSet<usize>,
    /// The days with a run that is complete.
    completed: BTreeSet<usize>,
}

impl Simulation {
    /// The condition of the job, unless it is another scenario.
    pub(super) fn daily_run(&self) -> Option<Unless> {
        let Scenario::Daily(timetable) = self.setup.scenario else {
            return None;
        };
        Some(Unless::Period {
            schedule: self.schedule_of(&timetable),
            asked: Duration::ZERO,
        })
    }

    /// The schedule of the job. That of a mutation has its slots begin at other times.
    fn schedule_of(&self, timetable: &Timetable) -> JobSchedule {
        let day = Duration::from_secs(DAY);
        let Some(period) = Period::checked(day) else {
            unreachable!("a day is a period")
        };
        let chosen = timetable.anchor.map(calendar::time);
        let anchor = match self.setup.mutation {
            Some(Mutation::SlotByFloor) => Some(StoreTime::default().after_span(LEAD_MAX)),
            Some(Mutation::TrialByNearestSlot) => {
                chosen.map(|anchor| anchor.before_span(day / 2).after_span(LEAD_MAX))
            }
            _ => chosen,
        };
        JobSchedule { period, anchor }
    }

    /// Plays the month, and checks that each day has had its run.
    pub(super) fn play_daily(&mut self, timetable: &Timetable) -> Result<(), Violation> {
        self.time = calendar::at(0);
        self.daily.healthy = (0..DAYS).map(|_| self.rng.usize(..MACHINES)).collect();
        self.schedule_starts(timetable);
        if let Some(anchor) = timetable.anchor {
            self.schedule_trials(anchor);
        }
        while self.step()? {
            let machines: Vec<_> = self.daily.processes.keys().copied().collect();
            for machine in machines {
                self.observe_process(machine);
            }
        }
        match self.daily.completed.len() {
            DAYS => Ok(()),
            _ => Err(Violation::NotRun),
        }
    }

    /// The starts of all machines, by their clocks.
    fn schedule_starts(&mut self, timetable: &Timetable) {
        let (late, tenths) = timetable.lateness;
        for machine in 0..MACHINES {
            let spread = timetable.spread * machine as u64 / (MACHINES as u64 - 1);
            let clock_error = self.rng.u64(..=2 * CLOCK_ERROR);
            // Where a person tries the job, its timers begin on the day after the first trial.
            for day in usize::from(timetable.anchor.is_some())..DAYS {
                let local = timetable.start + spread;
                for seconds in calendar::starts(day as u64, local, timetable.change) {
                    let late = match self.rng.u64(..10) < tenths {
                        true => self.rng.u64(..=late),
                        false => self.rng.u64(..MINUTE),
                    };
                    let seconds = seconds + clock_error + late - CLOCK_ERROR;
                    self.schedule_start(seconds, Start(machine, day, 0));
                }
            }
        }
    }

    /// A trial on the first day, which succeeds, and on about every second day after it.
    fn schedule_trials(&mut self, anchor: u64) {
        self.daily.healthy[0] = PERSON;
        for day in 0..DAYS {
            let after = self.rng.u64(..if day == 0 { DAY - EARLY } else { DAY });
            let belongs_to = day + usize::from(after >= DAY - EARLY);
            if belongs_to < DAYS && (day == 0 || self.rng.bool()) {
                let trial = Start(PERSON, belongs_to, ATTEMPTS);
                self.schedule_start((day as u64 + 1) * DAY + anchor + after, trial);
            }
        }
    }

    fn schedule_start(&mut self, seconds: u64, start: Start) {
        // Within the second, so that two events are seldom at the same time.
        let at = calendar::at(seconds) + self.rng.u64(..1_000_000_000);
        self.schedule_at(at, Event::Start(start));
    }

    /// Starts a process, which asks for the run.
    pub(super) fn start_process(&mut self, start: Start) {
        let mut machines = self.machines.iter();
        let free = machines.position(|machine| machine.client.is_none());
        let machine = free.unwrap_or_else(|| {
            self.machines.push(Machine::new(&self.setup, &mut self.rng));
            self.machines.len() - 1
        });
        let end = match self.rng.u8(..10) {
            _ if self.daily.healthy[start.1] == start.0 => End::Succeeds,
            0..4 => End::Succeeds,
            4..6 => End::Fails,
            6..8 => End::Crashes,
            _ => End::Pauses,
        };
        let mut work = Duration::from_secs(self.rng.u64(WORK));
        if end == End::Pauses {
            work = work.max(PAUSED);
        }
        let process = Process {
            start,
            end,
            work,
            began: false,
            completed: false,
        };
        self.daily.processes.insert(machine, process);
        self.start(machine);
        let wait = match self.setup.mutation {
            Some(Mutation::SkipsIfHeld) => NO_WAIT,
            _ => Duration::from_secs(DAY),
        };
        self.with(machine, |client, cx| {
            client.succeeds = Some(end != End::Fails);
            client.acquire(wait, work, cx);
        });
    }

    /// A process has begun its run, or has ended.
    fn observe_process(&mut self, machine: usize) {
        let Some(process) = self.daily.processes.get_mut(&machine) else {
            return;
        };
        let it = &self.machines[machine];
        let is_holder = it.hold(self.time).is_some();
        if is_holder && !std::mem::replace(&mut process.began, true) {
            let Process { end, work, .. } = *process;
            // From its first renewal on.
            let soon = self.part(TTL / 3);
            match end {
                End::Succeeds | End::Fails => {}
                End::Crashes => {
                    // Before its end, also by a clock that is fast.
                    let crash = self.part(work * 9 / 10);
                    self.schedule(crash, Event::Crash { machine });
                }
                End::Pauses => {
                    self.schedule(soon, Event::Pause { machine });
                    self.schedule(soon + work, Event::Resume { machine });
                }
            }
        } else if it.client.as_ref().is_none_or(SimulatedClient::has_ended) {
            let process = *process;
            self.daily.processes.remove(&machine);
            self.kill(machine, None);
            self.end_process(process);
        }
    }

    /// A run that has failed may be started again.
    fn end_process(&mut self, process: Process) {
        let Start(machine, day, attempt) = process.start;
        if process.completed {
            if self.daily.failed.contains(&day) {
                self.count(Occurrence::RunTakenOver);
            }
        } else if process.began {
            self.count(Occurrence::RunFailed);
            self.daily.failed.insert(day);
            if attempt < ATTEMPTS && self.rng.bool() {
                let wait = Duration::from_secs(self.rng.u64(RETRY));
                self.schedule(wait, Event::Start(Start(machine, day, attempt + 1)));
            }
        }
    }

    /// Observes a release that completes the run of a day.
    pub(super) fn observe_daily(&mut self, lease: LeaseId) -> Result<(), Violation> {
        let mut machines = self.machines.iter();
        let machine = machines.position(|machine| machine.id == lease.client);
        let process = machine.and_then(|machine| self.daily.processes.get_mut(&machine));
        let Some(process) = process else {
            return Err(Violation::Forgotten);
        };
        process.completed = true;
        let is_first = self.daily.completed.insert(process.start.1);
        is_first.then_some(()).ok_or(Violation::Repeated)
    }
}
