//! Jobs: work that is not done again once a run of it is complete.

mod builder;
mod run;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::acquisition::RunRequest;
use leasehold_core::job::{self, KEEP_MAX, KEEP_MIN};
use leasehold_core::record::{self, Unless};
use leasehold_core::{Annotation, Completion, Due, JobSchedule, Removal, StoreTime, Ttl};

pub use self::builder::JobBuilder;
pub(crate) use self::run::Run;
pub use self::run::{JobGuard, JobLock, JobOutcome};
use super::mutex::Mutex;
#[cfg(feature = "blocking")]
use crate::Owner;
use crate::completion_info::CompletionInfo;
use crate::driver::acquire::{Acquired, Wait};
use crate::driver::metrics::report_job_success;
use crate::store::{Parts, unexpected};
use crate::{Error, ErrorKind, Guard, Result, config};

/// Work that is not done again once a run of it is complete: once in each period, or once for a key.
///
/// It is done under the lock of its name. A run that succeeds stores a record of itself before it releases the lock.
/// All others wait meanwhile, and return as soon as that record is there. A run that fails, is lost or dies leaves no
/// record, and one of those that wait takes over. So one client at a time does the work, and nobody does it again after
/// a run that said it was complete. The work may be done twice if its client dies between the end of the work and the
/// record: see [`Guard::token`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use leasehold::JobOutcome;
///
/// # let client = leasehold::Client::connect("memory:").await?;
/// # async fn clean_up() -> std::io::Result<u64> { Ok(3) }
/// let day = Duration::from_secs(24 * 60 * 60);
/// let job = client.job("clean-up")?.every(day)?;
/// match job.run(async |_lease| clean_up().await).await?? {
///     JobOutcome::Ran(files) => println!("{files} files deleted"),
///     JobOutcome::Completed(run) => println!("{} has done it today", run.host),
/// }
/// # assert!(matches!(job.run(async |_| clean_up().await).await??, JobOutcome::Completed(_)));
///
/// // Once for each version, however many machines deploy it at the same time.
/// let migration = client.once("migrate", "v1.2.3")?;
/// migration.run(async |_lease| clean_up().await).await??;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
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
    /// The name of the job, and of its lock.
    #[must_use]
    pub fn name(&self) -> &str {
        self.mutex.name()
    }

    /// The lock under which the job runs.
    #[must_use]
    pub fn mutex(&self) -> &Mutex {
        &self.mutex
    }

    /// The same job with a slot at this time, and at every period before and after it: the times of its timer. A start
    /// belongs to a slot from 3 h 15 min before its time on, or half a period if that is less. An earlier one, such as a
    /// trial by hand, belongs to the slot before it.
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

    /// The same job whose lock stays taken for a time after a run that failed, up to 24 h: nobody tries again before.
    /// A run that was lost, or whose client died, is taken over without this delay.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a longer time, or none.
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

    /// The same job whose record is kept for another time: from 1 s to 3,650 days. If not set, that of a periodic job is
    /// kept for 30 days, and that of a key for 3,650 days: after it, the key is run again. Where each day has many keys,
    /// a shorter time saves the memory of the store. That of a periodic job is kept for two periods and a day at least.
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

    /// The same job whose record has this path of the program or script that does the work, if it has at most 255 bytes.
    /// Two jobs under one name are recognized by it: see [`CompletionInfo::program_path`].
    #[must_use]
    pub fn program_path(&self, path: impl Into<String>) -> Self {
        Self {
            program_path: Some(path.into()),
            ..self.clone()
        }
    }

    /// Does the work under the lock, unless it is complete. Waits while another client does it, without a limit.
    ///
    /// The work is complete if it returns `Ok`. With an `Err` it leaves no record, and another client may do it. `??`
    /// passes both errors on. The work is dropped when the lease is lost, as by [`Mutex::run`].
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`]. [`ErrorKind::Lost`] if the lease was lost before the record was stored: another client may
    /// do the work again. [`ErrorKind::Store`] for a record that this version cannot read.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the work and releases the lock in the background.
    pub async fn run<T, E>(
        &self,
        work: impl AsyncFnOnce(&Guard) -> Result<T, E>,
    ) -> Result<Result<JobOutcome<T>, E>> {
        self.lock().await?.run(work).await
    }

    /// The same without a wait. `None`: another client holds the lock. If its run fails, nobody takes it over.
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock`], and otherwise as [`Job::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Job::run`].
    pub async fn try_run<T, E>(
        &self,
        work: impl AsyncFnOnce(&Guard) -> Result<T, E>,
    ) -> Result<Result<Option<JobOutcome<T>>, E>> {
        match self.try_lock().await? {
            Some(lock) => Ok(lock.run(work).await?.map(Some)),
            None => Ok(Ok(None)),
        }
    }

    /// The same with a limit for the wait. `None`: another client held the lock all the time.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock_timeout`], and otherwise as [`Job::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Job::run`].
    pub async fn run_timeout<T, E>(
        &self,
        timeout: Duration,
        work: impl AsyncFnOnce(&Guard) -> Result<T, E>,
    ) -> Result<Result<Option<JobOutcome<T>>, E>> {
        match self.lock_timeout(timeout).await? {
            Some(lock) => Ok(lock.run(work).await?.map(Some)),
            None => Ok(Ok(None)),
        }
    }

    /// Acquires the lock, unless the job is complete. Waits while another client runs it, without a limit. For work that
    /// is not a future; [`Job::run`] is simpler.
    ///
    /// # Errors
    ///
    /// As [`Job::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn lock(&self) -> Result<JobLock> {
        match self.acquire(Wait::Forever).await? {
            Some(lock) => Ok(lock),
            // Only a caller that limits its waiting can be refused.
            None => Err(self.name_error(Error::new(
                ErrorKind::Store,
                "the lock was refused without a limit",
            ))),
        }
    }

    /// The same without a wait. `None`: another client holds the lock.
    ///
    /// # Errors
    ///
    /// As [`Job::try_run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn try_lock(&self) -> Result<Option<JobLock>> {
        self.acquire(Wait::No).await
    }

    /// The same with a limit for the wait. `None`: another client held the lock all the time.
    ///
    /// # Errors
    ///
    /// As [`Job::run_timeout`].
    ///
    /// # Cancel safety
    ///
    /// As [`Mutex::lock`].
    pub async fn lock_timeout(&self, timeout: Duration) -> Result<Option<JobLock>> {
        if timeout.is_zero() {
            return self.try_lock().await;
        }
        let end = self.mutex.driver.context.clock.now().after(timeout);
        self.acquire(Wait::Until(end)).await
    }

    /// The last completed run: of the periodic job, or for the key. `None`: none is known.
    ///
    /// # Errors
    ///
    /// As the store replies, and [`ErrorKind::Store`] for a record that this version cannot read.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn last_run(&self) -> Result<Option<CompletionInfo>> {
        let Mutex { driver, key, .. } = &self.mutex;
        let parts = Parts::Annotation(self.unless.slot());
        let view = driver.context.store.view(key, parts).await;
        let view = view.map_err(|error| self.name_error(error))?;
        let last = view.annotation().map(|note| self.parse(note));
        Ok(last.transpose()?.map(|(info, _)| info))
    }

    /// Removes the record of the last run, so that the job is run again. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// As the store replies.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not have removed the record.
    pub async fn reset(&self) -> Result<bool> {
        let removal = Removal::Note(self.unless.slot());
        self.mutex.driver.remove(&self.mutex.key, removal).await
    }

    /// The same job for an owner.
    #[cfg(feature = "blocking")]
    pub(crate) fn owned_by(&self, owner: &Owner) -> Self {
        Self {
            mutex: self.mutex.owned_by(owner),
            ..self.clone()
        }
    }

    async fn acquire(&self, wait: Wait) -> Result<Option<JobLock>> {
        let since = self.mutex.driver.context.clock.now();
        let unless = self.unless.clone();
        let run = Arc::new(RunRequest { unless, since });
        Ok(match self.mutex.acquire_for(Some(run), wait).await? {
            Acquired::Held(hold, run) => {
                let guard = Guard::new(hold);
                // Without a run, there is no minimum hold.
                let run = self.begin(run).inspect_err(|_| guard.waive_min_hold())?;
                Some(JobLock::Granted(JobGuard::new(guard, run)))
            }
            Acquired::Complete(note) => {
                let (info, _) = self.parse(&note)?;
                report_job_success(&info);
                Some(JobLock::Completed(info))
            }
            Acquired::Refused => None,
        })
    }

    /// Begins the run for which the lock was granted. Nobody else can complete it now.
    fn begin(&self, run: Option<(record::Run, StoreTime)>) -> Result<Run> {
        let invalid = || self.name_error(unexpected("a grant for no run"));
        let (run, started_at) = run.ok_or_else(invalid)?;
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
        Ok(Run {
            job: self.clone(),
            last: last.map(|(info, _)| Box::new(info)),
            slots,
            requested_at: run.requested_at,
            started_at,
            begun: self.mutex.driver.context.clock.now(),
            completed: false,
        })
    }

    /// Reads a completion.
    fn parse(&self, note: &Annotation) -> Result<(CompletionInfo, Completion)> {
        match Completion::parse(&note.text) {
            Ok(run) => Ok((self.info(note, &run), run)),
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

    fn info(&self, annotation: &Annotation, run: &Completion) -> CompletionInfo {
        let slot = self.unless.slot();
        CompletionInfo::new(&self.mutex.key.name, &slot, annotation, run)
    }

    fn invalid(&self, message: impl Into<String>) -> Error {
        self.name_error(config::invalid(message))
    }

    fn name_error(&self, error: Error) -> Error {
        self.mutex.name_error(error)
    }
}
