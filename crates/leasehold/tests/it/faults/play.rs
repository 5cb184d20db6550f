//! Plays schedules side by side: each mostly waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A schedule and its name.
pub(super) type Schedule = (&'static str, fn());

/// How long the machine may leave a thread waiting for its turn. Leases of a few seconds bear that.
const STALL_MAX: Duration = Duration::from_millis(100);

/// How often a schedule is played that fails on a busy machine.
const ROUNDS_MAX: usize = 3;

/// How often the pulse beats.
const BEAT: Duration = Duration::from_millis(5);

/// Plays schedules at the same time, each in a thread of its name, and names those that failed.
///
/// What failed while the machine stood still proves nothing, and is played again.
pub(super) fn all_hold(schedules: &[Schedule]) {
    let mut left = schedules.to_vec();
    for round in 1.. {
        let pulse = Pulse::start();
        left = failed(&left);
        let stall = pulse.end();
        if left.is_empty() {
            return;
        }
        let names: Vec<_> = left.iter().map(|(name, _)| name).collect();
        let again = stall > STALL_MAX && round < ROUNDS_MAX;
        assert!(again, "failed: {names:?}; the longest stall was {stall:?}");
        println!("the machine stood still for {stall:?}, once more: {names:?}");
    }
}

/// Plays one schedule. It may block a thread, so the clients have another.
pub(super) fn play(schedule: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(schedule);
}

fn failed(schedules: &[Schedule]) -> Vec<Schedule> {
    let started: Vec<_> = schedules
        .iter()
        .map(|(name, play)| {
            let thread = thread::Builder::new().name((*name).to_owned());
            thread.spawn(*play).unwrap()
        })
        .collect();
    let played = schedules.iter().zip(started);
    let failed =
        played.filter_map(|(schedule, thread)| thread.join().is_err().then_some(*schedule));
    failed.collect()
}

/// A thread that notes how late it is woken at worst.
struct Pulse {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Pulse {
    fn start() -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut worst = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let begun = Instant::now();
                thread::sleep(BEAT);
                worst = worst.max(begun.elapsed().saturating_sub(BEAT));
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
