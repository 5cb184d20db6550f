//! Runs schedules side by side, as each mostly waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A schedule and its name.
pub(super) type Schedule = (&'static str, fn());

/// How long a thread may wait for a processor. The leases tolerate twice that.
const STALL_MAX: Duration = Duration::from_secs(1);

/// The number of runs of a schedule that fails on a busy machine.
const ROUNDS_MAX: usize = 3;

/// The interval of the heartbeat.
const HEARTBEAT: Duration = Duration::from_millis(5);

/// Runs schedules at the same time, each in a thread of its name.
///
/// A failure during a stall of the machine proves nothing, so the schedule runs again.
pub(super) fn run_all(schedules: &[Schedule]) {
    let mut remaining = schedules.to_vec();
    for round in 1.. {
        let detector = StallDetector::start();
        remaining = failed(&remaining);
        let stall = detector.end();
        if remaining.is_empty() {
            return;
        }
        let names: Vec<_> = remaining.iter().map(|(name, _)| name).collect();
        let again = stall > STALL_MAX && round < ROUNDS_MAX;
        assert!(again, "failed: {names:?}; the longest stall was {stall:?}");
        println!("the machine stalled for {stall:?}, once more: {names:?}");
    }
}

/// Runs one schedule. It may block a thread, so the clients have another.
pub(super) fn run(schedule: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(schedule);
}

fn failed(schedules: &[Schedule]) -> Vec<Schedule> {
    let started: Vec<_> = schedules
        .iter()
        .map(|(name, run)| {
            let thread = thread::Builder::new().name((*name).to_owned());
            thread.spawn(*run).unwrap()
        })
        .collect();
    let ran = schedules.iter().zip(started);
    let failed = ran.filter_map(|(schedule, thread)| thread.join().is_err().then_some(*schedule));
    failed.collect()
}

/// A thread that measures how late it wakes up.
struct StallDetector {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl StallDetector {
    fn start() -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut worst = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let begun = Instant::now();
                thread::sleep(HEARTBEAT);
                worst = worst.max(begun.elapsed().saturating_sub(HEARTBEAT));
            }
            worst
        });
        Self { stop, thread }
    }

    /// The longest stall.
    fn end(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}
