//! The lock of `run`, `once`, `elect` and `hold`: what these commands need to acquire a lock and to keep it.

mod acquire;
pub(crate) mod guard;
mod holder;
pub(crate) mod jeopardy;
pub(crate) mod plan;
pub(crate) mod program;
mod waiting;
pub(crate) mod watchdog;

use std::pin::Pin;
use std::time::{Duration, Instant};

use leasehold::watchdog::Watchdog;
use leasehold::{Client, Completion, Durability, ErrorKind, LeaseId, LockInfo, Mutex, Ran};
use tokio::time::timeout;

use self::guard::AnyGuard;
use self::plan::Plan;
use self::program::Program;
use self::waiting::Progress;
use crate::args::{LockArgs, StoreArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::{duration, output, variables};

/// How long an exit waits for the release of a cancelled acquisition.
const LATE_RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// How long the store may take for its first reply, even if the limit of the wait is shorter.
const FIRST_REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// A request for a lock.
pub(crate) struct Request<'a> {
    pub(crate) name: &'a str,
    pub(crate) args: &'a LockArgs,
    pub(crate) plan: &'a Plan<'a>,
    pub(crate) store: &'a StoreArgs,
    pub(crate) watchdog: Option<&'a Watchdog>,
    /// The program of the client info.
    pub(crate) program: &'a Program,
    /// What a refusal means, such as `the command was not run`. `None`: it is not printed.
    pub(crate) refusal: Option<&'static str>,
}

/// The outcome of a request that has not failed.
pub(crate) enum Outcome<T> {
    Acquired(Client, AnyGuard),
    /// The job was complete already, or is now.
    Completed(Completion),
    /// Another client holds the lock for longer than it may be waited for.
    Refused,
    Interrupted(T),
}

impl Request<'_> {
    /// Connects and acquires the lock, unless that is interrupted. A second interruption ends the wait for the release
    /// of what may have been granted meanwhile.
    pub(crate) async fn acquire<T>(
        &self,
        mut interruption: impl AsyncFnMut() -> T,
    ) -> Result<Outcome<T>, Failure> {
        let begun = Instant::now();
        let client = tokio::select! {
            biased;
            interrupted = interruption() => return Ok(Outcome::Interrupted(interrupted)),
            client = waiting::connected(self) => client?,
        };
        let outcome = tokio::select! {
            biased;
            interrupted = interruption() => Ok(Outcome::Interrupted(interrupted)),
            acquired = self.granted(&client, begun) => match acquired {
                Ok(Ran::Now(guard)) => Ok(Outcome::Acquired(client.clone(), guard)),
                Ok(Ran::Before(run)) => Ok(Outcome::Completed(run)),
                Ok(Ran::Busy) => {
                    self.print_refusal(&client).await;
                    Ok(Outcome::Refused)
                }
                Err(failure) => Err(failure),
            },
        };
        match &outcome {
            Ok(Outcome::Acquired(_, guard)) => {
                if self.args.verbose {
                    let (waited, token) = (duration::format(begun.elapsed()), guard.token());
                    note!("leasehold: waited {waited}, token {token}");
                }
            }
            // A store that has not replied for so long has granted nothing that would not end by itself. The drop of the
            // client would wait for its reply.
            Err(failure) if failure.is_unreachable() => std::mem::forget(client),
            // No background task survives the exit. The lock was never held, so nothing is printed.
            _ => tokio::select! {
                biased;
                _ = interruption() => {}
                _ = client.shutdown(LATE_RELEASE_TIMEOUT) => {}
            },
        }
        outcome
    }

    /// Connects to the store, with the client info of this process.
    async fn connect(&self) -> Result<Client, Failure> {
        refuse_memory(self.store)?;
        let args = self.args;
        let mut builder = Client::builder()
            .program(&*self.program.name)
            .label(&args.label)
            // A fixed lease may be shorter than the ttl of renewed ones; the timeouts must suit it.
            .ttl(args.lease_length());
        if let Some(count) = args.replicas {
            let timeout = args.replicas_timeout;
            builder = builder.durability(Durability::Replicas { count, timeout });
        }
        if let Some(watchdog) = self.watchdog {
            builder = builder.watchdog(watchdog.clone());
        }
        let connected = connect(self.store, builder).await;
        connected.map_err(|failure| watchdog::with_start_command(failure, self.watchdog))
    }

    /// The lock or job, unless another client holds it for longer than it may be waited for.
    async fn granted(&self, client: &Client, begun: Instant) -> Result<Ran<AnyGuard>, Failure> {
        self.plan.print_conflicts(self.args);
        let mutexes = self.names().map(|name| client.mutex(name));
        let mutexes: Vec<_> = mutexes.collect::<leasehold::Result<_>>()?;
        let mut acquiring: Pin<Box<dyn Future<Output = _> + '_>> =
            Box::pin(self.confirmed(client, begun));
        for mutex in &mutexes {
            refuse_to_wait_for_itself(mutex).await?;
            let progress = Progress::new(self, mutex, client, begun);
            acquiring = Box::pin(progress.run(acquiring));
        }
        let acquired = acquiring.await?;
        if let Ran::Now(guard) = &acquired
            && let Some(last) = guard.last_run()
        {
            self.plan.print_other_job(self.program, last, None);
        }
        Ok(acquired)
    }

    /// Waits for a lease on which its user can rely. One that is lost before is acquired again: nothing has been done
    /// under it.
    async fn confirmed(&self, client: &Client, begun: Instant) -> Result<Ran<AnyGuard>, Failure> {
        loop {
            let guard = match self.wait(client, begun).await? {
                Ran::Now(guard) => guard,
                other => return Ok(other),
            };
            match confirm(&guard, self.args).await {
                Ok(()) => return Ok(Ran::Now(guard)),
                Err(_) if guard.state().is_lost() => {}
                // No command starts under it.
                Err(error) => {
                    guard.waive_min_hold();
                    return Err(error.into());
                }
            }
        }
    }

    /// Waits for the lock as long as the arguments allow.
    async fn wait(&self, client: &Client, begun: Instant) -> Result<Ran<AnyGuard>, Failure> {
        let limit = match (self.args.no_wait, self.args.wait) {
            (true, _) => Duration::ZERO,
            (false, Some(limit)) => limit.saturating_sub(begun.elapsed()),
            (false, None) => Duration::MAX,
        };
        let is_short = limit < FIRST_REPLY_TIMEOUT && !self.args.no_wait;
        match self.acquire_within(limit, client).await {
            // Perhaps without a reply so far. One attempt shows whether the lock is held.
            Err(failure) if failure.is_unreachable() && is_short => {
                let attempt = self.acquire_within(Duration::ZERO, client);
                let attempt = timeout(FIRST_REPLY_TIMEOUT, attempt).await;
                attempt.unwrap_or(Err(failure))
            }
            waited => waited,
        }
    }

    /// The names of the locks, in the order of the arguments.
    fn names(&self) -> impl Iterator<Item = &str> {
        let and = self.plan.and().iter().map(String::as_str);
        [self.name].into_iter().chain(and)
    }

    /// Prints who holds the lock, what else keeps this run from sharing it, and what that means.
    async fn print_refusal(&self, client: &Client) {
        let Some(refusal) = self.refusal else {
            return;
        };
        // Or it is free meanwhile.
        let cost = self.plan.cost_of_refusal();
        let mut holder = (self.name, "was held elsewhere".to_owned(), cost);
        for name in self.names() {
            let sharing = self.plan.sharing();
            let query = async {
                let mutex = client.mutex(name)?;
                match sharing {
                    // Also the queue, which may be long.
                    Some(_) => mutex.inspect().await,
                    None => mutex.holder().await,
                }
            };
            if let Ok(Ok(Some(info))) = timeout(holder::QUERY_TIMEOUT, query).await
                // Its release may be on the way.
                && info.lease.client != client.id()
            {
                let cost = Some(cost).filter(|_| !info.min_hold);
                let obstacle = sharing.and_then(|it| holder::obstacle(&info, it, client.id()));
                let obstacle = output::optional("; ", obstacle);
                let is_held = holder::describe(&info, self.store) + &obstacle;
                holder = (name, is_held, cost.unwrap_or_default());
                break;
            }
        }
        let (name, is_held, cost) = holder;
        let waited = self.args.wait.filter(|limit| !limit.is_zero());
        let waited = waited.map(|limit| format!("waited {}, ", duration::format(limit)));
        let waited = waited.unwrap_or_default();
        note!("leasehold: {name} {is_held}; {waited}{refusal}{cost}");
    }
}

/// The leases of the runs around this process, the innermost last.
pub(crate) fn outer_leases() -> Vec<LeaseId> {
    let leases = [variables::OUTER, variables::LEASE].map(std::env::var);
    let leases = leases.iter().flatten().flat_map(|it| it.split(' '));
    leases.filter_map(|lease| lease.parse().ok()).collect()
}

/// Waits until a lease that was granted from the queue is renewed to the full ttl: it is short until then, and would
/// leave too little time to stop the work under it. Returns also when the lease ends before that.
async fn confirm(guard: &AnyGuard, args: &LockArgs) -> leasehold::Result<()> {
    if args.lease.is_some() {
        return Ok(());
    }
    loop {
        match guard.ensure(args.ttl / 2).await {
            Err(error) if error.is_transient() => tokio::time::sleep(waiting::RETRY_INTERVAL).await,
            confirmed => return confirmed,
        }
    }
}

/// Refuses a store inside this process, which would exclude no other process.
fn refuse_memory(store: &StoreArgs) -> Result<(), Failure> {
    match &store.store {
        Some(url) if url.starts_with("memory:") => Err(Failure::usage(
            "a memory: store belongs to one process and excludes no other; use sqlite:PATH",
        )),
        _ => Ok(()),
    }
}

/// Whether the client of one of these leases holds a lock, perhaps by another lease: a run may have several locks.
fn is_held_by(outer: &[LeaseId], info: &LockInfo) -> bool {
    let others = info.others.iter().map(|holder| holder.lease);
    let mut holders = others.chain([info.lease]);
    holders.any(|holder| outer.iter().any(|lease| lease.client == holder.client))
}

/// A command of a run that waits for the lock of that run would wait for its own end. A reader does so if a writer waits
/// behind the outer reader, and a run with a permit if all permits are those of runs that want another one.
async fn refuse_to_wait_for_itself(mutex: &Mutex) -> Result<(), Failure> {
    let outer = outer_leases();
    if outer.is_empty() {
        return Ok(());
    }
    let holder = match mutex.holder().await {
        // The holder is unknown, so the lock is acquired as usual.
        Err(error) if error.kind() == ErrorKind::NoQuorum => None,
        found => found?,
    };
    match holder {
        Some(holder) if is_held_by(&outer, &holder) => Err(Failure::usage(format!(
            "{} is held by a run around this command, which could wait for itself; use another name",
            mutex.name()
        ))),
        _ => Ok(()),
    }
}
