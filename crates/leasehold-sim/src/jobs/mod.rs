//! A simulation of a daily job on several machines, over a month.
//!
//! The store applies the rules that ship: of the record and of jobs. Machines start the job by their own
//! clocks, which disagree, often late and also over a change of summer time. Persons try it by hand. Runs fail, crash and are paused beyond
//! their lease. Each machine may start a failed run again, and one machine of each day does not fail.
//!
//! The result is how many runs said they were complete for the start of each day.

mod calendar;
mod report;
mod setup;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::record::{Change, Changes, Note, Part, Row};
use leasehold_core::{
    Acquire, ClientId, Completion, Due, Environment, JobSchedule, LeaseId, NewNote, Notice, Op,
    Outcome, Period, Rows, Slot, Slots, StoreTime, Token, Ttl, job,
};

pub use self::calendar::ClockChange;
use self::calendar::{DAY, HOUR, MINUTE};
pub use self::report::Report;
pub use self::setup::{MIDNIGHT, Mutation, NIGHTLY, SETUPS, Setup};

/// How many days are simulated.
pub const DAYS: u64 = 30;

/// How many machines start the job.
pub const MACHINES: usize = 5;

/// The ttl of the leases, in minutes.
const TTL: u64 = 5;

/// How long a completion is kept: beyond the end.
const KEEP: Duration = Duration::from_secs(2 * DAYS * DAY);

/// How long a run takes, in seconds.
const WORK: Range<u64> = 10..20 * MINUTE;

/// How far the clock of a machine differs from that of the store at most, in seconds. Two of them differ by twice that.
const CLOCK_ERROR: u64 = 5 * MINUTE;

/// How long a machine waits until it starts a failed run again.
const RETRY: Range<u64> = MINUTE..10 * MINUTE;

/// How long before the anchor a trial belongs to the run of the timer, in seconds.
const EARLY: u64 = 3 * HOUR + 15 * MINUTE;

/// The machine of a person who tries the job.
const PERSON: usize = MACHINES;

/// How often a failed run is started again.
const ATTEMPTS: u32 = 2;

/// Runs the simulation of a seed.
#[must_use]
pub fn run(seed: u64, setup: &Setup) -> Report {
    let mut simulation = Simulation::new(seed, setup);
    while let Some(((now, _), event)) = simulation.events.pop_first() {
        simulation.now = now;
        simulation.process(event);
    }
    simulation.report
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A machine starts the job.
    Start(Start),
    /// A process that waits requests the lock again.
    Request { process: usize },
    /// A running process renews its lease.
    Renew { process: usize },
    /// A running process is at its end, whichever that is.
    End { process: usize },
}

/// A start of the job, for a day.
#[derive(Clone, Copy, Debug)]
struct Start {
    machine: usize,
    day: usize,
    attempt: u32,
}

struct Process {
    start: Start,
    lease: LeaseId,
    requested_at: StoreTime,
    state: ProcessState,
}

enum ProcessState {
    Waiting,
    Running(Run),
    Ended,
}

/// A run that has begun.
#[derive(Clone, Copy)]
struct Run {
    started_at: StoreTime,
    slots: Slots,
    outcome: RunOutcome,
}

/// How a run ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunOutcome {
    Succeeds,
    Fails,
    /// It ends without a release.
    Crashes,
    /// It is paused for longer than its lease, and then says that it is complete.
    Pauses,
}

struct Simulation {
    setup: Setup,
    rng: Rng,
    now: StoreTime,
    events: BTreeMap<(StoreTime, u64), Event>,
    scheduled: u64,
    record: Rows,
    processes: Vec<Process>,
    /// The processes that can be notified.
    waiting: BTreeSet<usize>,
    /// The machine of each day whose runs succeed.
    healthy: Vec<usize>,
    /// The days with a run that failed.
    failed_days: BTreeSet<usize>,
    report: Report,
}

impl Simulation {
    fn new(seed: u64, setup: &Setup) -> Self {
        let mut rng = Rng::with_seed(seed);
        let healthy = (0..DAYS).map(|_| rng.usize(..MACHINES)).collect();
        let mut simulation = Self {
            setup: *setup,
            rng,
            now: calendar::time(0),
            events: BTreeMap::new(),
            scheduled: 0,
            record: Rows::default(),
            processes: Vec::new(),
            waiting: BTreeSet::new(),
            healthy,
            failed_days: BTreeSet::new(),
            report: Report {
                completed: vec![0; DAYS as usize],
                ..Report::default()
            },
        };
        simulation.schedule_starts();
        if let Some(anchor) = setup.anchor {
            simulation.schedule_trials(anchor);
        }
        simulation
    }

    /// The starts of all machines, by their clocks.
    fn schedule_starts(&mut self) {
        let Setup {
            start,
            spread,
            lateness: (late, tenths),
            change,
            ..
        } = self.setup;
        for machine in 0..MACHINES {
            let local = start + spread * machine as u64 / (MACHINES as u64 - 1);
            let clock_error = self.rng.u64(..=2 * CLOCK_ERROR);
            // Where a person tries the job, its timers begin on the day after the first trial.
            for day in u64::from(self.setup.anchor.is_some())..DAYS {
                for seconds in calendar::starts(day, local, change) {
                    let late = match self.rng.u64(..10) < tenths {
                        true => self.rng.u64(..=late),
                        false => self.rng.u64(..MINUTE),
                    };
                    let at = calendar::time(seconds + clock_error + late - CLOCK_ERROR);
                    let start = Start {
                        machine,
                        day: day as usize,
                        attempt: 0,
                    };
                    let at = self.jittered(at);
                    self.schedule(at, Event::Start(start));
                }
            }
        }
    }

    /// A trial on the first day, which succeeds, and on about every second day after it.
    fn schedule_trials(&mut self, anchor: u64) {
        self.healthy[0] = PERSON;
        for day in 0..DAYS {
            let after = self.rng.u64(..if day == 0 { DAY - EARLY } else { DAY });
            let belongs_to = day + u64::from(after >= DAY - EARLY);
            if belongs_to < DAYS && (day == 0 || self.rng.bool()) {
                let at = self.jittered(calendar::time((day + 1) * DAY + anchor + after));
                let trial = Start {
                    machine: PERSON,
                    day: belongs_to as usize,
                    attempt: ATTEMPTS,
                };
                self.schedule(at, Event::Start(trial));
            }
        }
    }

    /// A time within the same second, so that two events are seldom at the same time.
    fn jittered(&mut self, at: StoreTime) -> StoreTime {
        at.after_span(Duration::from_micros(self.rng.u64(..1_000_000)))
    }

    fn process(&mut self, event: Event) {
        match event {
            Event::Start(start) => self.start(start),
            Event::Request { process } => {
                if self.waiting.contains(&process) {
                    self.request(process);
                }
            }
            Event::Renew { process } => self.renew(process),
            Event::End { process } => self.end(process),
        }
    }

    /// A process reads the completion, and requests the lock if the run is not complete.
    fn start(&mut self, start: Start) {
        let process = self.processes.len();
        let client = ClientId::from_random((process as u128).to_be_bytes());
        self.processes.push(Process {
            start,
            lease: LeaseId { client, number: 1 },
            requested_at: self.now,
            state: ProcessState::Waiting,
        });
        match self.due(process) {
            Due::Completed => self.leave_completed(process),
            Due::Run(_) => self.request(process),
        }
    }

    fn due(&self, process: usize) -> Due {
        let requested_at = self.processes[process].requested_at;
        let stored = self.record.note(&Slot::Period, &self.environment());
        let stored = stored.map(|it| match Completion::parse(&it.text) {
            Ok(completion) => completion,
            Err(error) => unreachable!("{error}: {}", it.text),
        });
        let schedule = self.schedule_of_job();
        // The slots of a rule that is broken.
        let slots = |anchor| Slots {
            anchor,
            chosen: false,
            period: schedule.period,
        };
        let (slots, completed) = match self.setup.mutation {
            Some(Mutation::SlotByFloor) => {
                let slots = slots(StoreTime::default());
                let slot = |time| slots.last_begun(time);
                let completed = |run: &Completion| slot(run.started_at) >= slot(requested_at);
                (slots, stored.as_ref().is_some_and(completed))
            }
            Some(Mutation::TrialByNearestSlot) => {
                let slots = slots(schedule.anchor.unwrap_or_default());
                let completed = |run| slots.slot_of(run) >= slots.slot(requested_at);
                (slots, stored.as_ref().is_some_and(completed))
            }
            _ => return job::due(stored.as_ref(), schedule, requested_at, self.now),
        };
        match completed {
            true => Due::Completed,
            false => Due::Run(slots),
        }
    }

    fn schedule_of_job(&self) -> JobSchedule {
        JobSchedule {
            period: period(),
            anchor: self.setup.anchor.map(calendar::time),
        }
    }

    fn request(&mut self, process: usize) {
        self.waiting.insert(process);
        let op = Op::Acquire(Acquire {
            wait: true,
            ..Acquire::mutex(self.processes[process].lease, ttl())
        });
        match self.apply(&op) {
            Outcome::Granted { .. } => self.begin(process),
            Outcome::Refused { .. } if self.setup.mutation == Some(Mutation::SkipInsteadOfWait) => {
                self.finish(process);
            }
            Outcome::Refused { time_left, .. } => {
                let wait = time_left.unwrap_or_default().min(ttl().as_duration());
                let again = self.now.after_span(wait + Duration::from_millis(1));
                self.schedule(again, Event::Request { process });
            }
            outcome => unreachable!("{outcome:?}"),
        }
    }

    /// A process holds the lock. Under it, nobody else completes a run.
    fn begin(&mut self, process: usize) {
        self.waiting.remove(&process);
        let Due::Run(slots) = self.due(process) else {
            return self.leave_completed(process);
        };
        let start = self.processes[process].start;
        let outcome = match self.rng.u8(..10) {
            _ if self.healthy[start.day] == start.machine => RunOutcome::Succeeds,
            0..4 => RunOutcome::Succeeds,
            4..6 => RunOutcome::Fails,
            6..8 => RunOutcome::Crashes,
            _ => RunOutcome::Pauses,
        };
        self.processes[process].state = ProcessState::Running(Run {
            started_at: self.now,
            slots,
            outcome,
        });
        let mut work = self.rng.u64(WORK);
        if outcome == RunOutcome::Pauses {
            // Its last renewal is forgotten long before it ends.
            work = work.max(3 * TTL * MINUTE);
        }
        let end = self.now.after_span(Duration::from_secs(work));
        let end = self.jittered(end);
        self.schedule(end, Event::End { process });
        self.schedule_renewal(process);
    }

    fn schedule_renewal(&mut self, process: usize) {
        let at = self.now.after_span(ttl().as_duration() / 3);
        self.schedule(at, Event::Renew { process });
    }

    fn renew(&mut self, process: usize) {
        let it = &self.processes[process];
        let ProcessState::Running(run) = it.state else {
            return;
        };
        // A process that is to be paused is paused from its first renewal on.
        if run.outcome != RunOutcome::Pauses {
            let outcome = self.apply(&Op::renew(it.lease, ttl()));
            assert_eq!(
                outcome,
                Outcome::Kept,
                "only a paused process loses its lease"
            );
            self.schedule_renewal(process);
        }
    }

    fn end(&mut self, process: usize) {
        let ProcessState::Running(run) = self.processes[process].state else {
            unreachable!("a run ends once");
        };
        let completed = match run.outcome {
            RunOutcome::Succeeds | RunOutcome::Pauses => self.complete(process, run),
            RunOutcome::Fails | RunOutcome::Crashes => false,
        };
        let start = self.processes[process].start;
        if completed {
            self.report.completed[start.day] += 1;
            self.report.taken_over += u32::from(self.failed_days.contains(&start.day));
        } else {
            self.report.failed += 1;
            self.failed_days.insert(start.day);
            if start.attempt < ATTEMPTS && self.rng.bool() {
                let wait = Duration::from_secs(self.rng.u64(RETRY));
                let attempt = start.attempt + 1;
                let again = Event::Start(Start { attempt, ..start });
                self.schedule(self.now.after_span(wait), again);
            }
        }
        match run.outcome {
            RunOutcome::Crashes => self.processes[process].state = ProcessState::Ended,
            _ => self.finish(process),
        }
    }

    /// Stores the completion of a run. `false`: its lease does not hold the lock any more.
    fn complete(&mut self, process: usize, run: Run) -> bool {
        let Process {
            lease,
            requested_at,
            ..
        } = self.processes[process];
        let completion = Completion {
            slots: Some(run.slots),
            requested_at,
            started_at: run.started_at,
            finished_at: self.now,
            exit_code: 0,
            host: String::new(),
            program: String::new(),
            label: String::new(),
        };
        let note = NewNote {
            slot: Slot::Period,
            token: Token::MAX,
            number: 1,
            text: completion.to_text().into(),
            keep: KEEP,
        };
        if self.setup.mutation == Some(Mutation::CompleteWithoutLock) {
            self.store_note(lease, note);
        } else if self.apply(&Op::WriteNote { lease, note }) != Outcome::Stored {
            return false;
        }
        // They observe the completion.
        for waiter in self.waiting.clone() {
            if self.waiting.contains(&waiter) && self.due(waiter) == Due::Completed {
                self.leave_completed(waiter);
            }
        }
        true
    }

    /// Stores a note, whatever lease holds the lock.
    fn store_note(&mut self, lease: LeaseId, new: NewNote) {
        let note = Note {
            lease,
            token: new.token,
            number: new.number,
            text: new.text,
            until: self.now.after_span(new.keep),
        };
        let rows = vec![Change::Put(Part::Note(new.slot), Row::Note(note))];
        self.record.store(Changes { head: None, rows });
    }

    fn leave_completed(&mut self, process: usize) {
        self.report.found_complete += 1;
        self.finish(process);
    }

    /// A process ends: it releases the lock, or leaves the queue.
    fn finish(&mut self, process: usize) {
        self.processes[process].state = ProcessState::Ended;
        self.waiting.remove(&process);
        let lease = self.processes[process].lease;
        self.apply(&Op::release(lease));
    }

    const fn environment(&self) -> Environment {
        Environment { now: self.now }
    }

    /// Applies an operation, and what the notified processes do then.
    fn apply(&mut self, op: &Op) -> Outcome {
        let (waiting, environment) = (&self.waiting, self.environment());
        let reaches = |client| waiting.contains(&process_of(client));
        let applied = self.record.apply(op, &environment, reaches);
        for notice in applied.notices {
            let process = process_of(notice.lease().client);
            match notice {
                Notice::Granted(grant) => {
                    self.waiting.remove(&process);
                    self.apply(&Op::renew(grant.lease, ttl()));
                    self.begin(process);
                }
                Notice::Next { ttl, .. } => {
                    let wait = ttl.as_duration() + Duration::from_millis(1);
                    let again = self.now.after_span(wait);
                    self.schedule(again, Event::Request { process });
                }
                Notice::Revoked { .. } | Notice::Complete { .. } => {}
            }
        }
        applied.outcome
    }

    fn schedule(&mut self, at: StoreTime, event: Event) {
        self.scheduled += 1;
        self.events.insert((at, self.scheduled), event);
    }
}

fn period() -> Period {
    let Some(period) = Period::checked(Duration::from_secs(DAY)) else {
        unreachable!("a day is a period")
    };
    period
}

fn ttl() -> Ttl {
    Ttl::remainder(Duration::from_secs(TTL * MINUTE))
}

/// The process of a client.
fn process_of(client: ClientId) -> usize {
    u128::from_be_bytes(client.to_bytes()) as usize
}

#[cfg(test)]
mod tests;
