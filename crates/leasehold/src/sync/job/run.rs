//! One run of a job, from its lock to its record.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Annotation, Cause, Completion, Instant, NewNote, Outcome, Slots, State, StoreTime,
};

use super::Job;
use crate::completion_info::CompletionInfo;
use crate::driver::metrics::report_job_success;
use crate::driver::report;
use crate::sync::mutex::Mutex;
use crate::{Guard, Result};

/// The interval between two attempts at a store that does not reply.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(200);

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

/// The state of a job whose lock this client has acquired.
pub(super) enum Begun {
    Run(Run),
    Completed(CompletionInfo),
}

impl Begun {
    pub(super) async fn with(self, guard: Guard) -> JobLock {
        match self {
            Self::Run(run) => JobLock::Granted(JobGuard { guard, run }),
            Self::Completed(run) => {
                release(guard.release()).await;
                JobLock::Completed(run)
            }
        }
    }
}

impl JobLock {
    pub(super) async fn run<T, E>(
        self,
        work: impl AsyncFnOnce(&Guard) -> Result<T, E>,
    ) -> Result<Result<JobOutcome<T>, E>> {
        let JobGuard { guard, mut run } = match self {
            Self::Granted(guard) => guard,
            Self::Completed(run) => return Ok(Ok(JobOutcome::Completed(run))),
        };
        let outcome = guard.run(work(&guard)).await?;
        if outcome.is_ok() {
            run.complete(&guard).await?;
        }
        release(run.release(guard)).await;
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
        self.run.complete(&self.guard).await
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
    /// Stores the completion. Its attempts are repeated while the lease is held.
    pub(crate) async fn complete(&mut self, guard: &Guard) -> Result<CompletionInfo> {
        let Mutex { driver, key, .. } = &self.job.mutex;
        let clock = &driver.context.clock;
        let completion = self.completion(clock.now());
        let (lease, token) = guard.lease();
        let text = completion.to_text().into();
        let annotation = Annotation { lease, token, text };
        let keep = match self.job.schedule {
            Some(schedule) => schedule.period.keep(self.job.keep),
            None => self.job.keep,
        };
        let mut unknown = false;
        let lost = loop {
            if let State::Lost(cause) = guard.state() {
                break cause;
            }
            let note = NewNote {
                slot: self.job.kind.clone(),
                token,
                number: 0,
                text: Arc::clone(&annotation.text),
                keep,
            };
            let store = &driver.context.store;
            let reply = store.write_note(key, lease, note).await;
            match reply {
                Ok(Ok(())) => return Ok(self.confirm(&annotation, &completion)),
                Ok(Err(loss)) => {
                    let cause = Cause::of(&Outcome::Lost(loss));
                    guard.lose(cause);
                    break cause;
                }
                Err(error) if error.is_transient() => unknown = true,
                Err(error) => return Err(self.job.name_error(error)),
            }
            let next = clock.now().after(RETRY_INTERVAL);
            clock.sleep_until(next).await;
        };
        // An attempt without a reply may have been applied while the lease was held.
        let stored = match unknown {
            true => self.job.read(self.job.ttl()).await?.annotation().cloned(),
            false => None,
        };
        match stored {
            Some(stored) if stored.lease == lease => Ok(self.confirm(&annotation, &completion)),
            _ => Err(guard.lost_error(lost)),
        }
    }

    /// Releases the lock.
    pub(crate) async fn release(self, guard: Guard) -> Result<()> {
        match self.job.retry_after.filter(|_| !self.completed) {
            Some(delay) => guard.release_after(delay).await,
            None => guard.release().await,
        }
    }

    fn confirm(&mut self, annotation: &Annotation, run: &Completion) -> CompletionInfo {
        self.completed = true;
        let run = self.job.info(annotation, run);
        report_job_success(&run);
        run
    }

    fn completion(&self, now: Instant) -> Completion {
        let client = self.job.mutex.driver.presence.info();
        Completion {
            slots: self.slots,
            requested_at: self.requested_at,
            started_at: self.started_at,
            finished_at: self.started_at.after_span(now.since(self.begun)),
            exit_code: 0,
            host: client.host.clone(),
            program: client.program.clone(),
            label: client.label.clone(),
        }
    }
}

/// Waits for a release whose failure is not that of the work.
async fn release(release: impl Future<Output = Result<()>>) {
    if let Err(error) = release.await {
        report(
            || tracing::debug!(%error, "the lock of a job could not be released after the work"),
        );
    }
}
