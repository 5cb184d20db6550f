//! The clients of one of the two processes.

use std::time::Duration;

use leasehold::LeaseOptions;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::holds::Hold;
use super::{HELD, PROCESSES, TTL};
use crate::baseline::BaselineLock;
use crate::clock::{Moment, Window};
use crate::latencies::Latencies;
use crate::scenario::candidate::Candidate;
use crate::scenario::part_of;
use crate::sleep::SleepTimer;
use crate::target::Session;
use crate::worker::{Orders, reply};
use crate::workers::Job;
use crate::{Result, failed};

/// The lock that passes back and forth.
const PING_PONG_LOCK: &str = "ping-pong";

/// The number of baseline calls that show how long a round trip is: connections are warm by then.
const TRIALS: u64 = 40;

/// An order of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Measure a round trip.
    RoundTrip,
    /// Pass the lock around.
    Slice(Slice),
    /// So many clients wait for the lock that the run holds, until the window closes.
    Wait(u16, Window),
    /// Release what is held.
    Close,
}

/// Some time of acquisitions and releases.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Slice {
    /// The number of clients that take part, in both processes.
    pub(super) clients: u16,
    /// Whether each holder also makes a baseline call.
    pub(super) calls: bool,
    /// The time for which the lock is held; twice that with a baseline call.
    pub(super) hold: Duration,
    pub(super) window: Window,
}

/// The result of a slice in one process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct SliceResult {
    pub(super) holds: Vec<Hold>,
    pub(super) round_trips: Latencies,
    /// `None`: the store has no calls to count.
    pub(super) calls: Option<u64>,
}

/// A client that takes part.
struct Client {
    session: Session,
    candidate: Candidate,
    baseline: BaselineLock,
    timer: SleepTimer,
}

/// Takes part as a worker.
pub(crate) async fn serve(job: &Job, orders: &mut Orders) -> Result<()> {
    let first = job.target.open().await?;
    // One more than waiters, as one holds while all others wait.
    let count = part_of(job.number, job.settings.waiters + 1, PROCESSES);
    let mut process = Clients {
        number: job.number,
        clients: Vec::with_capacity(count.into()),
    };
    for number in 0..count {
        let name = format!("baseline/{}/{number}", job.number);
        let session = match number {
            0 => first.clone(),
            _ => job.target.open_beside(&first).await?,
        };
        process.clients.push(Client {
            candidate: Candidate::new(&session, &job.settings, PING_PONG_LOCK)?,
            baseline: session.baseline_lock(name)?,
            timer: SleepTimer::new().map_err(failed("no timer"))?,
            session,
        });
    }
    drop(first);
    reply(&())?;
    while let Some(order) = orders.next().await? {
        match order {
            Order::RoundTrip => reply(&process.round_trip().await?)?,
            Order::Slice(slice) => reply(&process.slice(slice).await?)?,
            Order::Wait(waiters, window) => reply(&process.wait(waiters, window).await?)?,
            Order::Close => reply(&process.close().await?)?,
        }
    }
    Ok(())
}

struct Clients {
    /// That of the process.
    number: u16,
    clients: Vec<Client>,
}

impl Clients {
    /// The median of a few baseline calls.
    async fn round_trip(&mut self) -> Result<Duration> {
        let mut times = Vec::new();
        for client in self.clients.iter_mut().take(1) {
            for _ in 0..TRIALS {
                times.push(client.baseline.half().await?);
            }
        }
        times.sort_unstable();
        Ok(times.get(times.len() / 2).copied().unwrap_or_default())
    }

    /// The number of clients of this process, of so many in both.
    fn part_of(&self, clients: u16) -> usize {
        let part = usize::from(part_of(self.number, clients, PROCESSES));
        part.min(self.clients.len())
    }

    fn calls(&self) -> Option<u64> {
        self.clients.first()?.session.calls()
    }

    fn calls_since(&self, before: Option<u64>) -> Option<u64> {
        Some(self.calls()? - before?)
    }

    async fn slice(&mut self, slice: Slice) -> Result<SliceResult> {
        let before = self.calls();
        let mut tasks = JoinSet::new();
        for client in self.clients.drain(..self.part_of(slice.clients)) {
            tasks.spawn(client.repeat(slice));
        }
        let mut all = SliceResult::default();
        while let Some(task) = tasks.join_next().await {
            let (client, result) = task.map_err(failed("a task of the bench"))??;
            self.clients.push(client);
            all.holds.extend_from_slice(&result.holds);
            all.round_trips.add(&result.round_trips);
        }
        all.calls = self.calls_since(before);
        Ok(all)
    }

    /// Waits for the lock that the run holds. Returns the calls within the window.
    async fn wait(&mut self, waiters: u16, window: Window) -> Result<Option<u64>> {
        let mut tasks = JoinSet::new();
        for client in &self.clients[..self.part_of(waiters)] {
            let mutex = client
                .session
                .mutex(HELD)?
                .with(LeaseOptions::new().ttl(TTL))?;
            tasks.spawn(async move { mutex.lock().await.map(drop) });
        }
        window.from.wait().await;
        let before = self.calls();
        tokio::select! {
            () = window.until.wait() => {}
            Some(ended) = tasks.join_next() => {
                ended.map_err(failed("a task of the bench"))??;
                return Err("the holder's lease ended while others waited for it: the machine is too \
                            busy to measure this".into());
            }
        }
        let calls = self.calls_since(before);
        tasks.shutdown().await;
        Ok(calls)
    }

    async fn close(&mut self) -> Result<()> {
        for mut client in self.clients.drain(..) {
            client.baseline.close().await?;
        }
        Ok(())
    }
}

impl Client {
    /// Acquires and releases until the window closes.
    async fn repeat(mut self, slice: Slice) -> Result<(Self, SliceResult)> {
        let mut result = SliceResult::default();
        slice.window.from.wait().await;
        loop {
            let requested = Moment::now();
            if requested >= slice.window.until {
                return Ok((self, result));
            }
            let held = self.candidate.acquire().await?;
            let acquired = Moment::now();
            held.proclaimed().await?;
            let proclaimed = Moment::now();
            self.timer.sleep(slice.hold).await?;
            if slice.calls {
                result.round_trips.record(self.baseline.half().await?);
                self.timer.sleep(slice.hold).await?;
            }
            let released = Moment::now();
            held.release().await?;
            result.holds.push(Hold {
                requested,
                acquired,
                proclaimed,
                released,
            });
        }
    }
}
