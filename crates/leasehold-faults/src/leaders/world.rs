//! A store, candidates and observers, and changes of leader by faults.

use std::time::Duration;

use fastrand::Rng;
use leasehold_testkit::found_within;

use super::ELECTIONS;
use super::progress::{Leader, Progress};
use super::stores::{Store, StoreKind};
use crate::clock::{self, Nanos};
use crate::history::Note;
use crate::holder::{CandidateConfig, ElectionsConfig, HolderConfig, Nodes, Workload};
use crate::holder_process::HolderProcess;
use crate::world::Recording;

const CANDIDATES: usize = 3;
const OBSERVERS: usize = 2;

/// How long an election may be without a leader, on however busy a machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running world.
pub(super) struct World {
    kind: StoreKind,
    pub(super) recording: Recording,
    store: Store,
    /// The port of the fenced resource.
    fence: u16,
    candidates: Vec<HolderProcess>,
    observers: Vec<HolderProcess>,
    /// The number of processes so far.
    processes: usize,
    progress: Progress,
    rng: Rng,
    /// The time from the kill of each leader to its successor.
    pub(super) after_kill: Vec<Nanos>,
}

/// What happens to a leader, or to a server.
#[derive(Clone, Copy, Debug)]
enum Step {
    Kill,
    /// The process of a leader is stopped for longer than its ttl.
    Pause,
    Resign,
    ServerFault,
}

/// Each world begins with one step of each kind.
const FIRST_STEPS: [Step; 4] = [Step::Kill, Step::ServerFault, Step::Pause, Step::Resign];

impl World {
    /// Starts everything, and waits until each election has a leader.
    pub(super) fn start(kind: StoreKind, seed: u64) -> Self {
        let store = Store::start(kind);
        let recording = Recording::start();
        let mut world = Self {
            kind,
            store,
            fence: recording.fence(),
            recording,
            candidates: Vec::new(),
            observers: Vec::new(),
            processes: 0,
            progress: Progress::default(),
            rng: Rng::with_seed(seed),
            after_kill: Vec::new(),
        };
        for nth in 0..CANDIDATES {
            let candidate = world.launch(Some(nth));
            world.candidates.push(candidate);
        }
        for _ in 0..OBSERVERS {
            let observer = world.launch(None);
            world.observers.push(observer);
        }
        for election in ELECTIONS {
            world.successor(election, 0);
        }
        world
    }

    /// Makes so many changes of leader.
    pub(super) fn run(&mut self, changes: usize) {
        for step in FIRST_STEPS {
            self.step(step);
        }
        while self.changes() < changes {
            let step = match self.rng.u8(..100) {
                0..35 => Step::Kill,
                35..60 => Step::Pause,
                60..70 => Step::Resign,
                _ => Step::ServerFault,
            };
            self.step(step);
        }
    }

    /// The number of changes of leader so far.
    pub(super) fn changes(&self) -> usize {
        self.progress.grants().saturating_sub(ELECTIONS.len())
    }

    fn step(&mut self, step: Step) {
        self.replace_failed();
        let paused = (self.rng.u8(..6) == 0).then(|| self.rng.usize(..OBSERVERS));
        if let Some(nth) = paused {
            self.observers[nth].stop();
        }
        match step {
            Step::ServerFault => self.inject(),
            _ => self.end_leadership(step),
        }
        if let Some(nth) = paused {
            self.observers[nth].resume();
        }
    }

    /// Ends the leadership of one election, and waits for its successor. A process may also lead other elections.
    fn end_leadership(&mut self, step: Step) {
        let election = ELECTIONS[self.rng.usize(..ELECTIONS.len())];
        let Some((leader, nth)) = self.living_leader(election) else {
            return self.violation(format!("no candidate that lives leads {election:?}"));
        };
        let since = clock::now();
        match step {
            Step::Kill => self.replace(nth),
            Step::Pause => {
                let ttl = self.ttl_ms(nth);
                let length = Duration::from_millis(self.rng.u64(ttl * 11 / 10..ttl * 16 / 10));
                self.candidates[nth].pause(length);
            }
            _ => {
                let resign = format!("resign {election}");
                self.candidates[nth].helper.send(&resign);
            }
        }
        match self.successor(election, leader.term) {
            Some(at) if matches!(step, Step::Kill) => {
                self.after_kill.push(at.saturating_sub(since));
            }
            Some(_) => {}
            None => self.violation(format!(
                "no candidate leads {election:?} within {TIMEOUT:?} after {step:?} of {}",
                leader.process
            )),
        }
    }

    /// Injects a fault of a server, and perhaps kills or stops a leader while the server is away.
    fn inject(&mut self) {
        let election = ELECTIONS[self.rng.usize(..ELECTIONS.len())];
        let leader = self.living_leader(election).map(|(_, nth)| nth);
        let (kill, pause) = match self.rng.u8(..3) {
            0 => (leader, None),
            1 => (None, leader),
            _ => (None, None),
        };
        let ttl = pause.map_or(0, |nth| self.ttl_ms(nth));
        let candidates = &mut self.candidates;
        self.store
            .inject(&mut self.rng, &self.recording.journal, || {
                if let Some(nth) = kill {
                    candidates[nth].kill();
                }
                if let Some(nth) = pause {
                    candidates[nth].pause(Duration::from_millis(ttl * 12 / 10));
                }
            });
        if let Some(nth) = kill {
            self.replace(nth);
        }
    }

    /// The leader of an election, and the number of its candidate. `None`: nobody leads who lives, for too long.
    fn living_leader(&mut self, election: &str) -> Option<(Leader, usize)> {
        self.until(|world| {
            let leader = world.progress.leader(election)?;
            let mut candidates = world.candidates.iter();
            let nth = candidates.position(|candidate| candidate.name == leader.process)?;
            Some((leader.clone(), nth))
        })
    }

    /// Waits for a leader with a larger term. Returns when it was granted. `None`: it takes too long.
    fn successor(&mut self, election: &str, term: u64) -> Option<Nanos> {
        self.until(|world| {
            let leader = world.progress.leader(election)?;
            (leader.term > term).then_some(leader.at)
        })
    }

    /// Reads events until something is found. `None`: it takes too long.
    fn until<T>(&mut self, find: impl Fn(&Self) -> Option<T>) -> Option<T> {
        found_within(TIMEOUT, || {
            self.progress.update();
            find(self)
        })
    }

    /// Ends all faults, waits until every observer has been told the leader of each election, and ends all processes.
    pub(super) fn finish(&mut self) {
        self.replace_failed();
        self.store.settle(&self.recording.journal);
        let last = self.candidates.remove(0);
        for candidate in std::mem::take(&mut self.candidates) {
            let name = candidate.name.clone();
            candidate.end();
            self.progress.remove(&name);
        }
        for election in ELECTIONS {
            let lease = |world: &Self| {
                let leader = world.progress.leader(election)?;
                (leader.process == last.name).then(|| leader.lease.clone())
            };
            self.until(|world| {
                lease(world).filter(|lease| world.progress.all_observe(election, lease))
            });
            match lease(self) {
                Some(lease) => drop(self.recording.journal.record(&Note::FinalLeader {
                    election: election.to_owned(),
                    lease,
                })),
                None => self.violation(format!("the last candidate does not lead {election:?}")),
            }
        }
        for observer in std::mem::take(&mut self.observers) {
            observer.end();
        }
        last.end();
    }

    fn violation(&self, text: String) {
        self.recording.journal.record(&Note::Violation(text));
    }

    fn ttl_ms(&self, candidate: usize) -> u64 {
        let ttls = self.kind.ttls_ms();
        ttls[candidate % ttls.len()]
    }

    /// Replaces processes that have ended by themselves.
    fn replace_failed(&mut self) {
        for nth in 0..CANDIDATES {
            if self.candidates[nth].has_failed() {
                self.replace(nth);
            }
        }
    }

    /// Kills a candidate, unless it has ended, and starts another one in its place.
    fn replace(&mut self, nth: usize) {
        if self.candidates[nth].helper.ended().is_none() {
            self.candidates[nth].kill();
        }
        let name = self.candidates[nth].name.clone();
        self.progress.remove(&name);
        self.candidates[nth] = self.launch(Some(nth));
    }

    /// Starts a candidate or, without a number, an observer.
    fn launch(&mut self, candidate: Option<usize>) -> HolderProcess {
        self.processes += 1;
        let kind = if candidate.is_some() { "c" } else { "o" };
        let config = HolderConfig {
            process: format!("{kind}{}", self.processes),
            directory: self.recording.directory(),
            url: self.store.url(),
            ttl_ms: self.ttl_ms(candidate.unwrap_or(0)),
            threads: self.rng.usize(1..=2),
            handoff: false,
            clock: None,
            nodes: Nodes::default(),
            workload: Workload::Elections(ElectionsConfig {
                names: ELECTIONS.map(str::to_owned).to_vec(),
                replicated: self.kind.is_replicated(),
                candidate: candidate.map(|_| CandidateConfig {
                    fence: self.fence,
                    seed: self.rng.u64(..),
                }),
            }),
        };
        self.progress.add(&config.directory, &config.process);
        HolderProcess::start(&self.recording.journal, &config)
    }
}
