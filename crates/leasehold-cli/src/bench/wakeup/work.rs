//! What one of the two processes does.

use std::time::Duration;

use leasehold::store::yardstick::Lane;
use leasehold::{Guard, Mutex};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::Part;
use super::holds::Hold;
use crate::bench::clock::{Moment, Window};
use crate::bench::crew::member::{Orders, say};
use crate::bench::pause::Pause;
use crate::bench::place::{Desk, Place};
use crate::bench::times::Times;
use crate::exit::Failure;

/// The name that goes to and fro.
const TO_AND_FRO: &str = "to-and-fro";

/// The name that is held while all others wait.
const HELD: &str = "held";

/// How many bare calls show how long a round trip is: the longer half of a round trip's life is
/// over by then.
const TRIALS: u64 = 40;

/// What the run wants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// How long is a round trip?
    Prepare,
    Slice(Slice),
    /// The first process takes the lock, with this ttl.
    Hold(Duration),
    /// All others wait for it, with this ttl, until the window closes.
    Sleep(Duration, Window),
    /// It is given back.
    Release,
}

/// Locks and releases in turn.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Slice {
    /// How many take part, in both processes.
    pub(super) clients: u16,
    /// Whether each holder also makes a bare call.
    pub(super) calls: bool,
    /// How long the lock is held, twice that with a bare call.
    pub(super) pause: Duration,
    pub(super) window: Window,
}

/// What came of a slice in one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) holds: Vec<Hold>,
    pub(super) round_trips: Times,
    pub(super) pings: Times,
    /// `None`: the store has nothing to count.
    pub(super) calls: Option<u64>,
}

/// The calls of one process while nothing was released.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Questions {
    /// `None`: the store has nothing to count.
    pub(super) of_waiters: Option<u64>,
    pub(super) of_holder: Option<u64>,
}

/// A client that takes part.
struct Client {
    desk: Desk,
    mutex: Mutex,
    lane: Lane,
    pause: Pause,
    /// Calls and pings in turn.
    ping: bool,
}

/// The clients of a process.
struct Worker {
    part: Part,
    clients: Vec<Client>,
    held: Option<Guard>,
}

/// Takes part as a process of its own.
pub(in crate::bench) async fn serve(
    place: &Place,
    part: &Part,
    orders: &mut Orders,
) -> Result<(), Failure> {
    let mut worker = Worker {
        part: *part,
        clients: Vec::with_capacity(part.clients.into()),
        held: None,
    };
    for number in 0..part.clients {
        let bare = format!("bare/{}/{number}", part.number);
        worker.clients.push(Client::open(place, &bare).await?);
    }
    say(&())?;
    while let Some(order) = orders.next().await? {
        match order {
            Order::Prepare => say(&worker.round_trip().await?)?,
            Order::Slice(slice) => say(&worker.slice(slice).await?)?,
            Order::Hold(ttl) => say(&worker.hold(ttl).await?)?,
            Order::Sleep(ttl, window) => say(&worker.sleep(ttl, window).await?)?,
            Order::Release => say(&worker.release().await?)?,
        }
    }
    Ok(())
}

impl Client {
    async fn open(place: &Place, bare: &str) -> Result<Self, Failure> {
        let desk = place.open().await?;
        let no_timer = |error| Failure::own("there is no timer to be had", error);
        Ok(Self {
            mutex: desk.mutex(TO_AND_FRO)?,
            lane: desk.yardstick.lane(&desk.mutex(bare)?),
            pause: Pause::new().map_err(no_timer)?,
            ping: false,
            desk,
        })
    }

    /// Locks and releases until the window closes.
    async fn turns(mut self, slice: Slice) -> Result<(Self, Seen), Failure> {
        let mut seen = Seen::new()?;
        slice.window.from.come().await;
        let before = self.desk.yardstick.calls();
        loop {
            let asked = Moment::now();
            if asked >= slice.window.until {
                break;
            }
            let guard = self.mutex.lock().await?;
            let acquired = Moment::now();
            self.rest(slice.pause).await?;
            if slice.calls {
                self.call(&mut seen).await?;
                self.rest(slice.pause).await?;
            }
            let released = Moment::now();
            guard.release().await?;
            seen.holds.push(Hold {
                asked,
                acquired,
                released,
            });
        }
        seen.calls = before
            .zip(self.desk.yardstick.calls())
            .map(|(before, after)| after - before);
        Ok((self, seen))
    }

    async fn rest(&self, span: Duration) -> Result<(), Failure> {
        let slept = self.pause.sleep(span).await;
        slept.map_err(|error| Failure::own("the pause cannot be timed", error))
    }

    /// One bare call, or a ping.
    async fn call(&mut self, seen: &mut Seen) -> Result<(), Failure> {
        self.ping = !self.ping;
        if self.ping
            && let Some(time) = self.desk.yardstick.ping().await?
        {
            seen.pings.record(time);
        } else {
            seen.round_trips.record(self.lane.half().await?);
        }
        Ok(())
    }
}

impl Worker {
    /// The median of a few.
    async fn round_trip(&mut self) -> Result<Duration, Failure> {
        let mut times = Vec::new();
        for client in self.clients.iter_mut().take(1) {
            for _ in 0..TRIALS {
                times.push(client.lane.half().await?);
            }
        }
        times.sort_unstable();
        Ok(times.get(times.len() / 2).copied().unwrap_or_default())
    }

    async fn slice(&mut self, slice: Slice) -> Result<Seen, Failure> {
        let own = Part::share(slice.clients, self.part.number);
        let own = usize::from(own).min(self.clients.len());
        let mut tasks = JoinSet::new();
        for client in self.clients.drain(..own) {
            tasks.spawn(client.turns(slice));
        }
        let mut all = Seen::new()?;
        while let Some(task) = tasks.join_next().await {
            let task = task.map_err(|error| Failure::own("a task of the bench failed", error))?;
            let (client, seen) = task?;
            self.clients.push(client);
            all.add(&seen);
        }
        Ok(all)
    }

    async fn hold(&mut self, ttl: Duration) -> Result<(), Failure> {
        if self.part.number == 0
            && let Some(client) = self.clients.first()
        {
            let mutex = client.desk.mutex(HELD)?.ttl(ttl)?;
            self.held = Some(mutex.lock().await?);
        }
        Ok(())
    }

    async fn sleep(&mut self, ttl: Duration, window: Window) -> Result<Questions, Failure> {
        // The holder is the first of the first process.
        let holders = self.clients.len().min((self.part.number == 0).into());
        let (holders, waiters) = self.clients.split_at(holders);
        let mut tasks = JoinSet::new();
        for client in waiters {
            let mutex = client.desk.mutex(HELD)?.ttl(ttl)?;
            tasks.spawn(async move { mutex.lock().await.map(drop) });
        }
        let look = |clients: &[Client]| -> Option<u64> {
            let calls = clients.iter().map(|client| client.desk.yardstick.calls());
            calls.sum()
        };
        window.from.come().await;
        let (waiters_before, holders_before) = (look(waiters), look(holders));
        tokio::select! {
            () = window.until.come() => {}
            Some(ended) = tasks.join_next() => {
                ended.map_err(|error| Failure::own("a task of the bench failed", error))??;
                return Err(Failure::usage(
                    "the holder's lease ended while others waited for it: the machine is too busy to measure this",
                ));
            }
        }
        let since = |before: Option<u64>, after: Option<u64>| {
            before.zip(after).map(|(before, after)| after - before)
        };
        let questions = Questions {
            of_waiters: since(waiters_before, look(waiters)),
            of_holder: since(holders_before, look(holders)),
        };
        tasks.shutdown().await;
        Ok(questions)
    }

    async fn release(&mut self) -> Result<(), Failure> {
        if let Some(guard) = self.held.take() {
            guard.release().await?;
        }
        for client in self.clients.drain(..) {
            client.lane.close().await?;
        }
        Ok(())
    }
}

impl Seen {
    fn new() -> Result<Self, Failure> {
        Ok(Self {
            holds: Vec::new(),
            round_trips: Times::new()?,
            pings: Times::new()?,
            calls: Some(0),
        })
    }

    fn add(&mut self, other: &Self) {
        self.holds.extend_from_slice(&other.holds);
        self.round_trips.add(&other.round_trips);
        self.pings.add(&other.pings);
        self.calls = self.calls.zip(other.calls).map(|(one, other)| one + other);
    }
}
