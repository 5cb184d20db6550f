//! What a command acquires: a lock, a job that may be complete already, or a leadership.

use std::time::Duration;

use leasehold::{Client, CompletionInfo, Election, Guard, Job, Mutex};

use super::args::LockArgs;
use super::guard::Acquired;
use super::health::Health;
use crate::args::{Anchor, JobArgs, OnceCommand, RunCommand};
use crate::exit::Failure;
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
