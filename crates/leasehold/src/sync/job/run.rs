//! One run of a job, from its lock to its record.

use std::fmt;
use std::ops::Deref;

use leasehold_core::record::Unless;
use leasehold_core::{Annotation, Completion, Instant, NewNote, Slots, StoreTime};

use super::Job;
use crate::completion_info::CompletionInfo;
use crate::driver::metrics::report_job_success;
use crate::driver::report;
use crate::{Guard, Result};

/// The outcome of a call that runs a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each run, and it is read at once"
)]
pub enum JobOutcome<T> {
    /// The work was done here, and is complete. Its value.
    Ran(T),
    /// The work was complete before, or while this client waited.
    Completed(CompletionInfo),
}

/// The result of an acquisition of a job.
#[derive(Debug)]
pub enum JobLock {
    /// The job is to be run by this client.
    Granted(JobGuard),
    /// The job is complete.
    Completed(CompletionInfo),
}

impl JobLock {
    pub(super) async fn run<T, E>(
        self,
        work: impl AsyncFnOnce(&Guard) -> Result<T, E>,
    ) -> Result<Result<JobOutcome<T>, E>> {
        let JobGuard { guard, run } = match self {
            Self::Granted(guard) => guard,
            Self::Completed(run) => return Ok(Ok(JobOutcome::Completed(run))),
        };
        let outcome = guard.run(work(&guard)).await?;
        run.end(guard, outcome.is_ok()).await?;
        Ok(outcome.map(JobOutcome::Ran))
    }
}

/// The lock of a job that is to be run. It is a [`Guard`], too.
///
/// Dropped before [`JobGuard::complete`], the run has failed: the lock is released at once, and another client may do
/// the work.
#[must_use = "bind it to `_guard`: `let _` drops it, which releases the lock"]
pub struct JobGuard {
    guard: Guard,
    run: Run,
}

impl JobGuard {
    pub(super) fn new(guard: Guard, run: Run) -> Self {
        Self { guard, run }
    }

    /// Stores the record of this run: the work is complete, and nobody does it again. The lock stays held.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lease was lost before, otherwise as the store replies. Another
    /// client may do the work again.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not have stored the record.
    pub async fn complete(&mut self) -> Result<CompletionInfo> {
        let (note, info) = self.run.completion(&self.guard);
        self.guard.write_note(&note).await?;
        self.run.completed = true;
        report_job_success(&info);
        Ok(info)
    }

    /// The completed run before this one, as it was recorded when the lock was acquired. `None`: none was.
    #[must_use]
    pub fn last_run(&self) -> Option<&CompletionInfo> {
        self.run.last.as_deref()
    }

    /// Releases the lock. If the run is not complete, the lock stays taken for the time of [`Job::retry_after`].
    ///
    /// # Errors
    ///
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<()> {
        let Self { guard, run } = self;
        run.release(guard).await
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn into_parts(self) -> (Guard, Run) {
        (self.guard, self.run)
    }
}

impl Deref for JobGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl fmt::Debug for JobGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.guard, f)
    }
}

/// A run that has begun.
pub(crate) struct Run {
    pub(super) job: Job,
    /// The completed run before this one.
    pub(super) last: Option<Box<CompletionInfo>>,
    pub(super) slots: Option<Slots>,
    pub(super) requested_at: StoreTime,
    pub(super) started_at: StoreTime,
    /// When that was, by the local clock.
    pub(super) begun: Instant,
    pub(super) completed: bool,
}

impl Run {
    /// Ends the run. If its work was successful, the lock is released with its record, otherwise without one.
    pub(crate) async fn end(self, guard: Guard, is_complete: bool) -> Result<()> {
        if is_complete {
            let (note, info) = self.completion(&guard);
            guard.complete(note).await?;
            report_job_success(&info);
        } else if let Err(error) = self.release(guard).await {
            report(|| tracing::debug!(%error, "the lock of a job could not be released"));
        }
        Ok(())
    }

    /// Releases the lock.
    async fn release(self, guard: Guard) -> Result<()> {
        if let Some(delay) = self.job.retry_after.filter(|_| !self.completed) {
            guard.require_min_hold(delay.as_duration());
        }
        guard.release().await
    }

    /// The record of this run, if it ends now.
    fn completion(&self, guard: &Guard) -> (NewNote, CompletionInfo) {
        let Job { mutex, unless, .. } = &self.job;
        let client = mutex.driver.presence.info();
        let took = mutex.driver.context.clock.now().since(self.begun);
        let completion = Completion {
            slots: self.slots,
            requested_at: self.requested_at,
            started_at: self.started_at,
            finished_at: self.started_at.after_span(took),
            keep: matches!(unless, Unless::Key { .. }).then_some(self.job.keep),
            exit_code: 0,
            host: client.host.clone(),
            program: client.program.clone(),
            path: self.job.program_path.clone(),
            label: client.label.clone(),
        };
        let (lease, token) = guard.lease();
        let annotation = Annotation {
            lease,
            token,
            text: completion.to_text().into(),
        };
        let info = self.job.info(&annotation, &completion);
        let note = NewNote {
            slot: unless.slot(),
            token,
            // A lease completes a slot once.
            number: 1,
            text: annotation.text,
            keep: match unless {
                Unless::Period { schedule, .. } => schedule.period.keep(self.job.keep),
                Unless::Key { .. } => self.job.keep,
            },
        };
        (note, info)
    }
}
