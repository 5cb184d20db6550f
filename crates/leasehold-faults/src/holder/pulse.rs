//! Whether the process got to run.
//!
//! Nobody is to be blamed for what a stopped process or a busy machine did not do. So a thread looks
//! every few milliseconds whether it and the runtime's tasks have run. Where the tasks have not, the
//! system says whether their threads had to wait for a processor.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::Shared;
use crate::clock::{self, MILLI, Nanos};
use crate::history::Event;

/// How often to look, and from what gap on to write it down.
const INTERVAL: Duration = Duration::from_millis(5);
const GAP: Nanos = 25 * MILLI;

/// Tasks that have not run.
struct Standstill {
    since: Nanos,
    waited: u64,
}

/// Looks for as long as the process lives.
pub(super) fn take(shared: &Arc<Shared>) {
    let beat = Arc::new(AtomicU64::new(clock::now()));
    let (shared, heart) = (Arc::clone(shared), Arc::clone(&beat));
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(INTERVAL).await;
            heart.store(clock::now(), Ordering::Relaxed);
        }
    });
    thread::spawn(move || {
        let mut last = clock::now();
        let mut still = None;
        loop {
            thread::sleep(INTERVAL);
            let now = clock::now();
            if now - last > GAP {
                let since = last;
                shared.journal.write_at(now, &Event::Stalled { since });
            }
            last = now;
            look(&shared, beat.load(Ordering::Relaxed), now, &mut still);
        }
    });
}

fn look(shared: &Shared, beat: Nanos, now: Nanos, still: &mut Option<Standstill>) {
    match still.take() {
        None if now.saturating_sub(beat) > GAP => {
            let waited = waited();
            *still = Some(Standstill {
                since: beat,
                waited,
            });
        }
        Some(begun) if begun.since == beat => *still = Some(begun),
        Some(Standstill {
            since,
            waited: before,
        }) => {
            // What is counted when a thread comes to run is the whole time for which it waited.
            let starved = waited().saturating_sub(before) >= (beat - since) / 2;
            let event = match starved {
                true => Event::Stalled { since },
                false => Event::Blocked { since },
            };
            shared.journal.write_at(beat, &event);
        }
        None => {}
    }
}

/// For how long the threads of this process have waited for a processor, in nanoseconds.
fn waited() -> u64 {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let of = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        stat.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    threads.flatten().filter_map(of).sum()
}
