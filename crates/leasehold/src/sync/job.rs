//! Jobs: work that is not done again once a run of it is complete.

mod run;
mod schedule;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::acquisition::RunRequest;
use leasehold_core::job::{self, KEEP_MAX, KEEP_MIN};
use leasehold_core::record::{self, Unless};
use leasehold_core::{
    Annotation, Claim, Completion as CompletionRecord, Due, JobSchedule, Removal, StoreTime, Ttl,
};

use self::run::Begun;
pub use self::run::{Ran, Run};
use super::lock_events::LockEvents;
use super::mutex::{Mutex, refused_without_limit};
use crate::driver::acquire::{Acquired, Wait};
use crate::driver::metrics::report_job_success;
use crate::store::{Parts, unexpected};
use crate::{Completion, Error, ErrorKind, Guard, LeaseOptions, Result, config};

/// Work that is not done again once a run of it is complete: once in each period, or once for a key.
///
/// A run works under the lock of the job's name. If it succeeds, it stores a record in the step that releases the lock.
/// The other clients wait meanwhile, and return as soon as the record is stored. A run that fails, loses its lock or dies
/// leaves no record, and a waiting client takes over. So one client at a time does the work, and none does it again after
/// a completed run. If a client dies between the end of the work and its record, the work is done twice: see
/// [`Guard::token`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::error::Error;
/// use std::time::Duration;
/// use leasehold::Ran;
///
/// # let client = leasehold::Client::connect("memory:").await?;
/// async fn clean_up() -> Result<u64, Box<dyn Error>> {
///     Ok(3)
/// }
///
/// let day = Duration::from_secs(24 * 60 * 60);
/// let job = client.job("clean-up", day)?;
/// match job.run(async |_run| clean_up().await).await? {
///     Ran::Now(files) => println!("{files} files deleted"),
///     Ran::Before(run) => println!("{} has done it today", run.host),
///     Ran::Busy => {} // only of `try_run` and `run_timeout`: `run` waits
/// }
/// # assert!(matches!(job.run(async |_| clean_up().await).await?, Ran::Before(_)));
///
/// // Once for each version within 30 days, however many machines deploy it at the same time.
/// let migration = client.once("migrate", "v1.2.3")?.keep(day * 30)?;
/// let _ = migration.run(async |_run| clean_up().await).await?; // done, here or elsewhere
/// # Ok::<(), Box<dyn Error>>(()) }).unwrap();
/// ```
///
/// A program may also poll, such as once in a minute: it catches up on a run that was missed or has failed. Each call sends
/// one request, and returns [`Ran::Before`] when the run is complete. The very first poll runs the job, and from then on the
/// first poll in each slot: see [`Job::anchor`].
///
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Job {
    mutex: Mutex,
    /// The completion that makes a run needless, asked for now.
    unless: Unless,
    keep: Duration,
    retry_after: Option<Ttl>,
    program_path: Option<String>,
}

impl Job {
    /// The lock under which the job runs. It has the name of the job.
    #[must_use]
    pub fn mutex(&self) -> &Mutex {
        &self.mutex
    }

    /// The same job whose lock has other settings. See [`LeaseOptions`].
    ///
    /// # Errors
    ///
    /// As [`Mutex::with`].
    pub fn with(&self, options: LeaseOptions) -> Result<Self> {
        Ok(Self {
            mutex: self.mutex.with(options)?,
            ..self.clone()
        })
    }

    /// The same job with a slot at this time, and at every period before and after it: the times of its timer.
    /// [`UNIX_EPOCH`] stands for full hours, and for midnight in UTC.
    ///
    /// A start belongs to a slot from a *lead* before its time until a lead before the time of the next slot. The lead is
    /// half a period, but at most 3 h 15 min. So a trial by hand in the afternoon belongs to the slot of the last night.
    ///
    /// A program that polls starts the run with the first poll that belongs to its slot, so it adds the lead: for a daily
    /// run at 02:00 the anchor is 05:15.
    ///
    /// | period | anchor | starts | belong to the run of |
    /// |---|---|---|---|
    /// | an hour | `UNIX_EPOCH` | from 12:30 to 13:30 | 13:00 |
    /// | a day | `UNIX_EPOCH` | from 20:45 to 20:45 of the next day, in UTC | midnight |
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a time before 1970, and for a job that runs once for a key.
    pub fn anchor(&self, anchor: SystemTime) -> Result<Self> {
        let Unless::Period { schedule, asked } = self.unless else {
            return Err(self.invalid("a job that runs once for a key has no anchor"));
        };
        let Ok(since) = anchor.duration_since(UNIX_EPOCH) else {
            return Err(self.invalid("the anchor of a job must not be before 1970"));
        };
        let anchor = Some(StoreTime::default().after_span(since));
        let schedule = JobSchedule { anchor, ..schedule };
        Ok(Self {
            unless: Unless::Period { schedule, asked },
            ..self.clone()
        })
    }

    /// The same job with a delay after a run that failed, up to 24 h: its lock stays taken, so no client tries again
    /// before. A run that is dropped, as by a panic of the work, or whose lock was lost, or whose client died, is taken
    /// over without this delay.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for zero or a longer time.
    pub fn retry_after(&self, delay: Duration) -> Result<Self> {
        if delay.is_zero() || delay > Ttl::MAX.as_duration() {
            let message =
                format!("the delay after a failed run must be from 1 ms to 24 h, not {delay:?}");
            return Err(self.invalid(message));
        }
        Ok(Self {
            retry_after: Some(Ttl::remainder(delay)),
            ..self.clone()
        })
    }

    /// The same job whose record is kept for another time, from 1 s to 3,650 days. The default is 3,650 days for a key,
    /// which is run again after that, and 30 days for a periodic job, whose record is kept for at least two periods and a
    /// day. With many keys a day, a shorter time saves memory of the store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a time outside these bounds.
    pub fn keep(&self, keep: Duration) -> Result<Self> {
        if !(KEEP_MIN..=KEEP_MAX).contains(&keep) {
            let message =
                format!("the record of a run must be kept from 1 s to 3650 days, not {keep:?}");
            return Err(self.invalid(message));
        }
        Ok(Self {
            keep,
            ..self.clone()
        })
    }

    /// The same job whose record names the program or script that does the work, by a path or other words of at most
    /// 255 bytes; longer ones are left out. It shows that two different jobs have one name: see
    /// [`Completion::program_path`].
    #[doc(hidden)]
    #[must_use]
    pub fn program_path(&self, path: impl Into<String>) -> Self {
        Self {
            program_path: Some(path.into()),
            ..self.clone()
        }
    }

    /// Does the work under the lock, unless it is complete. Waits while another client does it, without a limit.
    ///
    /// The work is complete if it returns `Ok`. An `Err` leaves no record, and another client may do the work. The work is
    /// dropped when the lease is lost, as by [`Mutex::run`], which also describes the form of the closure.
    ///
    /// The call returns the error of the work, or one of this library, and does not nest them as [`Mutex::run`] does. So the
    /// error type of the work needs `From<leasehold::Error>`: `leasehold::Error` itself, `anyhow::Error`,
    /// `Box<dyn std::error::Error + Send + Sync>`, or an enum with such a variant. If the work calls no function that
    /// returns it, its last expression names the type:
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// # fn compute() -> u64 { 42 }
    /// use leasehold::{Error, Ran};
    ///
    /// let report = client.once("report", "2026-11")?;
    /// let ran = report
    ///     .run(async |_run| {
    ///         // Blocks its thread: elsewhere, so that the lease is renewed meanwhile.
    ///         let rows = tokio::task::spawn_blocking(compute).await;
    ///         Ok::<_, Error>(rows.expect("the thread does not panic"))
    ///     })
    ///     .await?;
    /// if let Ran::Now(rows) = ran {
    ///     println!("{rows} rows");
    /// }
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the work, and those of [`Mutex::lock`]. [`ErrorKind::Lost`] if the lease was lost before the record
    /// was stored: another client may do the work again. [`ErrorKind::Store`] for a record that this version cannot read.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the work and releases the lock in the background.
    pub async fn run<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&Run) -> Result<T, E>,
    ) -> Result<Ran<T>, E> {
        self.lock().await?.complete_by(work).await
    }

    /// As [`Job::run`], without a wait. [`Ran::Busy`]: another client holds the lock. If its run fails, this client does
    /// not take over.
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock`], and otherwise as [`Job::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Job::run`].
    pub async fn try_run<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&Run) -> Result<T, E>,
    ) -> Result<Ran<T>, E> {
        self.try_lock().await?.complete_by(work).await
    }

    /// As [`Job::run`], with a limit for the wait. [`Ran::Busy`]: the lock was not free in that time.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock_timeout`], and otherwise as [`Job::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Job::run`].
    pub async fn run_timeout<T, E: From<Error>>(
        &self,
        timeout: Duration,
        work: impl AsyncFnOnce(&Run) -> Result<T, E>,
    ) -> Result<Ran<T>, E> {
        self.lock_timeout(timeout).await?.complete_by(work).await
    }

    /// Acquires the lock for a run, unless the job is complete. Waits while another client runs it, without a limit. For
    /// work that is not one future, such as that of a thread. See [`Run`].
    ///
    /// `let _ = job.lock().await?` drops the run, which ends it as failed.
    ///
    /// # Errors
    ///
    /// As [`Job::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn lock(&self) -> Result<Ran<Run>> {
        match self.acquire(Wait::Forever).await? {
            Ran::Busy => Err(self.name_error(refused_without_limit())),
            lock => Ok(lock),
        }
    }

    /// As [`Job::lock`], without a wait. [`Ran::Busy`]: another client holds the lock.
    ///
    /// # Errors
    ///
    /// As [`Job::try_run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn try_lock(&self) -> Result<Ran<Run>> {
        self.acquire(Wait::No).await
    }

    /// As [`Job::lock`], with a limit for the wait. [`Ran::Busy`]: the lock was not free in that time.
    ///
    /// # Errors
    ///
    /// As [`Job::run_timeout`].
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn lock_timeout(&self, timeout: Duration) -> Result<Ran<Run>> {
        self.acquire(self.mutex.wait_for(timeout)).await
    }

    /// The events of the lock of the job, as [`Mutex::events`], with the completed runs of this job.
    #[doc(hidden)]
    #[must_use]
    pub fn events(&self) -> LockEvents {
        let Mutex { driver, key, .. } = &self.mutex;
        LockEvents::new(driver, key, self.unless.slot())
    }

    /// The last completed run of the periodic job, or for the key. `None`: the store has no record.
    ///
    /// # Errors
    ///
    /// As the store replies, and [`ErrorKind::Store`] for a record that this version cannot read.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn last_run(&self) -> Result<Option<Completion>> {
        let Mutex { driver, key, .. } = &self.mutex;
        let parts = Parts::Annotation(self.unless.slot());
        let view = driver.context.store.view(key, parts).await;
        let view = view.map_err(|error| self.name_error(error))?;
        let last = view.annotation().map(|note| self.parse(note));
        Ok(last.transpose()?.map(|(completion, _)| completion))
    }

    /// Removes the record of the last run, so that the next start runs the job. Returns whether there was a record.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let migration = client.once("migrate", "v1.2.3")?;
    /// let _ = migration.run(async |_run| Ok::<_, leasehold::Error>(())).await?;
    /// assert!(migration.last_run().await?.is_some());
    /// assert!(migration.reset().await?);
    /// assert!(migration.last_run().await?.is_none());
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As the store replies.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the record may or may not be removed.
    pub async fn reset(&self) -> Result<bool> {
        let removal = Removal::Note(self.unless.slot());
        self.mutex.driver.remove(&self.mutex.key, removal).await
    }

    async fn acquire(&self, wait: Wait) -> Result<Ran<Run>> {
        let since = self.mutex.driver.context.clock.now();
        let unless = self.unless.clone();
        let run = Some(Arc::new(RunRequest { unless, since }));
        let acquired = self.mutex.acquire_for(Claim::Mutex, run, wait).await?;
        Ok(match acquired {
            Acquired::Held(hold, run) => Ran::Now(self.begin(Guard::new(hold), run)?),
            Acquired::Complete(note) => {
                let (completion, _) = self.parse(&note)?;
                report_job_success(&completion);
                Ran::Before(completion)
            }
            Acquired::Refused => Ran::Busy,
        })
    }

    /// Begins the run for which the lock was granted. Nobody else can complete it now.
    fn begin(&self, guard: Guard, run: Option<(record::Run, StoreTime)>) -> Result<Run> {
        let begun = self.read_run(run);
        // Without a run, there is no minimum hold.
        begun
            .inspect_err(|_| guard.waive_min_hold())
            .map(|begun| Run::new(guard, self.clone(), begun))
    }

    /// The completed run before this one, and the slots of both.
    fn read_run(&self, run: Option<(record::Run, StoreTime)>) -> Result<Begun> {
        let invalid = || self.name_error(unexpected("a grant for no run"));
        let (run, granted_at) = run.ok_or_else(invalid)?;
        // The clock by which leases end may be behind that by which runs are asked for.
        let started_at = granted_at.max(run.requested_at);
        let last = run.last.map(|note| self.parse(&note)).transpose()?;
        let stored = last.as_ref().map(|(_, run)| run);
        let slots = match &self.unless {
            Unless::Key { .. } => None,
            Unless::Period { schedule, .. } => {
                match job::due(stored, *schedule, run.requested_at, started_at) {
                    Due::Run(slots) => Some(slots),
                    Due::Completed => return Err(invalid()),
                }
            }
        };
        Ok(Begun {
            last: last.map(|(completion, _)| Box::new(completion)),
            slots,
            requested_at: run.requested_at,
            started_at,
            at: self.mutex.driver.context.clock.now(),
        })
    }

    /// Reads a completion.
    fn parse(&self, note: &Annotation) -> Result<(Completion, CompletionRecord)> {
        match CompletionRecord::parse(&note.text) {
            Ok(run) => Ok((self.describe(note, &run), run)),
            Err(error) => {
                let message = format!(
                    "the record of its last run cannot be read: {error}; it is of a newer version or was damaged, \
                     and Job::reset removes it"
                );
                let error = Error::new(ErrorKind::Store, message).with_source(error);
                Err(self.name_error(error))
            }
        }
    }

    fn describe(&self, annotation: &Annotation, run: &CompletionRecord) -> Completion {
        let slot = self.unless.slot();
        Completion::new(&self.mutex.key.name, &slot, annotation, run)
    }

    fn invalid(&self, message: impl Into<String>) -> Error {
        self.name_error(config::invalid(message))
    }

    fn name_error(&self, error: Error) -> Error {
        self.mutex.name_error(error)
    }
}
