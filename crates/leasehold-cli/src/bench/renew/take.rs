//! Takes all locks, with many tasks at once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold::Guard;
use tokio::task::JoinSet;

use super::Renew;
use crate::bench::place::Desk;
use crate::bench::progress::Progress;
use crate::exit::Failure;

/// After so many locks the other tasks have a chance: a store in memory never makes one wait.
const IN_A_ROW: u32 = 128;

/// What the tasks share.
#[derive(Clone)]
struct Taker {
    desk: Desk,
    ttl: Duration,
    leases: u32,
    /// The next lock to be taken.
    next: Arc<AtomicU32>,
    guards: Arc<Mutex<Vec<Guard>>>,
}

/// All guards, and how long it took to get them.
pub(super) async fn all(renew: &Renew, desk: &Desk) -> Result<(Vec<Guard>, Duration), Failure> {
    let taker = Taker {
        desk: desk.clone(),
        ttl: renew.ttl,
        leases: renew.leases,
        next: Arc::default(),
        // As large as it will be: its growth would look like memory of the leases.
        guards: Arc::new(Mutex::new(Vec::with_capacity(renew.leases as usize))),
    };
    let next = Arc::clone(&taker.next);
    let progress = Progress::of("taking", taker.leases.into(), move || {
        next.load(Ordering::Relaxed).into()
    });
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

/// One of the locks by its number.
pub(super) fn mutex(desk: &Desk, number: u32) -> leasehold::Result<leasehold::Mutex> {
    desk.mutex(format_args!("held/{number}"))
}

impl Taker {
    async fn run(self) -> leasehold::Result<()> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.leases {
                return Ok(());
            }
            let mutex = mutex(&self.desk, number)?.ttl(self.ttl)?;
            let guard = mutex.lock().await?;
            self.keep(guard);
            if number.is_multiple_of(IN_A_ROW) {
                tokio::task::yield_now().await;
            }
        }
    }

    fn keep(&self, guard: Guard) {
        let mut guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        guards.push(guard);
    }
}
