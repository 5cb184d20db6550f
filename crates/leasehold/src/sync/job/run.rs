//! One run of a job, from its lock to its record.

use std::ops::Deref;

use leasehold_core::record::Unless;
use leasehold_core::{
    Annotation, Completion as CompletionRecord, Instant, NewNote, Slots, StoreTime,
};

use super::Job;
use crate::driver::metrics::report_job_success;
use crate::driver::report;
use crate::{Completion, Error, Guard, Result};

/// The result of a call that runs a [`Job`], or acquires its lock for a [`Run`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let client = leasehold::Client::connect("memory:").await?;
/// use leasehold::Ran;
///
/// let migration = client.once("migrate", "v1.2.3")?;
/// match migration.try_run(async |_run| Ok::<_, leasehold::Error>(42)).await? {
///     Ran::Now(rows) => println!("{rows} rows migrated"),
///     Ran::Before(completion) => println!("migrated by {}", completion.host),
///     Ran::Busy => println!("another process migrates"),
/// }
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "match it: `Busy` is not done, and a dropped `Run` has failed; after `Job::run`, `let _` suffices"]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each run, and it is read immediately"
)]
pub enum Ran<T> {
    /// This call did the work, and this is its value; or it acquired the lock for the work.
    Now(T),
    /// The work was complete before the call, or was completed while this client waited.
    Before(Completion),
    /// Another client holds the lock for longer than this call waits. Calls without a limit, [`Job::run`] and
    /// [`Job::lock`], never return it.
    Busy,
}

impl Ran<Run> {
    pub(super) async fn complete_by<T, E: From<Error>>(
        self,
        work: impl AsyncFnOnce(&Run) -> Result<T, E>,
    ) -> Result<Ran<T>, E> {
        let run = match self {
            Self::Now(run) => run,
            Self::Before(completion) => return Ok(Ran::Before(completion)),
            Self::Busy => return Ok(Ran::Busy),
        };
        match run.guard.run(work(&run)).await? {
            Ok(value) => {
                run.complete().await?;
                Ok(Ran::Now(value))
            }
            Err(failure) => {
                if let Err(error) = run.release().await {
                    report(|| tracing::debug!(%error, "the lock of a job could not be released"));
                }
                Err(failure)
            }
        }
    }
}

/// A run of a job that has started. It derefs to the [`Guard`] of the lock of the job.
///
/// A run that is dropped before [`Run::complete`] has failed: its lock is released in the background, and another client
/// may do the work.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let client = leasehold::Client::connect("memory:").await?;
/// use leasehold::Ran;
///
/// let migration = client.once("migrate", "v1.2.3")?;
/// if let Ran::Now(run) = migration.lock().await? {
///     println!("migrating under token {}", run.token());
///     let completion = run.complete().await?;
///     println!("took {:?}", completion.took());
/// }
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "bind it to `_run`: `let _` drops it, which ends the run as failed"]
pub struct Run {
    guard: Guard,
    job: Job,
    begun: Begun,
}

/// What a run knows from its grant.
#[derive(Debug)]
pub(super) struct Begun {
    /// The completed run before this one.
    pub(super) last: Option<Box<Completion>>,
    pub(super) slots: Option<Slots>,
    pub(super) requested_at: StoreTime,
    pub(super) started_at: StoreTime,
    /// When that was, by the local clock.
    pub(super) at: Instant,
}

impl Run {
    pub(super) const fn new(guard: Guard, job: Job, begun: Begun) -> Self {
        Self { guard, job, begun }
    }

    /// Stores the record that the work is complete, and releases the lock. No client does the work again for this slot or
    /// key.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lease was lost before the store confirmed the record,
    /// otherwise as the store replies. After an error another client may do the work again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the record may or may not be stored. The lock is released in the background.
    pub async fn complete(self) -> Result<Completion> {
        let (note, completion) = self.completion();
        self.guard.complete(note).await?;
        report_job_success(&completion);
        Ok(completion)
    }

    /// The completed run before this one, as it was recorded when the lock was acquired. `None`: there was no record.
    #[must_use]
    pub fn last_run(&self) -> Option<&Completion> {
        self.begun.last.as_deref()
    }

    /// Releases the lock without a record: the run has failed. The lock then stays taken for the time of
    /// [`Job::retry_after`], if that is set.
    ///
    /// # Errors
    ///
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<()> {
        if let Some(delay) = self.job.retry_after {
            self.guard.require_min_hold(delay.as_duration());
        }
        self.guard.release().await
    }

    /// The record of this run, if it ends now.
    fn completion(&self) -> (NewNote, Completion) {
        let Job { mutex, unless, .. } = &self.job;
        let begun = &self.begun;
        let client = mutex.driver.presence.info();
        let took = mutex.driver.context.clock.now().since(begun.at);
        let record = CompletionRecord {
            slots: begun.slots,
            requested_at: begun.requested_at,
            started_at: begun.started_at,
            finished_at: begun.started_at.after_span(took),
            keep: matches!(unless, Unless::Key { .. }).then_some(self.job.keep),
            exit_code: 0,
            host: client.host.clone(),
            program: client.program.clone(),
            path: self.job.program_path.clone(),
            label: client.label.clone(),
        };
        let (lease, token) = self.guard.lease();
        let annotation = Annotation {
            lease,
            token,
            text: record.to_text().into(),
        };
        let completion = self.job.describe(&annotation, &record);
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
        (note, completion)
    }
}

impl Deref for Run {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}
