//! What one process of a crowd does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::Part;
use super::names::Names;
use crate::bench::clock::{Moment, Window};
use crate::bench::crew::member::{Orders, say};
use crate::bench::meters;
use crate::bench::pause::Pause;
use crate::bench::place::{Desk, Place};
use crate::bench::times::Times;
use crate::bench::witness::{Testimony, Witness};
use crate::exit::Failure;

/// After so many acquisitions a task lets the others run: a store in memory never makes it wait.
const IN_A_ROW: u64 = 128;

/// How many waits a task notes before it hands them in: few hand-ins, little memory.
const NOTES: usize = 256;

/// What one process got, while it counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::bench) struct Share {
    pub(super) acquisitions: u64,
    /// Those of each task.
    pub(super) by_task: Vec<u64>,
    pub(super) waits: Times,
    /// How long it was in its critical sections.
    pub(super) in_section_ns: u64,
    /// How long the critical sections were that ended while it counted, and how many.
    pub(super) section_ns: u64,
    pub(super) sections: u64,
    /// `None`: the store has nothing to count.
    pub(super) calls: Option<u64>,
    pub(super) handoffs: u64,
    /// How many holders were watched, also before and after.
    pub(super) witnessed: u64,
    pub(super) testimony: Testimony,
}

/// A process of the crowd.
pub(super) struct Worker {
    desk: Desk,
    shared: Arc<Shared>,
    tasks: Vec<Task>,
}

/// What the tasks of a process share.
struct Shared {
    names: Names,
    locks: Vec<leasehold::Mutex>,
    witness: Witness,
    section: Duration,
    waits: Mutex<Times>,
}

struct Task {
    random: Rng,
    pause: Pause,
    notes: Vec<u64>,
    acquisitions: u64,
    in_section_ns: u64,
    section_ns: u64,
    sections: u64,
    witnessed: u64,
}

/// Takes part as a process of its own.
pub(in crate::bench) async fn serve(
    place: &Place,
    part: &Part,
    orders: &mut Orders,
) -> Result<(), Failure> {
    let worker = Worker::open(place, part).await?;
    say(&())?;
    let Some(window) = orders.next().await? else {
        return Ok(());
    };
    say(&worker.run(window).await?)?;
    // The connection stays until all have answered: to close it is work, too.
    orders.next::<()>().await.map(drop)
}

impl Worker {
    pub(super) async fn open(place: &Place, part: &Part) -> Result<Self, Failure> {
        meters::listen();
        let desk = place.open().await?;
        let locks: leasehold::Result<Vec<_>> = (0..part.names).map(|n| desk.mutex(n)).collect();
        let tasks: Result<Vec<_>, Failure> = (0..part.tasks)
            .map(|task| Task::new(u64::from(part.number) << 32 | u64::from(task)))
            .collect();
        Ok(Self {
            shared: Arc::new(Shared {
                names: Names::new(part.names),
                witness: Witness::new(part.names),
                locks: locks?,
                section: part.section,
                waits: Mutex::new(Times::new()?),
            }),
            tasks: tasks?,
            desk,
        })
    }

    pub(super) fn store(&self) -> String {
        self.desk.store()
    }

    /// Lets all tasks run until the window closes and counts what they do in it.
    pub(super) async fn run(self, window: Window) -> Result<Share, Failure> {
        let start = |task: Task| tokio::spawn(task.run(Arc::clone(&self.shared), window));
        let tasks: Vec<_> = self.tasks.into_iter().map(start).collect();
        let look = || (self.desk.yardstick.calls(), meters::HANDOFFS.so_far());
        window.from.come().await;
        let (calls, handoffs) = look();
        window.until.come().await;
        let (calls_after, handoffs_after) = look();
        let mut share = Share {
            acquisitions: 0,
            by_task: Vec::with_capacity(tasks.len()),
            waits: Times::new()?,
            in_section_ns: 0,
            section_ns: 0,
            sections: 0,
            calls: calls.zip(calls_after).map(|(before, after)| after - before),
            handoffs: handoffs_after - handoffs,
            witnessed: 0,
            testimony: Testimony::default(),
        };
        for task in tasks {
            let task = task.await;
            let task =
                task.map_err(|error| Failure::own("a task of the bench failed", error))??;
            share.acquisitions += task.acquisitions;
            share.by_task.push(task.acquisitions);
            share.in_section_ns += task.in_section_ns;
            share.section_ns += task.section_ns;
            share.sections += task.sections;
            share.witnessed += task.witnessed;
        }
        let mut waits = self
            .shared
            .waits
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut share.waits, &mut waits);
        share.testimony = self.shared.witness.tell();
        Ok(share)
    }
}

impl Task {
    fn new(seed: u64) -> Result<Self, Failure> {
        let pause = Pause::new();
        let pause = pause.map_err(|error| Failure::own("there is no timer to be had", error))?;
        Ok(Self {
            random: Rng::with_seed(seed),
            pause,
            notes: Vec::with_capacity(NOTES),
            acquisitions: 0,
            in_section_ns: 0,
            section_ns: 0,
            sections: 0,
            witnessed: 0,
        })
    }

    async fn run(mut self, shared: Arc<Shared>, window: Window) -> Result<Self, Failure> {
        let mut asked = Moment::now();
        while asked < window.until {
            let name = shared.names.choose(&mut self.random);
            let guard = shared.locks[name].lock().await?;
            let granted = Moment::now();
            let token = guard.token().get();
            shared.witness.enter(name, token);
            let left = self.spend(shared.section, granted, &window).await?;
            shared.witness.leave(name, token, granted, left);
            guard.release().await?;
            self.note(&shared, asked, granted, &window);
            self.witnessed += 1;
            if self.witnessed.is_multiple_of(IN_A_ROW) {
                tokio::task::yield_now().await;
            }
            asked = Moment::now();
        }
        self.hand_in(&shared);
        Ok(self)
    }

    /// Is in the critical section, and says when it left.
    async fn spend(
        &mut self,
        section: Duration,
        granted: Moment,
        window: &Window,
    ) -> Result<Moment, Failure> {
        if section.is_zero() {
            return Ok(granted);
        }
        let slept = self.pause.sleep(section).await;
        slept.map_err(|error| Failure::own("the critical section cannot be timed", error))?;
        let left = Moment::now();
        self.in_section_ns += window.overlap(granted, left);
        if window.contains(left) {
            self.section_ns += left.nanos_since(granted);
            self.sections += 1;
        }
        Ok(left)
    }

    /// An acquisition counts if it was granted in the window. A wait counts if any of it lay there:
    /// who starved to the end must not be left out.
    fn note(&mut self, shared: &Shared, asked: Moment, granted: Moment, window: &Window) {
        if granted < window.from {
            return;
        }
        self.acquisitions += u64::from(window.contains(granted));
        self.notes.push(granted.nanos_since(asked));
        if self.notes.len() == NOTES {
            self.hand_in(shared);
        }
    }

    fn hand_in(&mut self, shared: &Shared) {
        let mut waits = shared.waits.lock().unwrap_or_else(PoisonError::into_inner);
        for nanos in self.notes.drain(..) {
            waits.record_nanos(nanos, 1);
        }
    }
}
