//! A lock, a job or a leadership before it is acquired.

use std::time::Duration;

use leasehold::{Client, Election, Job, LeaseOptions, LockSet, Mutex, Ran, RwLock, Semaphore};

use super::guard::AnyGuard;
use crate::args::ShareArgs;
use crate::exit::Failure;

/// Acquires by the method that waits without a limit, or by that with one. `None`: the limit has passed.
macro_rules! acquire {
    ($limit:ident, $target:ident.$method:ident, $with_limit:ident $(, $argument:expr)?) => {
        match $limit {
            None => Some($target.$method($($argument)?).await?),
            Some(limit) => $target.$with_limit($($argument,)? limit).await?,
        }
    };
}

/// A lock, a job or a leadership to be acquired.
pub(super) enum Target {
    Lock(Mutex),
    /// With their names in the order of the arguments.
    Locks(LockSet, Vec<String>),
    Job(Job),
    Election {
        election: Election,
        value: String,
    },
    Permits {
        semaphore: Semaphore,
        weight: u32,
    },
    Access {
        lock: RwLock,
        writes: bool,
    },
}

impl Target {
    /// Several locks, or a lock that others may hold at the same time.
    pub(super) fn shared(
        share: &ShareArgs,
        name: &str,
        client: &Client,
        lease: LeaseOptions,
    ) -> Result<Self, Failure> {
        if !share.and.is_empty() {
            let names = share.and.iter().map(String::as_str);
            let names = [name].into_iter().chain(names);
            let mutexes = names.map(|name| client.mutex(name)?.with(lease.clone()));
            let mutexes: Vec<_> = mutexes.collect::<leasehold::Result<_>>()?;
            let set = client.all(mutexes.iter().map(Mutex::for_lock))?;
            let names = mutexes.iter().map(|mutex| mutex.name().to_owned());
            return Ok(Self::Locks(set, names.collect()));
        }
        let Some(permits) = share.permits else {
            return Ok(Self::Access {
                lock: client.rw_lock(name)?.with(lease)?,
                writes: share.exclusive,
            });
        };
        let weight = share.weight.unwrap_or(1);
        if weight > permits {
            let message = format!("--weight {weight} is more than --permits {permits}");
            return Err(Failure::usage(message));
        }
        let semaphore = client.semaphore(name, permits)?.with(lease)?;
        Ok(Self::Permits {
            semaphore: match share.numbered {
                true => semaphore.numbered(),
                false => semaphore,
            },
            weight,
        })
    }

    /// Whether it waits for everyone who holds the lock.
    pub(super) const fn is_exclusive(&self) -> bool {
        match self {
            Self::Lock(_) | Self::Locks(..) | Self::Job(_) | Self::Election { .. } => true,
            Self::Permits { .. } => false,
            Self::Access { writes, .. } => *writes,
        }
    }

    /// Waits for the lock, at most for a limit if there is one. One attempt is made in any case.
    pub(super) async fn acquire(
        &self,
        limit: Option<Duration>,
    ) -> leasehold::Result<Ran<AnyGuard>> {
        let guard = match self {
            Self::Lock(mutex) => acquire!(limit, mutex.lock, lock_timeout).map(AnyGuard::Lock),
            Self::Locks(set, names) => {
                let guards = acquire!(limit, set.lock, lock_timeout).map(Box::new);
                guards.map(|guards| AnyGuard::Locks(guards, names.clone()))
            }
            Self::Permits { semaphore, weight } => {
                let permit = acquire!(limit, semaphore.acquire_many, acquire_many_timeout, *weight);
                permit.map(Box::new).map(AnyGuard::Permit)
            }
            Self::Access { lock, writes: true } => {
                let guard = acquire!(limit, lock.write, write_timeout);
                guard.map(Box::new).map(AnyGuard::Write)
            }
            Self::Access { lock, .. } => {
                let guard = acquire!(limit, lock.read, read_timeout);
                guard.map(Box::new).map(AnyGuard::Read)
            }
            Self::Election { election, value } => {
                let leadership = acquire!(limit, election.campaign, campaign_timeout, value);
                leadership.map(Box::new).map(AnyGuard::Leadership)
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
