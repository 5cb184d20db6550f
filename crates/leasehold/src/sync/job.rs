//! Jobs: work that is not done again once a run of it is complete.

mod builder;
mod run;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::job::{self, KEEP_MAX, KEEP_MIN};
use leasehold_core::{
    Annotation, Completion, Due, JobSchedule, Op, Outcome, Removal, Slot, Slots, StoreTime, Ttl,
};

pub use self::builder::JobBuilder;
pub(crate) use self::run::Run;
use self::run::{Begun, RETRY_INTERVAL};
pub use self::run::{JobGuard, JobLock, JobOutcome};
use super::mutex::Mutex;
#[cfg(feature = "blocking")]
use crate::Owner;
use crate::completion_info::CompletionInfo;
use crate::driver::acquire::Wait;
use crate::driver::metrics::report_job_success;
use crate::driver::observer::Observer;
use crate::store::{Parts, View};
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
    kind: Slot,
    /// `None`: it runs once for a key.
    schedule: Option<JobSchedule>,
    keep: Duration,
    retry_after: Option<Ttl>,
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
        let Some(schedule) = self.schedule else {
            return Err(self.invalid("a job that runs once for a key has no anchor"));
        };
        let Ok(since) = anchor.duration_since(UNIX_EPOCH) else {
            return Err(self.invalid("the anchor of a job must not be before 1970"));
        };
        let anchor = Some(StoreTime::default().after_span(since));
        let schedule = Some(JobSchedule { anchor, ..schedule });
        Ok(Self {
            schedule,
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

    /// The same job whose record is kept for another time: from 1 s to 3,650 days, 30 days if not set. That of a
    /// periodic job is kept for two periods and a day at least.
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
        let view = self.read(Duration::ZERO).await?;
        self.last(&view)
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
        let Mutex { driver, key, .. } = &self.mutex;
        let removal = Op::Remove(Removal::Note(self.kind.clone()));
        let removed = driver.context.store.request(key, removal).await;
        let removed = removed.map_err(|error| self.name_error(error))?;
        Ok(removed == Outcome::Removed(true))
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
        let Mutex { driver, key, .. } = &self.mutex;
        driver.check_open(key)?;
        let timeout = match wait {
            Wait::No => Duration::ZERO,
            Wait::Until(end) => self.ttl().min(driver.context.clock.now().until(end)),
            Wait::Forever => self.ttl(),
        };
        let mut requested_at = None;
        loop {
            let first = self.read(timeout).await?;
            let requested_at = *requested_at.get_or_insert(first.now.unwrap_or_default());
            if let Progress::Completed(run) = self.progress(&first, requested_at)? {
                return Ok(Some(JobLock::Completed(run)));
            }
            // The minimum hold is that of a run. A job that turns out to be complete has none.
            let acquired = match wait {
                Wait::No => self.mutex.acquire_without_min_hold(wait).await?,
                _ => tokio::select! {
                    biased;
                    acquired = self.mutex.acquire_without_min_hold(wait) => acquired?,
                    completed = self.completed(requested_at) => {
                        return Ok(Some(JobLock::Completed(completed?)));
                    }
                },
            };
            let Some(guard) = acquired else {
                return Ok(None);
            };
            match guard.run(self.begin(requested_at)).await {
                // Nothing was done under it.
                Err(_) if !matches!(wait, Wait::No) => {}
                begun => {
                    let begun = begun??;
                    if matches!(begun, Begun::Run(_)) {
                        self.mutex.begin_min_hold(&guard);
                    }
                    return Ok(Some(begun.with(guard).await));
                }
            }
        }
    }

    /// Reads the completion under the lock: nobody else can store one now.
    async fn begin(&self, requested_at: StoreTime) -> Result<Begun> {
        let view = self.read(self.ttl()).await?;
        let slots = match self.progress(&view, requested_at)? {
            Progress::Due(slots) => slots,
            Progress::Completed(run) => return Ok(Begun::Completed(run)),
        };
        Ok(Begun::Run(Run {
            job: self.clone(),
            last: self.last(&view)?.map(Box::new),
            slots,
            requested_at,
            started_at: view.now.unwrap_or_default(),
            begun: self.mutex.driver.context.clock.now(),
            completed: false,
        }))
    }

    fn ttl(&self) -> Duration {
        self.mutex.options.lease.policy.ttl.as_duration()
    }

    /// Waits until a run for this request is complete.
    async fn completed(&self, requested_at: StoreTime) -> Result<CompletionInfo> {
        let Mutex { driver, key, .. } = &self.mutex;
        let mut observer =
            Observer::new(driver.clone(), key.clone(), Parts::State(self.kind.clone()));
        loop {
            let view = observer.next().await?;
            if let Progress::Completed(run) = self.progress(&view, requested_at)? {
                return Ok(run);
            }
        }
    }

    /// Reads the completion. A store that does not reply is tried again for so long.
    async fn read(&self, timeout: Duration) -> Result<View> {
        let Mutex { driver, key, .. } = &self.mutex;
        let clock = &driver.context.clock;
        let end = clock.now().after(timeout);
        loop {
            let parts = Parts::State(self.kind.clone());
            match driver.context.store.view(key, parts).await {
                Ok(view) => return Ok(view),
                Err(error) if error.is_transient() && clock.now() < end => {
                    clock.sleep_until(clock.now().after(RETRY_INTERVAL)).await;
                }
                Err(error) => return Err(self.name_error(error)),
            }
        }
    }

    fn progress(&self, view: &View, requested_at: StoreTime) -> Result<Progress> {
        let stored = self.stored(view)?;
        if let Some(schedule) = self.schedule {
            let run = stored.as_ref().map(|(_, run)| run);
            let due = job::due(run, schedule, requested_at, view.now.unwrap_or_default());
            if let Due::Run(slots) = due {
                return Ok(Progress::Due(Some(slots)));
            }
        }
        let Some((annotation, run)) = stored else {
            return Ok(Progress::Due(None));
        };
        let run = self.info(annotation, &run);
        report_job_success(&run);
        Ok(Progress::Completed(run))
    }

    fn last(&self, view: &View) -> Result<Option<CompletionInfo>> {
        let stored = self.stored(view)?;
        Ok(stored.map(|(annotation, run)| self.info(annotation, &run)))
    }

    /// The completion that a store has.
    fn stored<'a>(&self, view: &'a View) -> Result<Option<(&'a Annotation, Completion)>> {
        let Some(annotation) = view.annotation() else {
            return Ok(None);
        };
        match Completion::parse(&annotation.text) {
            Ok(run) => Ok(Some((annotation, run))),
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
        CompletionInfo::new(&self.mutex.key.name, &self.kind, annotation, run)
    }

    fn invalid(&self, message: impl Into<String>) -> Error {
        self.name_error(config::invalid(message))
    }

    fn name_error(&self, error: Error) -> Error {
        self.mutex.name_error(error)
    }
}

/// Whether a job is to be run, as one view shows.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each reading, and it is read at once"
)]
enum Progress {
    /// It is, in these slots. `None`: for a key.
    Due(Option<Slots>),
    Completed(CompletionInfo),
}
