//! A lock, a job or a leadership before it is acquired.

use std::time::Duration;

use leasehold::{Election, Job, Mutex, Ran};

use super::guard::AnyGuard;

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

    /// Waits for the lock, at most for a limit if there is one. One attempt is made in any case.
    pub(super) async fn acquire(
        &self,
        limit: Option<Duration>,
    ) -> leasehold::Result<Ran<AnyGuard>> {
        let guard = match self {
            Self::Lock(mutex) => {
                let guard = match limit {
                    None => Some(mutex.lock().await?),
                    Some(limit) => mutex.lock_timeout(limit).await?,
                };
                guard.map(AnyGuard::Lock)
            }
            Self::Election { election, value } => {
                let leadership = match limit {
                    None => Some(election.campaign(value).await?),
                    Some(limit) => election.campaign_timeout(value, limit).await?,
                };
                leadership.map(|leadership| AnyGuard::Leadership(Box::new(leadership)))
            }
            Self::Job(job) => {
                let run = match limit {
                    None => job.lock().await?,
                    Some(limit) => job.lock_timeout(limit).await?,
                };
                match run {
                    Ran::Now(run) => Some(AnyGuard::Job(Box::new(run))),
                    Ran::Before(run) => return Ok(Ran::Before(run)),
                    Ran::Busy => None,
                }
            }
        };
        Ok(guard.map_or(Ran::Busy, Ran::Now))
    }
}
