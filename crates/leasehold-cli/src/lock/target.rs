//! A lock, a job or a leadership before it is acquired.

use std::time::Duration;

use leasehold::{Client, Election, Job, LeaseOptions, LockSet, Mutex, Ran, RwLock, Semaphore};

use super::guard::AnyGuard;
use crate::args::ShareArgs;
use crate::exit::Failure;

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
    Read(RwLock),
    Write(RwLock),
}

impl Target {
    /// A lock, several ones, or one that others may hold at the same time.
    pub(super) fn of(
        share: &ShareArgs,
        name: &str,
        client: &Client,
        lease: LeaseOptions,
    ) -> Result<Self, Failure> {
        if !share.is_given() {
            return Ok(Self::Lock(client.mutex(name)?.with(lease)?));
        }
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
            let lock = client.rw_lock(name)?.with(lease)?;
            return Ok(match share.exclusive {
                true => Self::Write(lock),
                false => Self::Read(lock),
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
        !matches!(self, Self::Permits { .. } | Self::Read(_))
    }

    /// Waits for the lock, at most for a limit. One attempt is made in any case.
    pub(super) async fn acquire(&self, limit: Duration) -> leasehold::Result<Ran<AnyGuard>> {
        let guard = match self {
            Self::Lock(mutex) => mutex.lock_timeout(limit).await?.map(AnyGuard::Lock),
            Self::Locks(set, names) => {
                let guards = set.lock_timeout(limit).await?;
                guards.map(|guards| AnyGuard::Locks(guards, names.clone()))
            }
            Self::Permits { semaphore, weight } => {
                let permit = semaphore.acquire_many_timeout(*weight, limit).await?;
                permit.map(Box::new).map(AnyGuard::Permit)
            }
            Self::Read(lock) => lock.read_timeout(limit).await?.map(AnyGuard::Read),
            Self::Write(lock) => lock.write_timeout(limit).await?.map(AnyGuard::Write),
            Self::Election { election, value } => {
                let leadership = election.campaign_timeout(value, limit).await?;
                leadership.map(Box::new).map(AnyGuard::Leadership)
            }
            Self::Job(job) => match job.lock_timeout(limit).await? {
                Ran::Now(run) => Some(AnyGuard::Job(Box::new(run))),
                Ran::Before(run) => return Ok(Ran::Before(run)),
                Ran::Busy => None,
            },
        };
        Ok(guard.map_or(Ran::Busy, Ran::Now))
    }
}
