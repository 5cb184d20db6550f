//! The tasks of one process.

use std::mem;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use leasehold::{Guard, ReadGuard, RwLock, WriteGuard};
use serde::{Deserialize, Serialize};

use super::names::Names;
use crate::baseline::BaselineLock;
use crate::clock::{Moment, Window};
use crate::exclusion::{ExclusionCheck, Observations};
use crate::latencies::{Latencies, lock};
use crate::metrics_recorder::{self, HANDOFFS, total};
use crate::options::Settings;
use crate::scenario::{LOCKS_IN_A_ROW, check_release};
use crate::sleep::SleepTimer;
use crate::target::Session;
use crate::worker::{Orders, reply};
use crate::workers::Job;
use crate::{Failure, Result, failed};

/// So many reads of a hundred: the tasks of the first process only read, and in each other one a single task only writes.
pub(super) const ALL_READ: u8 = 100;

/// The number of waits that a task keeps before it records them: few locks, little memory.
const WAITS_KEPT: usize = 256;

/// The share of one process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Share {
    pub(super) counts: Counts,
    /// The acquisitions of each task.
    pub(super) by_task: Vec<u64>,
    pub(super) waits: Latencies,
    /// Those of writers, beside readers.
    pub(super) writer_waits: Latencies,
    /// `None`: the store has no calls to count.
    pub(super) calls: Option<u64>,
    pub(super) handoffs: u64,
    pub(super) observations: Observations,
}

/// What tasks counted within the window.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) acquisitions: u64,
    /// The time in critical sections.
    pub(super) in_section_ns: u64,
    /// The whole time of critical sections that ended in it, and their number.
    pub(super) section_ns: u64,
    pub(super) sections: u64,
    /// The holders that were checked, also before the window and after it.
    pub(super) checked: u64,
}

/// The tasks of one process, ready to run.
pub(super) struct Tasks {
    session: Session,
    shared: Arc<Shared>,
    tasks: Vec<Task>,
}

struct Shared {
    names: Names,
    locks: Vec<leasehold::Mutex>,
    /// The lock of readers and writers, and how many of a hundred acquisitions read.
    rw_lock: Option<(RwLock, u8)>,
    check: ExclusionCheck,
    section: Duration,
    waits: Mutex<Latencies>,
    writer_waits: Mutex<Latencies>,
}

struct Task {
    random: Rng,
    timer: SleepTimer,
    waits: Vec<u64>,
    counts: Counts,
    /// Measured instead of the library.
    baseline: Option<BaselineLock>,
}

/// What a task holds.
enum Acquired {
    Baseline,
    Mutex(Guard),
    Reader(ReadGuard),
    Writer(WriteGuard),
}

/// Takes part as a worker.
pub(crate) async fn serve(job: &Job, orders: &mut Orders) -> Result<()> {
    let session = job.target.open().await?;
    let tasks = Tasks::new(session, &job.settings, job.number)?;
    reply(&())?;
    let Some(window) = orders.next().await? else {
        return Ok(());
    };
    reply(&tasks.run(window).await?)?;
    // The process stays until all have replied: to end is also work.
    orders.next::<()>().await.map(drop)
}

impl Tasks {
    pub(super) fn new(session: Session, settings: &Settings, number: u16) -> Result<Self> {
        metrics_recorder::install();
        let locks: Result<Vec<_>> = (0..settings.names)
            .map(|name| session.mutex(name))
            .collect();
        let (count, reads) = match settings.reads {
            Some(ALL_READ) if number > 0 => (1, Some(0)),
            reads => (settings.tasks, reads),
        };
        let rw_lock = reads.map(|reads| {
            let lock = session.rw_lock("rw")?;
            Ok::<_, Failure>((lock, reads))
        });
        let tasks: Result<Vec<_>> = (0..count)
            .map(|task| {
                let baseline = match settings.advisory {
                    Some(advisory) => Some(session.baseline_lock(0)?.advisory(advisory)),
                    None => None,
                };
                Task::new(u64::from(number) << 32 | u64::from(task), baseline)
            })
            .collect();
        Ok(Self {
            shared: Arc::new(Shared {
                names: Names::new(settings.names),
                check: ExclusionCheck::new(settings.names),
                locks: locks?,
                rw_lock: rw_lock.transpose()?,
                section: settings.section,
                waits: Mutex::default(),
                writer_waits: Mutex::default(),
            }),
            tasks: tasks?,
            session,
        })
    }

    /// Lets all tasks run until the window closes and counts what they do in it.
    pub(super) async fn run(self, window: Window) -> Result<Share> {
        let start = |task: Task| tokio::spawn(task.run(Arc::clone(&self.shared), window));
        let tasks: Vec<_> = self.tasks.into_iter().map(start).collect();
        let totals = || (self.session.calls(), total(HANDOFFS));
        window.from.wait().await;
        let (calls, handoffs) = totals();
        window.until.wait().await;
        let (calls_after, handoffs_after) = totals();
        let mut counts = Counts::default();
        let mut by_task = Vec::with_capacity(tasks.len());
        for task in tasks {
            let counted = task.await.map_err(failed("a task of the bench"))??;
            by_task.push(counted.acquisitions);
            counts += counted;
        }
        Ok(Share {
            counts,
            by_task,
            waits: mem::take(&mut lock(&self.shared.waits)),
            writer_waits: mem::take(&mut lock(&self.shared.writer_waits)),
            calls: calls.zip(calls_after).map(|(before, after)| after - before),
            handoffs: handoffs_after - handoffs,
            observations: self.shared.check.observations(),
        })
    }
}

impl Task {
    fn new(seed: u64, baseline: Option<BaselineLock>) -> Result<Self> {
        Ok(Self {
            random: Rng::with_seed(seed),
            timer: SleepTimer::new().map_err(failed("no timer"))?,
            waits: Vec::with_capacity(WAITS_KEPT),
            counts: Counts::default(),
            baseline,
        })
    }

    async fn run(mut self, shared: Arc<Shared>, window: Window) -> Result<Counts> {
        let mut requested = Moment::now();
        while requested < window.until {
            let name = shared.names.choose(&mut self.random);
            let held = self.acquire(&shared, name).await?;
            let granted = Moment::now();
            let token = match held.guard() {
                Some(guard) => guard.token().get(),
                // The clock of the machine orders holders as tokens would.
                None => granted.nanos_since(Moment::default()),
            };
            // Readers share the lock.
            let is_checked = !matches!(held, Acquired::Reader(_));
            if is_checked {
                shared.check.acquired(name, token);
            }
            let ended = self
                .critical_section(shared.section, granted, &window)
                .await?;
            if is_checked {
                shared.check.releasing(name, token, granted, ended);
            }
            let is_writer = matches!(held, Acquired::Writer(_));
            self.release(held).await?;
            if is_writer && granted >= window.from {
                let nanos = granted.nanos_since(requested);
                lock(&shared.writer_waits).record_nanos(nanos, 1);
            }
            self.count(&shared, requested, granted, &window);
            if self.counts.checked.is_multiple_of(LOCKS_IN_A_ROW) {
                tokio::task::yield_now().await;
            }
            requested = Moment::now();
        }
        self.record_waits(&shared);
        Ok(self.counts)
    }

    async fn acquire(&mut self, shared: &Shared, name: usize) -> Result<Acquired> {
        if let Some(lock) = &mut self.baseline {
            lock.half().await?;
            return Ok(Acquired::Baseline);
        }
        Ok(match &shared.rw_lock {
            None => Acquired::Mutex(shared.locks[name].lock().await?),
            Some((lock, reads)) => match self.random.u8(..100) < *reads {
                true => Acquired::Reader(lock.read().await?),
                false => Acquired::Writer(lock.write().await?),
            },
        })
    }

    async fn release(&mut self, held: Acquired) -> Result<()> {
        match held {
            Acquired::Baseline => match &mut self.baseline {
                Some(lock) => lock.close().await,
                None => Ok(()),
            },
            Acquired::Mutex(guard) => check_release(guard.release().await),
            Acquired::Reader(guard) => check_release(guard.release().await),
            Acquired::Writer(guard) => check_release(guard.release().await),
        }
    }

    /// Sleeps in the critical section. Returns when it ended.
    async fn critical_section(
        &mut self,
        section: Duration,
        granted: Moment,
        window: &Window,
    ) -> Result<Moment> {
        if section.is_zero() {
            return Ok(granted);
        }
        self.timer.sleep(section).await?;
        let ended = Moment::now();
        self.counts.in_section_ns += window.overlap(granted, ended);
        if window.contains(ended) {
            self.counts.section_ns += ended.nanos_since(granted);
            self.counts.sections += 1;
        }
        Ok(ended)
    }

    /// An acquisition counts if it was granted in the window. A wait counts if any of it lay there: a
    /// task that starved to the end must not be left out.
    fn count(&mut self, shared: &Shared, requested: Moment, granted: Moment, window: &Window) {
        self.counts.checked += 1;
        if granted < window.from {
            return;
        }
        self.counts.acquisitions += u64::from(window.contains(granted));
        self.waits.push(granted.nanos_since(requested));
        if self.waits.len() == WAITS_KEPT {
            self.record_waits(shared);
        }
    }

    fn record_waits(&mut self, shared: &Shared) {
        let mut waits = lock(&shared.waits);
        for nanos in self.waits.drain(..) {
            waits.record_nanos(nanos, 1);
        }
    }
}

impl Acquired {
    fn guard(&self) -> Option<&Guard> {
        match self {
            Self::Baseline => None,
            Self::Mutex(guard) => Some(guard),
            Self::Reader(guard) => Some(guard),
            Self::Writer(guard) => Some(guard),
        }
    }
}

impl Share {
    /// All shares as one.
    pub(super) fn total(shares: &[Self]) -> Self {
        let mut total = Self {
            calls: shares.iter().map(|share| share.calls).sum(),
            handoffs: shares.iter().map(|share| share.handoffs).sum(),
            observations: Observations::merge(shares.iter().map(|share| &share.observations)),
            ..Self::default()
        };
        for share in shares {
            total.counts += share.counts;
            total.by_task.extend_from_slice(&share.by_task);
            total.waits.add(&share.waits);
            total.writer_waits.add(&share.writer_waits);
        }
        total
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.acquisitions += other.acquisitions;
        self.in_section_ns += other.in_section_ns;
        self.section_ns += other.section_ns;
        self.sections += other.sections;
        self.checked += other.checked;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exact even on a busy machine: both sides are from the same section.
    #[tokio::test]
    async fn a_section_counts_as_far_as_it_lies_in_the_window() {
        let section = Duration::from_millis(2);
        let mut task = Task::new(0, None).unwrap();
        let from = Moment::default();
        let granted = Moment::now();
        let until = granted.after(Duration::from_secs(3_600));
        let window = Window { from, until };
        let ended = task.critical_section(section, granted, &window);
        let length = ended.await.unwrap().nanos_since(granted);
        assert!(length >= 2_000_000);
        let counts = task.counts;
        let counted = (counts.in_section_ns, counts.section_ns, counts.sections);
        assert_eq!(counted, (length, length, 1));
        // The window closes in the middle of the next section.
        let granted = Moment::now();
        let until = granted.after(section / 2);
        let window = Window { from, until };
        let ended = task.critical_section(section, granted, &window);
        ended.await.unwrap();
        let counts = task.counts;
        let counted = (counts.in_section_ns, counts.section_ns, counts.sections);
        assert_eq!(counted, (length + 1_000_000, length, 1));
    }
}
