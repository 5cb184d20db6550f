//! Taking all locks, and releasing them.

use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::{Guard, LeaseOptions};
use tokio::task::JoinSet;

use crate::latencies::lock;
use crate::options::Settings;
use crate::scenario::LOCKS_IN_A_ROW;
use crate::target::{Session, Target};
use crate::{Result, failed};

/// The time limit for all releases. A store that needs longer has failed.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(120);

/// The number of counters that are removed at once: the server does nothing else meanwhile.
const COUNTERS: u32 = 256;

/// The state that the tasks share.
#[derive(Clone)]
struct Taking {
    session: Session,
    ttl: Duration,
    leases: u32,
    /// The number of the next lock.
    next: Arc<AtomicU32>,
    guards: Arc<Mutex<Vec<Guard>>>,
}

/// Takes all locks, with many tasks at once. Returns the guards, and how long it took.
pub(super) async fn take_all(
    settings: &Settings,
    session: &Session,
) -> Result<(Vec<Guard>, Duration)> {
    let taking = Taking {
        session: session.clone(),
        ttl: settings.ttl,
        leases: settings.leases,
        next: Arc::default(),
        // As large as it will be: its growth would look like memory of the leases.
        guards: Arc::new(Mutex::new(Vec::with_capacity(settings.leases as usize))),
    };
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..settings.tasks {
        tasks.spawn(taking.clone().run());
    }
    while let Some(task) = tasks.join_next().await {
        task.map_err(failed("a task of the bench"))??;
    }
    let guards = mem::take(&mut *lock(&taking.guards));
    Ok((guards, start.elapsed()))
}

/// Releases all locks at once. Returns another client, as the old one has ended, and how long it took.
pub(super) async fn release_all(
    target: &Target,
    session: Session,
    guards: Vec<Guard>,
) -> Result<(Session, Duration)> {
    let start = Instant::now();
    session.client.shutdown(RELEASE_TIMEOUT).await?;
    let took = start.elapsed();
    drop(guards);
    // The releases of the guards.
    session.client.shutdown(RELEASE_TIMEOUT).await?;
    Ok((target.reopen(&session)?, took))
}

/// Removes the counters of all locks: very many are nothing to leave behind for a day.
pub(super) async fn remove_counters(session: &Session, leases: u32) -> Result<()> {
    let Some(server) = session.baseline.server().await? else {
        return Ok(());
    };
    for first in (0..leases).step_by(COUNTERS as usize) {
        let numbers = first..leases.min(first + COUNTERS);
        let keys: Result<Vec<_>> = numbers.map(|number| session.key(name(number))).collect();
        server.remove_counters(&keys?).await?;
    }
    Ok(())
}

fn name(number: u32) -> String {
    format!("held/{number}")
}

impl Taking {
    async fn run(self) -> Result<()> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.leases {
                return Ok(());
            }
            let mutex = self
                .session
                .mutex(name(number))?
                .with(LeaseOptions::new().ttl(self.ttl))?;
            let guard = mutex.lock().await?;
            lock(&self.guards).push(guard);
            if u64::from(number).is_multiple_of(LOCKS_IN_A_ROW) {
                tokio::task::yield_now().await;
            }
        }
    }
}
