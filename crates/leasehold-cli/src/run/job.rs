//! What a run acquires: a lock, or a job that may be complete already.

use std::ops::Deref;
use std::time::Duration;

use leasehold::{Client, CompletionInfo, ErrorKind, Guard, Job, JobGuard, JobLock, Mutex};

use crate::args::{Anchor, JobArgs, OnceCommand, RunArgs, RunCommand};
use crate::exit::{self, Failure};
use crate::{jobs, output};

/// Whether a command is run each time, or as a job.
pub(crate) enum Plan<'a> {
    Always,
    Job {
        schedule: Schedule<'a>,
        options: &'a JobArgs,
    },
}

/// When a job runs.
pub(crate) enum Schedule<'a> {
    Every {
        period: Duration,
        anchor: Option<Anchor>,
    },
    Once {
        key: &'a str,
    },
}

impl<'a> Plan<'a> {
    pub(crate) fn of(command: &'a RunCommand) -> Self {
        match command.every {
            None => Self::Always,
            Some(period) => Self::Job {
                schedule: Schedule::Every {
                    period,
                    anchor: command.anchor,
                },
                options: &command.job,
            },
        }
    }

    pub(crate) fn once(command: &'a OnceCommand) -> Self {
        Self::Job {
            schedule: Schedule::Once { key: &command.key },
            options: &command.job,
        }
    }

    /// The lock or job under the name in the arguments.
    pub(super) fn target(&self, args: &RunArgs, client: &Client) -> Result<Target, Failure> {
        let mut mutex = client.mutex(&args.name)?;
        if let Some(lease) = args.lease {
            mutex = mutex.lease(lease)?;
        }
        if let Some(at_least) = args.at_least {
            mutex = mutex.min_hold(at_least)?;
        }
        let Self::Job { schedule, options } = self else {
            return Ok(Target::Lock(mutex));
        };
        let builder = mutex.job()?;
        let mut job = match schedule {
            Schedule::Once { key } => builder.once(key)?,
            Schedule::Every { period, anchor } => {
                let job = builder.every(*period)?;
                match anchor {
                    Some(anchor) => job.anchor(anchor.time(*period)?)?,
                    None => job,
                }
            }
        };
        if let Some(delay) = options.retry_after {
            job = job.retry_after(delay)?;
        }
        if let Some(keep) = options.keep {
            job = job.keep(keep)?;
        }
        Ok(Target::Job(job))
    }

    /// What a refusal costs.
    pub(super) fn cost_of_refusal(&self) -> &'static str {
        match self {
            Self::Always => "",
            Self::Job { .. } => "; if the run there fails, this one does not take over",
        }
    }

    /// Prints that the run was complete already. Returns the exit code.
    pub(super) fn print_completed(&self, args: &RunArgs, run: &CompletionInfo) -> u8 {
        if args.verbose {
            let name = &args.name;
            let key = run.key.as_ref();
            let key = key.map_or_else(String::new, |key| format!(" for {key}"));
            let finished = output::rfc3339(run.finished).unwrap_or_default();
            let place = jobs::place(run);
            note!("leasehold: {name}{key} was completed at {finished} by {place}; the command was not run");
        }
        match self {
            Self::Always => 0,
            Self::Job { options, .. } => options.done_exit_code.unwrap_or(0),
        }
    }
}

/// A lock or a job to be acquired.
pub(super) enum Target {
    Lock(Mutex),
    Job(Job),
}

/// The result of an acquisition.
pub(super) enum Acquired {
    Held(Held),
    /// The job was complete already.
    Completed(CompletionInfo),
}

/// A lock that is held.
pub(super) enum Held {
    Lock(Guard),
    Job(JobGuard),
}

impl Target {
    pub(super) fn mutex(&self) -> &Mutex {
        match self {
            Self::Lock(mutex) => mutex,
            Self::Job(job) => job.mutex(),
        }
    }

    pub(super) async fn lock(&self) -> leasehold::Result<Acquired> {
        match self {
            Self::Lock(mutex) => mutex.lock().await.map(Acquired::from),
            Self::Job(job) => job.lock().await.map(Acquired::from),
        }
    }

    /// `None`: another client holds it.
    pub(super) async fn try_lock(&self) -> leasehold::Result<Option<Acquired>> {
        Ok(match self {
            Self::Lock(mutex) => mutex.try_lock().await?.map(Acquired::from),
            Self::Job(job) => job.try_lock().await?.map(Acquired::from),
        })
    }

    /// `None`: another client held it all the time.
    pub(super) async fn lock_timeout(&self, timeout: Duration) -> leasehold::Result<Option<Acquired>> {
        Ok(match self {
            Self::Lock(mutex) => mutex.lock_timeout(timeout).await?.map(Acquired::from),
            Self::Job(job) => job.lock_timeout(timeout).await?.map(Acquired::from),
        })
    }
}

impl From<Guard> for Acquired {
    fn from(guard: Guard) -> Self {
        Self::Held(Held::Lock(guard))
    }
}

impl From<JobLock> for Acquired {
    fn from(lock: JobLock) -> Self {
        match lock {
            JobLock::Granted(guard) => Self::Held(Held::Job(guard)),
            JobLock::Completed(run) => Self::Completed(run),
        }
    }
}

impl Held {
    /// Records that the run of a job is complete, if its command has ended with 0. The exit code of the run, if that
    /// failed: another client may run the job again. A lost lock is reported by its release.
    pub(super) async fn complete(
        &mut self,
        args: &RunArgs,
        outcome: &Result<u8, Failure>,
    ) -> Result<bool, u8> {
        let (Self::Job(job), Ok(0)) = (self, outcome) else {
            return Ok(false);
        };
        match job.complete().await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Lost => {
                if !args.quiet {
                    note!(
                        "leasehold: {}: the run is not recorded as complete, because the lock was lost",
                        args.name
                    );
                }
                Ok(false)
            }
            Err(error) => {
                note!("leasehold: {error}; the run is not recorded as complete, so it may be repeated");
                Err(exit::FAILED)
            }
        }
    }

    pub(super) async fn release(self) -> leasehold::Result<()> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Job(guard) => guard.release().await,
        }
    }
}

impl Deref for Held {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match self {
            Self::Lock(guard) => guard,
            Self::Job(guard) => guard,
        }
    }
}
