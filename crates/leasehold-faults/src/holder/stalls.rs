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

/// An instant since which no task has run, and how long their threads had waited for a processor by then.
type Standstill = (Nanos, u64);

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
            *standstill = Some((heartbeat, clock::time_waited("self")));
        }
        Some(begun) if begun.0 == heartbeat => *standstill = Some(begun),
        Some((since, waited)) => {
            // A thread's whole wait is counted when it comes to run.
            let starved =
                clock::time_waited("self").saturating_sub(waited) >= (heartbeat - since) / 2;
            let event = match starved {
                true => Event::Stalled { since },
                false => Event::Blocked { since },
            };
            shared.journal.record_at(heartbeat, &event);
        }
        None => {}
    }
}
