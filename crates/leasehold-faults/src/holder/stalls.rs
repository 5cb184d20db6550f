//! Detection of times in which the process did not run.
//!
//! A holder is not to blame for what a stopped process or a busy machine did not do. A thread checks every few
//! milliseconds whether it and the tasks of the runtime have run. Where the tasks have not, the system knows whether
//! their threads waited for a processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::Shared;
use crate::clock::{self, MILLI, Nanos};
use crate::history::Event;

/// The interval of checks, and the shortest gap that is recorded.
const INTERVAL: Duration = Duration::from_millis(5);
const GAP: Nanos = 25 * MILLI;

/// A time in which no task runs.
struct Standstill {
    since: Nanos,
    /// How long the threads had waited for a processor when it was detected.
    run_queue_wait: Nanos,
}

/// Detects for as long as the process lives.
pub(super) fn detect(shared: &Arc<Shared>) {
    let heartbeat = Arc::new(AtomicU64::new(clock::now()));
    let (shared, task) = (Arc::clone(shared), Arc::clone(&heartbeat));
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(INTERVAL).await;
            task.store(clock::now(), Ordering::Relaxed);
        }
    });
    thread::spawn(move || {
        let mut last = clock::now();
        let mut standstill = None;
        loop {
            thread::sleep(INTERVAL);
            let now = clock::now();
            if now - last > GAP {
                let since = last;
                shared.journal.record_at(now, &Event::Stalled { since });
            }
            last = now;
            check_tasks(
                &shared,
                heartbeat.load(Ordering::Relaxed),
                now,
                &mut standstill,
            );
        }
    });
}

fn check_tasks(shared: &Shared, heartbeat: Nanos, now: Nanos, standstill: &mut Option<Standstill>) {
    match standstill.take() {
        None if now.saturating_sub(heartbeat) > GAP => {
            *standstill = Some(Standstill {
                since: heartbeat,
                run_queue_wait: clock::run_queue_wait("self"),
            });
        }
        Some(current) if current.since == heartbeat => *standstill = Some(current),
        Some(Standstill {
            since,
            run_queue_wait,
        }) => {
            // A thread's whole wait is counted when it comes to run.
            let waited = clock::run_queue_wait("self").saturating_sub(run_queue_wait);
            let starved = waited >= (heartbeat - since) / 2;
            let event = match starved {
                true => Event::Stalled { since },
                false => Event::Blocked { since },
            };
            shared.journal.record_at(heartbeat, &event);
        }
        None => {}
    }
}
