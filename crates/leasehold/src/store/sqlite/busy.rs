//! Waits for a file that another process has locked.

use std::thread;
use std::time::Duration;

use leasehold_core::Instant;

use super::error::Fault;
use crate::clock::{BootClock, Clock as _};

/// The first retry interval. A transaction of another process takes about this long on a fast disk.
const INTERVAL_MIN: Duration = Duration::from_micros(100);

/// The longest retry interval: SQLite does not notify when the file is free, and a process that works
/// continuously leaves it only for [`GAP`].
const INTERVAL_MAX: Duration = Duration::from_millis(1);

/// How long a process works before it leaves the file to others.
const TURN: Duration = Duration::from_millis(25);

/// How long it leaves the file: longer than [`INTERVAL_MAX`], so every waiting process tries at least once.
const GAP: Duration = Duration::from_micros(1_200);

/// Retries until the attempt succeeds, fails for another reason than a locked file, or `until` has passed.
pub(super) fn retry<T>(
    until: Instant,
    mut attempt: impl FnMut() -> Result<T, Fault>,
) -> Result<T, Fault> {
    let mut interval = INTERVAL_MIN;
    loop {
        match attempt() {
            Err(fault) if fault.is_busy() && BootClock.now() < until => {
                // With jitter, so that two processes do not stay in step.
                thread::sleep(interval.mul_f64(1.0 - fastrand::f64() / 2.0));
                interval = (interval * 2).min(INTERVAL_MAX);
            }
            result => return result,
        }
    }
}

/// Keeps one busy process from starving the others, as the lock of SQLite is not fair.
#[derive(Debug)]
pub(super) struct Turn {
    since: Instant,
}

impl Turn {
    /// A turn that starts now.
    pub(super) fn start() -> Self {
        Self {
            since: BootClock.now(),
        }
    }

    /// Waits for work. A wait that was long enough for others starts a new turn.
    pub(super) fn rest<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let before = BootClock.now();
        let result = wait();
        if BootClock.now().since(before) >= GAP {
            *self = Self::start();
        }
        result
    }

    /// Leaves the file to others if the turn was long enough.
    pub(super) fn yield_if_long(&mut self) {
        if BootClock.now().since(self.since) >= TURN {
            thread::sleep(GAP);
            *self = Self::start();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use rusqlite::Connection;

    use super::*;

    /// The transactions are long, as on a slow disk, and follow each other immediately. Without the gaps the
    /// waiting process would have to try in exactly the right microseconds.
    #[test]
    fn a_waiting_process_is_not_starved_by_a_busy_one() {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let db = Connection::open(directory.path().join("x.db")).unwrap();
            db.busy_timeout(Duration::ZERO).unwrap();
            db
        };
        open().execute_batch("PRAGMA journal_mode = WAL").unwrap();
        let (stop, done) = (AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let (db, mut turn) = (open(), Turn::start());
                while !stop.load(Ordering::Relaxed) {
                    let until = Instant::from_nanos(u64::MAX);
                    retry(until, || Ok(db.execute_batch("BEGIN IMMEDIATE")?)).unwrap();
                    thread::sleep(Duration::from_millis(20));
                    db.execute_batch("COMMIT").unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                    turn.yield_if_long();
                }
            });
            let db = open();
            while done.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            for _ in 0..5 {
                let until = BootClock.now().after(Duration::from_secs(20));
                retry(until, || Ok(db.execute_batch("BEGIN IMMEDIATE")?)).unwrap();
                db.execute_batch("COMMIT").unwrap();
                // Not before the other one works again.
                let before = done.load(Ordering::Relaxed);
                while done.load(Ordering::Relaxed) == before {
                    thread::yield_now();
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        let done = done.into_inner();
        assert!(done < 300, "it waited for {done} transactions");
    }
}
