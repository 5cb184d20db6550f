//! Jobs for programs without an async runtime.

use std::time::{Duration, SystemTime};

use super::runtime::Threads;
use super::{Guard, THREAD_OWNER};
use crate::{CompletionInfo, JobLock, JobOutcome, Result};

/// The name of a job that has no schedule yet. See [`crate::JobBuilder`].
#[derive(Clone, Debug)]
pub struct JobBuilder {
    threads: Threads,
    builder: crate::JobBuilder,
}

impl JobBuilder {
    pub(super) fn new(threads: Threads, builder: crate::JobBuilder) -> Self {
        Self { threads, builder }
    }

    /// The job that runs once in each period. See [`crate::JobBuilder::every`].
    ///
    /// # Errors
    ///
    /// As [`crate::JobBuilder::every`].
    pub fn every(&self, period: Duration) -> Result<Job> {
        self.wrap(self.builder.every(period))
    }

    /// The job that runs once for a key. See [`crate::JobBuilder::once`].
    ///
    /// # Errors
    ///
    /// As [`crate::JobBuilder::once`].
    pub fn once(&self, key: impl AsRef<str>) -> Result<Job> {
        self.wrap(self.builder.once(key))
    }

    /// Removes the record of the last run of the periodic job. See [`crate::JobBuilder::reset`].
    ///
    /// # Errors
    ///
    /// As [`crate::JobBuilder::reset`].
    pub fn reset(&self) -> Result<bool> {
        self.threads.wait(self.builder.reset())
    }

    fn wrap(&self, job: Result<crate::Job>) -> Result<Job> {
        let (threads, job) = (self.threads.clone(), job?);
        Ok(Job { threads, job })
    }
}

/// Work that is not done again once a run of it is complete. See [`crate::Job`].
///
/// ```
/// use std::time::Duration;
/// use leasehold::JobOutcome;
/// use leasehold::blocking::Client;
///
/// let client = Client::connect("memory:")?;
/// let job = client.job("clean-up")?.every(Duration::from_secs(24 * 60 * 60))?;
/// let clean_up = || job.run(|_lease| std::fs::metadata("/"));
/// assert!(matches!(clean_up()??, JobOutcome::Ran(_)));
/// assert!(matches!(clean_up()??, JobOutcome::Completed(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Job {
    threads: Threads,
    job: crate::Job,
}

impl Job {
    /// The name of the job, and of its lock.
    #[must_use]
    pub fn name(&self) -> &str {
        self.job.name()
    }

    /// The same job with a slot at this time. See [`crate::Job::anchor`].
    ///
    /// # Errors
    ///
    /// As [`crate::Job::anchor`].
    pub fn anchor(&self, anchor: SystemTime) -> Result<Self> {
        self.wrap(self.job.anchor(anchor))
    }

    /// The same job whose lock stays taken for a time after a run that failed. See [`crate::Job::retry_after`].
    ///
    /// # Errors
    ///
    /// As [`crate::Job::retry_after`].
    pub fn retry_after(&self, delay: Duration) -> Result<Self> {
        self.wrap(self.job.retry_after(delay))
    }

    /// The same job whose record is kept for another time. See [`crate::Job::keep`].
    ///
    /// # Errors
    ///
    /// As [`crate::Job::keep`].
    pub fn keep(&self, keep: Duration) -> Result<Self> {
        self.wrap(self.job.keep(keep))
    }

    /// The same job whose record has this path of its program. See [`crate::Job::program_path`].
    #[must_use]
    pub fn program_path(&self, path: impl Into<String>) -> Self {
        Self {
            threads: self.threads.clone(),
            job: self.job.program_path(path),
        }
    }

    /// Does the work on this thread under the lock, unless it is complete. Waits while another client does it. See
    /// [`crate::Job::run`].
    ///
    /// Work on a thread cannot be dropped when the lease is lost: check [`Guard::state`] or call [`Guard::ensure`]
    /// before each step that matters.
    ///
    /// # Errors
    ///
    /// As [`crate::Job::run`], and inside an async runtime.
    pub fn run<T, E>(
        &self,
        work: impl FnOnce(&Guard) -> Result<T, E>,
    ) -> Result<Result<JobOutcome<T>, E>> {
        let lock = self.threads.wait(self.owned_by_thread().lock())?;
        self.run_locked(lock, work)
    }

    /// The same without a wait. `None`: another client holds the lock. See [`crate::Job::try_run`].
    ///
    /// # Errors
    ///
    /// As [`crate::Job::try_run`], and inside an async runtime.
    pub fn try_run<T, E>(
        &self,
        work: impl FnOnce(&Guard) -> Result<T, E>,
    ) -> Result<Result<Option<JobOutcome<T>>, E>> {
        match self.threads.wait(self.owned_by_thread().try_lock())? {
            Some(lock) => Ok(self.run_locked(lock, work)?.map(Some)),
            None => Ok(Ok(None)),
        }
    }

    /// The same with a limit for the wait. `None`: another client held the lock all the time. See
    /// [`crate::Job::run_timeout`].
    ///
    /// # Errors
    ///
    /// As [`crate::Job::run_timeout`], and inside an async runtime.
    pub fn run_timeout<T, E>(
        &self,
        timeout: Duration,
        work: impl FnOnce(&Guard) -> Result<T, E>,
    ) -> Result<Result<Option<JobOutcome<T>>, E>> {
        let lock = self.owned_by_thread();
        match self.threads.wait(lock.lock_timeout(timeout))? {
            Some(lock) => Ok(self.run_locked(lock, work)?.map(Some)),
            None => Ok(Ok(None)),
        }
    }

    /// The last completed run. See [`crate::Job::last_run`].
    ///
    /// # Errors
    ///
    /// As [`crate::Job::last_run`].
    pub fn last_run(&self) -> Result<Option<CompletionInfo>> {
        self.threads.wait(self.job.last_run())
    }

    /// Removes the record of the last run. See [`crate::Job::reset`].
    ///
    /// # Errors
    ///
    /// As [`crate::Job::reset`].
    pub fn reset(&self) -> Result<bool> {
        self.threads.wait(self.job.reset())
    }

    fn run_locked<T, E>(
        &self,
        lock: JobLock,
        work: impl FnOnce(&Guard) -> Result<T, E>,
    ) -> Result<Result<JobOutcome<T>, E>> {
        let (guard, run) = match lock {
            JobLock::Granted(guard) => guard.into_parts(),
            JobLock::Completed(run) => return Ok(Ok(JobOutcome::Completed(run))),
        };
        let guard = Guard::new(self.threads.clone(), guard);
        let outcome = work(&guard);
        let Guard { guard, threads } = guard;
        threads.wait(run.end(guard, outcome.is_ok()))?;
        Ok(outcome.map(JobOutcome::Ran))
    }

    fn wrap(&self, job: Result<crate::Job>) -> Result<Self> {
        let (threads, job) = (self.threads.clone(), job?);
        Ok(Self { threads, job })
    }

    fn owned_by_thread(&self) -> crate::Job {
        THREAD_OWNER.with(|owner| self.job.owned_by(owner))
    }
}
