//! Another lock, which nobody else wants, taken and released over and over by one task.

use std::time::{Duration, Instant};

use crate::bench::place::Desk;
use crate::bench::times::Times;
use crate::exit::Failure;

/// The name of the lock.
const OTHER: &str = "other";

/// After so many pairs the renewals have a chance: a store in memory never makes the task wait.
const IN_A_ROW: u64 = 128;

/// Pairs of a lock and its release.
#[derive(Debug)]
pub(super) struct Pairs {
    pub(super) busy: Duration,
    pub(super) times: Times,
}

impl Pairs {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self {
            busy: Duration::ZERO,
            times: Times::new()?,
        })
    }

    /// Locks and releases for so long, and once at least.
    pub(super) async fn repeat(&mut self, desk: &Desk, span: Duration) -> Result<(), Failure> {
        let mutex = desk.mutex(OTHER)?;
        let begin = Instant::now();
        let end = begin + span;
        let mut start = begin;
        for pair in 1.. {
            mutex.lock().await?.release().await?;
            let done = Instant::now();
            self.times.record(done - start);
            start = done;
            if start >= end {
                break;
            }
            if pair % IN_A_ROW == 0 {
                tokio::task::yield_now().await;
                start = Instant::now();
            }
        }
        self.busy += begin.elapsed();
        Ok(())
    }
}
