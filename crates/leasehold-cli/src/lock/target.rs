//! A lock, a job or a leadership before it is acquired.

use std::slice;
use std::time::Duration;

use leasehold::{Client, Election, Job, LeaseOptions, LockSet, Mutex, Ran, RwLock, Semaphore};

use super::guard::AnyGuard;
use crate::args::ShareArgs;
use crate::exit::Failure;

/// A lock, a job or a leadership to be acquired.
pub(super) enum Target {
    Lock(Mutex),
    /// In the order of the arguments.
    Locks {
        set: LockSet,
        mutexes: Vec<Mutex>,
    },
    Job(Job),
    Election {
        election: Election,
        value: String,
    },
    /// The mutex of the same name is for queries.
    Permits {
        semaphore: Semaphore,
        weight: u32,
        mutex: Mutex,
    },
    Access {
        lock: RwLock,
        writes: bool,
        mutex: Mutex,
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
            let names = [name]
                .into_iter()
                .chain(share.and.iter().map(String::as_str));
            let mutexes = names.map(|name| client.mutex(name)?.with(lease.clone()));
            let mutexes: Vec<_> = mutexes.collect::<leasehold::Result<_>>()?;
            let set = client.all(&mutexes)?;
            return Ok(Self::Locks { set, mutexes });
        }
        let mutex = client.mutex(name)?;
        let Some(permits) = share.permits else {
            return Ok(Self::Access {
                lock: client.rw_lock(name)?.with(lease)?,
                writes: share.exclusive,
                mutex,
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
            mutex,
        })
    }

    /// Its locks, for queries.
    pub(super) fn mutexes(&self) -> &[Mutex] {
        slice::from_ref(match self {
            Self::Locks { mutexes, .. } => return mutexes,
            Self::Lock(mutex) | Self::Permits { mutex, .. } | Self::Access { mutex, .. } => mutex,
            Self::Job(job) => job.mutex(),
            Self::Election { election, .. } => election.mutex(),
        })
    }

    /// Whether it waits for everyone who holds the lock.
    pub(super) const fn is_exclusive(&self) -> bool {
        match self {
            Self::Lock(_) | Self::Locks { .. } | Self::Job(_) | Self::Election { .. } => true,
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
            Self::Lock(mutex) => {
                let guard = match limit {
                    None => Some(mutex.lock().await?),
                    Some(limit) => mutex.lock_timeout(limit).await?,
                };
                guard.map(AnyGuard::Lock)
            }
            Self::Locks { set, mutexes } => {
                let guards = match limit {
                    None => Some(set.lock().await?),
                    Some(limit) => set.lock_timeout(limit).await?,
                };
                let names = mutexes.iter().map(|mutex| mutex.name().to_owned());
                guards.map(|guards| AnyGuard::Locks(Box::new(guards), names.collect()))
            }
            Self::Permits {
                semaphore, weight, ..
            } => {
                let permit = match limit {
                    None => Some(semaphore.acquire_many(*weight).await?),
                    Some(limit) => semaphore.acquire_many_timeout(*weight, limit).await?,
                };
                permit.map(|permit| AnyGuard::Permit(Box::new(permit)))
            }
            Self::Access {
                lock, writes: true, ..
            } => {
                let guard = match limit {
                    None => Some(lock.write().await?),
                    Some(limit) => lock.write_timeout(limit).await?,
                };
                guard.map(|guard| AnyGuard::Write(Box::new(guard)))
            }
            Self::Access { lock, .. } => {
                let guard = match limit {
                    None => Some(lock.read().await?),
                    Some(limit) => lock.read_timeout(limit).await?,
                };
                guard.map(|guard| AnyGuard::Read(Box::new(guard)))
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
