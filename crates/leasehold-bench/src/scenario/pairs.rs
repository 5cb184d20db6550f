//! Pairs of a lock and its release, over and over, by tasks that do not want the same lock.

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::{RwLock, Semaphore};
use serde_json::{Value, json};

use super::{LOCKS_IN_A_ROW, check_release};
use crate::baseline::BaselineLock;
use crate::format::{per, round};
use crate::latencies::{Latencies, lock};
use crate::target::Session;
use crate::usage::Usage;
use crate::{Result, failed};

/// The pairs of some tasks.
#[derive(Debug)]
pub(super) struct Pairs {
    /// One for each task.
    pub(super) locks: Vec<Lock>,
    pub(super) busy: Duration,
    /// `None`: the store has no calls to count.
    pub(super) calls: Option<u64>,
    /// The processor time of the server. `None`: there is no server, or it refuses.
    pub(super) server: Option<Duration>,
    pub(super) latencies: Arc<Mutex<Latencies>>,
}

/// The lock of one task.
#[derive(Debug)]
pub(super) enum Lock {
    Ours(leasehold::Mutex),
    Permit(Semaphore),
    Read(RwLock),
    Baseline(BaselineLock),
}

impl Pairs {
    pub(super) fn new(locks: Vec<Lock>) -> Self {
        Self {
            locks,
            busy: Duration::ZERO,
            calls: None,
            server: None,
            latencies: Arc::default(),
        }
    }

    /// Forgets what was counted.
    pub(super) fn reset(&mut self) {
        *self = Self::new(mem::take(&mut self.locks));
    }

    /// Lets all tasks run for a duration.
    pub(super) async fn run(&mut self, duration: Duration, session: &Session) -> Result<()> {
        let before = Usage::now(session).await?;
        let start = Instant::now();
        let end = start + duration;
        let locks = self.locks.drain(..);
        let tasks: Vec<_> = locks
            .map(|lock| tokio::spawn(lock.repeat(end, Arc::clone(&self.latencies))))
            .collect();
        for task in tasks {
            let lock = task.await.map_err(failed("a task of the bench"))??;
            self.locks.push(lock);
        }
        self.busy += start.elapsed();
        let used = Usage::now(session).await?.since(&before);
        if let Some(calls) = used.calls {
            *self.calls.get_or_insert(0) += calls;
        }
        if let Some(stats) = used.server {
            *self.server.get_or_insert_default() += stats.cpu;
        }
        Ok(())
    }

    pub(super) fn count(&self) -> u64 {
        lock(&self.latencies).count()
    }

    pub(super) fn per_second(&self) -> f64 {
        round(per(self.count(), 1) / self.busy.as_secs_f64().max(1e-9))
    }

    pub(super) fn quantile_us(&self, quantile: f64) -> f64 {
        lock(&self.latencies).quantile_us(quantile)
    }

    /// The processor time of the server for a pair. `None`: not counted.
    pub(super) fn server_us(&self) -> Option<f64> {
        let cpu = self.server?.as_secs_f64() * 1e6;
        Some(cpu / per(self.count().max(1), 1))
    }

    pub(super) fn figures(&self) -> Value {
        json!({
            "acquisitions_per_second": self.per_second(),
            "p50_us": self.quantile_us(0.5),
            "p95_us": self.quantile_us(0.95),
            "p99_us": self.quantile_us(0.99),
            "commands_per_acquisition": self.calls.map(|calls| round(per(calls, self.count()))),
            "server_cpu_us_per_acquisition": self.server_us().map(round),
        })
    }
}

impl Lock {
    async fn pair(&mut self) -> Result<()> {
        match self {
            Self::Ours(mutex) => check_release(mutex.lock().await?.release().await),
            Self::Permit(semaphore) => check_release(semaphore.acquire().await?.release().await),
            Self::Read(lock) => check_release(lock.read().await?.release().await),
            Self::Baseline(lock) => lock.pair().await,
        }
    }

    async fn repeat(mut self, end: Instant, latencies: Arc<Mutex<Latencies>>) -> Result<Self> {
        let mut pairs = 0;
        let mut start = Instant::now();
        while start < end {
            self.pair().await?;
            pairs += 1;
            let done = Instant::now();
            lock(&latencies).record(done - start);
            start = done;
            if pairs % LOCKS_IN_A_ROW == 0 {
                tokio::task::yield_now().await;
                start = Instant::now();
            }
        }
        Ok(self)
    }
}
