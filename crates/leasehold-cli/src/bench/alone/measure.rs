//! Locks and releases over and over, ours and bare calls in turn.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use leasehold::store::yardstick::{Lane, Yardstick};

use crate::bench::figures::Tally;
use crate::bench::progress;
use crate::bench::times::Times;
use crate::exit::Failure;

/// How many slices a run has. The first of each side only warms up.
///
/// Many, so that both sides see the same machine; not too many, as each begins and ends with tasks
/// that do not all run.
const SLICES: u32 = 20;

/// After so many pairs a task lets the others run: a store in memory never makes it wait.
const PAIRS_IN_A_ROW: u64 = 128;

/// One task's work.
pub(super) enum Worker {
    /// A lock of this library.
    Ours(leasehold::Mutex),
    /// The store's own calls.
    Bare(Lane),
}

impl Worker {
    /// Locks and releases once.
    async fn pair(&mut self) -> leasehold::Result<()> {
        match self {
            Self::Ours(mutex) => mutex.lock().await?.release().await,
            Self::Bare(lane) => lane.pair().await,
        }
    }
}

/// Measures both sides in turn, for `span` in all: ours, bare, bare, ours and so on.
pub(super) async fn alternate(
    ours: Vec<Worker>,
    bare: Vec<Worker>,
    span: Duration,
    yardstick: &Yardstick,
) -> Result<[Tally; 2], Failure> {
    let bar = progress();
    let mut sides = [(ours, Tally::new()?), (bare, Tally::new()?)];
    for slice in 0..SLICES {
        let [ours, bare] = &mut sides;
        let (workers, tally) = match slice % 4 {
            0 | 3 => ours,
            _ => bare,
        };
        if slice < 2 {
            let mut warm_up = Tally::new()?;
            run_slice(workers, &mut warm_up, span / SLICES, yardstick).await?;
        } else {
            run_slice(workers, tally, span / SLICES, yardstick).await?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(sides.map(|(_, tally)| tally))
}

/// Lets all workers run for `span`.
async fn run_slice(
    workers: &mut Vec<Worker>,
    tally: &mut Tally,
    span: Duration,
    yardstick: &Yardstick,
) -> Result<(), Failure> {
    let calls = yardstick.calls();
    let start = Instant::now();
    let end = start + span;
    let tasks: Vec<_> = workers
        .drain(..)
        .map(|worker| tokio::spawn(repeat(worker, end, Arc::clone(&tally.times))))
        .collect();
    for task in tasks {
        let done = task.await;
        let done = done.map_err(|error| Failure::own("a task of the bench failed", error))?;
        let (worker, pairs) = done?;
        workers.push(worker);
        tally.pairs += pairs;
    }
    tally.busy += start.elapsed();
    if let (Some(before), Some(after)) = (calls, yardstick.calls()) {
        *tally.calls.get_or_insert(0) += after - before;
    }
    Ok(())
}

async fn repeat(
    mut worker: Worker,
    end: Instant,
    times: Arc<Mutex<Times>>,
) -> leasehold::Result<(Worker, u64)> {
    let mut pairs = 0;
    let mut start = Instant::now();
    while start < end {
        worker.pair().await?;
        pairs += 1;
        let done = Instant::now();
        times
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .record(done - start);
        start = done;
        if pairs % PAIRS_IN_A_ROW == 0 {
            tokio::task::yield_now().await;
            start = Instant::now();
        }
    }
    Ok((worker, pairs))
}

fn progress() -> ProgressBar {
    // Hidden by itself where stderr is no terminal. It draws between slices, never in one.
    let bar = progress::styled("measuring", ProgressBar::new(SLICES.into()));
    bar.tick();
    bar
}
