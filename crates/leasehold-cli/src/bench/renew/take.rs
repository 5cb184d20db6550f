//! Takes all locks, with many tasks at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold::Guard;
use tokio::task::JoinSet;

use super::Renew;
use crate::bench::place::Desk;
use crate::bench::progress::Progress;
use crate::exit::Failure;

/// After so many locks the other tasks have a chance: a store in memory never makes one wait.
const IN_A_ROW: u64 = 128;

/// What the tasks share.
#[derive(Clone)]
struct Taker {
    desk: Desk,
    ttl: Duration,
    leases: u64,
    /// The next lock to be taken.
    next: Arc<AtomicU64>,
    guards: Arc<Mutex<Vec<Guard>>>,
}

/// All guards, and how long it took to get them.
pub(super) async fn all(renew: &Renew, desk: &Desk) -> Result<(Vec<Guard>, Duration), Failure> {
    let taker = Taker {
        desk: desk.clone(),
        ttl: renew.ttl,
        leases: renew.leases.into(),
        next: Arc::default(),
        // As large as it will be: its growth would look like memory of the leases.
        guards: Arc::new(Mutex::new(Vec::with_capacity(renew.leases as usize))),
    };
    let next = Arc::clone(&taker.next);
    let progress = Progress::of("taking", taker.leases, move || next.load(Ordering::Relaxed));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..renew.tasks {
        tasks.spawn(taker.clone().run());
    }
    while let Some(task) = tasks.join_next().await {
        task.map_err(|error| Failure::own("a task of the bench failed", error))??;
    }
    drop(progress);
    let mut guards = taker.guards.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((std::mem::take(&mut *guards), start.elapsed()))
}

impl Taker {
    async fn run(self) -> leasehold::Result<()> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.leases {
                return Ok(());
            }
            let mutex = self.desk.mutex(format_args!("held/{number}"))?;
            let guard = mutex.ttl(self.ttl)?.lock().await?;
            self.keep(guard);
            if number % IN_A_ROW == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    fn keep(&self, guard: Guard) {
        let mut guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        guards.push(guard);
    }
}
