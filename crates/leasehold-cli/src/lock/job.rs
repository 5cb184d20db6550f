//! What is acquired: a lock, a job that may be complete already, or a leadership.

use std::ops::Deref;
use std::time::Duration;

use leasehold::{
    Client, CompletionInfo, Election, ErrorKind, Guard, Job, JobGuard, JobLock, Leadership, Mutex,
    Token,
};

use super::args::LockArgs;
use super::health::Health;
use crate::args::{Anchor, JobArgs, OnceCommand, RunCommand};
use crate::exit::{self, Failure};
use crate::{jobs, output};

/// Whether a command is run each time, as a job, or as the leader.
pub(crate) enum Plan<'a> {
    Always,
    Job {
        schedule: Schedule<'a>,
        options: &'a JobArgs,
    },
    Election {
        value: &'a str,
        health: &'a Health,
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

    /// The lock or job with a name.
    pub(super) fn target(
        &self,
        name: &str,
        args: &LockArgs,
        client: &Client,
    ) -> Result<Target, Failure> {
        let mut mutex = client.mutex(name)?;
        if let Some(lease) = args.lease {
            mutex = mutex.lease(lease)?;
        }
        if let Some(at_least) = args.at_least {
            mutex = mutex.min_hold(at_least)?;
        }
        let (schedule, options) = match self {
            Self::Always => return Ok(Target::Lock(mutex)),
            Self::Election { value, .. } => {
                let (election, value) = (Election::from(mutex), (*value).to_owned());
                return Ok(Target::Election { election, value });
            }
            Self::Job { schedule, options } => (schedule, options),
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
            Self::Always | Self::Election { .. } => "",
            Self::Job { .. } => "; if the run there fails, this one does not take over",
        }
    }

    /// The command begins to run.
    pub(crate) fn begins(&self, guard: &Guard) {
        if let Self::Election { health, .. } = self {
            health.leads(guard);
        }
    }

    /// The command has ended.
    pub(crate) fn ended(&self) {
        if let Self::Election { health, .. } = self {
            health.follows();
        }
    }

    /// Prints that the run was complete already. Returns the exit code.
    pub(crate) fn print_completed(&self, args: &LockArgs, run: &CompletionInfo) -> u8 {
        if args.verbose {
            let name = &run.name;
            let key = run.key.as_ref();
            let key = key.map_or_else(String::new, |key| format!(" for {key}"));
            let finished = output::rfc3339(run.finished).unwrap_or_default();
            let place = jobs::place(run);
            note!(
                "leasehold: {name}{key} was completed at {finished} by {place}; the command was not run"
            );
        }
        match self {
            Self::Always | Self::Election { .. } => 0,
            Self::Job { options, .. } => options.done_exit_code.unwrap_or(0),
        }
    }
}

/// A lock, a job or a leadership to be acquired.
pub(super) enum Target {
    Lock(Mutex),
    Job(Job),
    Election { election: Election, value: String },
}

/// The result of an acquisition.
pub(super) enum Acquired {
    Held(AnyGuard),
    /// The job was complete already.
    Completed(CompletionInfo),
}

/// A lock that is held.
pub(crate) enum AnyGuard {
    Lock(Guard),
    Job(Box<JobGuard>),
    Leadership(Box<Leadership>),
}

impl Target {
    pub(super) fn mutex(&self) -> &Mutex {
        match self {
            Self::Lock(mutex) => mutex,
            Self::Job(job) => job.mutex(),
            Self::Election { election, .. } => election.mutex(),
        }
    }

    pub(super) async fn lock(&self) -> leasehold::Result<Acquired> {
        match self {
            Self::Lock(mutex) => mutex.lock().await.map(Acquired::from),
            Self::Job(job) => job.lock().await.map(Acquired::from),
            Self::Election { election, value } => {
                election.campaign(value).await.map(Acquired::from)
            }
        }
    }

    /// `None`: another client holds it.
    pub(super) async fn try_lock(&self) -> leasehold::Result<Option<Acquired>> {
        Ok(match self {
            Self::Lock(mutex) => mutex.try_lock().await?.map(Acquired::from),
            Self::Job(job) => job.try_lock().await?.map(Acquired::from),
            Self::Election { election, value } => {
                election.try_campaign(value).await?.map(Acquired::from)
            }
        })
    }

    /// `None`: another client held it all the time.
    pub(super) async fn lock_timeout(
        &self,
        timeout: Duration,
    ) -> leasehold::Result<Option<Acquired>> {
        Ok(match self {
            Self::Lock(mutex) => mutex.lock_timeout(timeout).await?.map(Acquired::from),
            Self::Job(job) => job.lock_timeout(timeout).await?.map(Acquired::from),
            Self::Election { election, value } => {
                let leadership = election.campaign_timeout(value, timeout).await?;
                leadership.map(Acquired::from)
            }
        })
    }
}

impl From<Guard> for Acquired {
    fn from(guard: Guard) -> Self {
        Self::Held(AnyGuard::Lock(guard))
    }
}

impl From<Leadership> for Acquired {
    fn from(leadership: Leadership) -> Self {
        Self::Held(AnyGuard::Leadership(Box::new(leadership)))
    }
}

impl From<JobLock> for Acquired {
    fn from(lock: JobLock) -> Self {
        match lock {
            JobLock::Granted(guard) => Self::Held(AnyGuard::Job(Box::new(guard))),
            JobLock::Completed(run) => Self::Completed(run),
        }
    }
}

impl AnyGuard {
    /// Records that the run of a job is complete, if its command has ended with 0. The exit code of the run, if that
    /// failed: another client may run the job again. A lost lock is reported by its release.
    pub(crate) async fn complete(
        &mut self,
        args: &LockArgs,
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
                        job.name()
                    );
                }
                Ok(false)
            }
            Err(error) => {
                note!(
                    "leasehold: {error}; the run is not recorded as complete, so it may be repeated"
                );
                Err(exit::FAILED)
            }
        }
    }

    /// The term of a leader.
    pub(crate) fn term(&self) -> Option<Token> {
        match self {
            Self::Leadership(leadership) => Some(leadership.term()),
            Self::Lock(_) | Self::Job(_) => None,
        }
    }

    /// Prints that others cannot see this leader.
    pub(crate) async fn print_proclaimed<T>(&self, args: &LockArgs) -> T {
        if let Self::Leadership(leadership) = self
            && let Err(error) = leadership.proclaimed().await
            && error.kind() != ErrorKind::Lost
            && !args.quiet
        {
            note!("leasehold: {error}; others do not see this leader");
        }
        std::future::pending().await
    }

    pub(crate) async fn release(self) -> leasehold::Result<()> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Job(guard) => guard.release().await,
            Self::Leadership(leadership) => leadership.resign().await,
        }
    }
}

impl Deref for AnyGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match self {
            Self::Lock(guard) => guard,
            Self::Job(guard) => guard,
            Self::Leadership(leadership) => leadership.guard(),
        }
    }
}
