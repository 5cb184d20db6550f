//! The acquisition of a lock, a job or a leadership.

use std::time::Duration;

use leasehold::{Client, LeaseOptions, Mutex, Ran};

use super::Request;
use super::guard::AnyGuard;
use super::plan::Plan;
use crate::args::ShareArgs;
use crate::exit::Failure;

impl Request<'_> {
    /// Waits for the lock or job, at most for a limit. One attempt is made in any case.
    pub(super) async fn acquire_within(
        &self,
        limit: Duration,
        client: &Client,
    ) -> Result<Ran<AnyGuard>, Failure> {
        let mut lease = LeaseOptions::new();
        if let Some(length) = self.args.lease {
            lease = lease.fixed(length);
        }
        if let Some(at_least) = self.args.at_least {
            lease = lease.min_hold(at_least);
        }
        let (job, options) = match self.plan {
            Plan::Always(share) => {
                let guard = self.acquire_lock(limit, client, lease, share).await?;
                return Ok(or_busy(guard));
            }
            Plan::Election(value, _) => {
                let election = client.election(self.name)?.with(lease)?;
                let leadership = election.campaign_timeout(value, limit).await?;
                return Ok(or_busy(leadership.map(Box::new).map(AnyGuard::Leadership)));
            }
            Plan::Once(command) => (client.once(self.name, &command.key)?, &command.job),
            Plan::Every(period, command) => {
                let mut job = client.job(self.name, *period)?;
                if let Some(anchor) = command.anchor {
                    job = job.anchor(anchor.time(*period)?)?;
                }
                (job, &command.job)
            }
        };
        let mut job = job.with(lease)?;
        if let Some(path) = self.program.recorded_path() {
            job = job.program_path(path);
        }
        if let Some(delay) = options.retry_after {
            job = job.retry_after(delay)?;
        }
        if let Some(keep) = options.keep {
            job = job.keep(keep)?;
        }
        if options.no_record {
            let guard = job.mutex().lock_timeout(limit).await?;
            return Ok(or_busy(guard.map(AnyGuard::Lock)));
        }
        Ok(match job.lock_timeout(limit).await? {
            Ran::Now(run) => Ran::Now(AnyGuard::Job(Box::new(run))),
            Ran::Before(run) => Ran::Before(run),
            Ran::Busy => Ran::Busy,
        })
    }

    /// A lock, several ones, or one that others may hold at the same time.
    async fn acquire_lock(
        &self,
        limit: Duration,
        client: &Client,
        lease: LeaseOptions,
        share: &ShareArgs,
    ) -> Result<Option<AnyGuard>, Failure> {
        if let Some(permits) = share.permits {
            let weight = share.weight.unwrap_or(1);
            if weight > permits {
                let message = format!("--weight {weight} is more than --permits {permits}");
                return Err(Failure::usage(message));
            }
            let mut semaphore = client.semaphore(self.name, permits)?.with(lease)?;
            if share.numbered {
                semaphore = semaphore.numbered();
            }
            let permit = semaphore.acquire_many_timeout(weight, limit).await?;
            return Ok(permit.map(Box::new).map(AnyGuard::Permit));
        }
        if share.shared {
            let lock = client.rw_lock(self.name)?.with(lease)?;
            return Ok(lock.read_timeout(limit).await?.map(AnyGuard::Read));
        }
        if share.exclusive {
            let lock = client.rw_lock(self.name)?.with(lease)?;
            return Ok(lock.write_timeout(limit).await?.map(AnyGuard::Write));
        }
        let mutexes = self
            .names()
            .map(|name| client.mutex(name)?.with(lease.clone()));
        let mutexes: Vec<_> = mutexes.collect::<leasehold::Result<_>>()?;
        if let [mutex] = &mutexes[..] {
            return Ok(mutex.lock_timeout(limit).await?.map(AnyGuard::Lock));
        }
        let set = client.all(mutexes.iter().map(Mutex::for_lock))?;
        let names = mutexes.iter().map(|mutex| mutex.name().to_owned());
        let guards = set.lock_timeout(limit).await?;
        Ok(guards.map(|guards| AnyGuard::Locks(guards, names.collect())))
    }
}

fn or_busy(guard: Option<AnyGuard>) -> Ran<AnyGuard> {
    guard.map_or(Ran::Busy, Ran::Now)
}
