//! `wakeup`: how long it takes from a release in one process to the acquisition in another, what a
//! release costs the server when many wait, and what it costs to wait.
//!
//! Two processes, whatever the number of waiters: each client in them has a connection of its own
//! and competes for itself, so to the server and to each other they are as many processes.

mod holds;
mod picture;
mod report;
#[cfg(test)]
mod tests;
pub(super) mod work;

use std::time::Duration;

use leasehold::store::yardstick::Load;
use serde::{Deserialize, Serialize};

pub(super) use self::picture::draw;
pub(super) use self::report::Report;
use self::report::{Asleep, Served};
use self::work::{Order, Questions, Seen, Slice};
use super::clock::Window;
use super::crew::{self, Crew, Job};
use super::place::{Desk, Place};
use super::progress::Progress;
use super::runtime;
use super::times::Times;
use crate::exit::Failure;

/// How often the slices of a run are gone through.
const ROUNDS: u32 = 4;

/// How many slices there are in a round.
const SLICES: u32 = 3;

/// The time for an order to arrive.
const LEAD: Duration = Duration::from_millis(20);

/// The shortest time for which a lock is held. The other must be asleep when it is released.
const PAUSE_MIN: Duration = Duration::from_micros(500);

/// How many round trips it takes at least until the other is asleep: that of the release, that of
/// the question, and as much again to be sure.
const PAUSE_ROUND_TRIPS: u32 = 4;

/// The ttl while nothing is released: short, but no busy machine shall lose the lease.
const TTL: Duration = Duration::from_secs(2);

/// How many of them the waiters' questions are counted for, after one to settle down.
const TTLS: u32 = 2;

/// What there is to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wakeup {
    pub(super) waiters: u16,
    pub(super) span: Duration,
}

/// What one of the two processes does.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Part {
    /// 0 or 1.
    number: u16,
    clients: u16,
}

impl Part {
    /// How many of all clients are in process 0 or 1. If they are odd, the first has one more.
    fn share(clients: u16, number: u16) -> u16 {
        (clients + 1 - number) / 2
    }
}

/// What was found.
#[derive(Debug)]
struct Findings {
    pause: Duration,
    wake_ups: Times,
    round_trips: Times,
    pings: Times,
    one: Served,
    many: Served,
    asleep: Asleep,
}

/// A run under way.
struct Run {
    crew: Crew,
    desk: Desk,
    unit: Duration,
    pause: Duration,
}

impl Wakeup {
    /// Lets the lock go to and fro.
    pub(super) fn measure(&self, place: &Place) -> Result<Report, Failure> {
        // It only waits for the others.
        runtime(1)?.block_on(async {
            let desk = place.open().await?;
            let store = desk.store();
            let jobs = [0, 1].map(|number| Job {
                place: place.clone(),
                threads: 1,
                part: crew::Part::Wakeup(self.part(number)),
            });
            let mut crew = Crew::start(&jobs).await?;
            let round_trips: Vec<Duration> = crew.ask(&Order::Prepare).await?;
            let slowest = round_trips.into_iter().max().unwrap_or_default();
            let mut run = Run {
                crew,
                desk,
                unit: self.span / (ROUNDS * SLICES),
                pause: PAUSE_MIN.max(slowest * PAUSE_ROUND_TRIPS),
            };
            let progress = Progress::over(self.span + run.unit + TTL * (TTLS + 1));
            let findings = run.findings(self.waiters).await?;
            drop(progress);
            run.crew.dismiss().await?;
            Report::new(self, store, &findings)
        })
    }

    fn part(&self, number: u16) -> Part {
        // One holds while all others wait.
        let clients = Part::share(self.waiters + 1, number);
        Part { number, clients }
    }
}

impl Run {
    async fn findings(&mut self, waiters: u16) -> Result<Findings, Failure> {
        let mut found = Findings {
            pause: self.pause,
            wake_ups: Times::new()?,
            round_trips: Times::new()?,
            pings: Times::new()?,
            one: Served::default(),
            many: Served::default(),
            asleep: Asleep::default(),
        };
        // The first only warms up.
        self.slice(2, true).await?;
        for _ in 0..ROUNDS {
            self.wake(&mut found).await?;
            self.serve(2, &mut found.one).await?;
            if waiters > 1 {
                self.serve(waiters + 1, &mut found.many).await?;
            } else {
                self.wake(&mut found).await?;
            }
        }
        found.asleep = self.sleep(waiters).await?;
        Ok(found)
    }

    /// The lock goes to and fro between two, with bare calls in between.
    async fn wake(&mut self, found: &mut Findings) -> Result<(), Failure> {
        let seen = self.slice(2, true).await?;
        let holds: Vec<_> = seen.iter().map(|seen| &seen.holds[..]).collect();
        for nanos in holds::wake_ups(&holds, self.pause) {
            found.wake_ups.record_nanos(nanos, 1);
        }
        for seen in &seen {
            found.round_trips.add(&seen.round_trips);
            found.pings.add(&seen.pings);
        }
        Ok(())
    }

    /// Several want it at once, and the server's work is looked at.
    async fn serve(&mut self, clients: u16, served: &mut Served) -> Result<(), Failure> {
        let before = self.desk.yardstick.load().await?;
        let seen = self.slice(clients, false).await?;
        let after = self.desk.yardstick.load().await?;
        served.add(&seen, difference(before, after));
        Ok(())
    }

    async fn slice(&mut self, clients: u16, calls: bool) -> Result<Vec<Seen>, Failure> {
        let slice = Slice {
            clients,
            calls,
            pause: self.pause,
            window: Window::soon(LEAD, self.unit),
        };
        self.crew.ask(&Order::Slice(slice)).await
    }

    /// One holds and renews, all others wait.
    async fn sleep(&mut self, waiters: u16) -> Result<Asleep, Failure> {
        self.crew.ask::<()>(&Order::Hold(TTL)).await?;
        let window = Window::soon(TTL, TTL * TTLS);
        let order = Order::Sleep(TTL, window);
        let yardstick = &self.desk.yardstick;
        let (questions, load) = tokio::join!(self.crew.ask::<Questions>(&order), async {
            window.from.come().await;
            let before = yardstick.load().await?;
            window.until.come().await;
            Ok::<_, Failure>(difference(before, yardstick.load().await?))
        });
        let asleep = Asleep::of(waiters, &questions?, load?);
        self.crew.ask::<()>(&Order::Release).await?;
        Ok(asleep)
    }
}

fn difference(before: Option<Load>, after: Option<Load>) -> Option<Load> {
    let (before, after) = before.zip(after)?;
    Some(after.since(&before))
}
