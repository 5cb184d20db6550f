//! `wakeup`: the time from a release in one process to the acquisition in another, what a release
//! costs the server when many wait, and what it costs to wait. The same for leaders that resign.
//!
//! Two processes, whatever the number of waiters: each client in them has a connection of its own
//! and competes for itself, so to the server and to each other they are as many processes.

mod clients;
mod holds;
#[cfg(test)]
mod tests;

use std::time::Duration;

use leasehold::LeaseOptions;
use serde_json::{Value, json};

pub(super) use self::clients::serve;
use self::clients::{Order, Slice, SliceResult};
use crate::clock::Window;
use crate::format::{fine, per, ratio, round};
use crate::latencies::Latencies;
use crate::options::Settings;
use crate::report;
use crate::server_stats::ServerStats;
use crate::target::{Session, Target};
use crate::usage::Usage;
use crate::workers::Workers;
use crate::{Result, print_step};

/// The rounds of a run, each of some slices.
const ROUNDS: u32 = 4;
const SLICES: u32 = 3;

/// The time for an order to arrive.
const LEAD: Duration = Duration::from_millis(20);

/// The shortest time for which a lock is held. The other must be waiting when it is released.
const HOLD_MIN: Duration = Duration::from_micros(500);

/// The number of round trips until the other is waiting at least: that of the release, that of the
/// request, and as much again to be sure.
const HOLD_ROUND_TRIPS: u32 = 4;

/// The ttl while nothing is released: short, but no busy machine shall lose the lease.
const TTL: Duration = Duration::from_secs(4);

/// The number of them for which the requests of waiters are counted, after one to settle down.
const TTLS: u32 = 2;

/// The lock that is held while all others wait.
const HELD: &str = "held";

/// The number of processes of the clients.
const PROCESSES: u16 = 2;

/// The findings of a run.
#[derive(Debug, Default)]
struct Findings {
    /// The time for which the lock is held at least.
    hold: Duration,
    wakeups: Latencies,
    /// Until the value of the next leader was confirmed.
    proclaimed: Latencies,
    round_trips: Latencies,
    /// With one waiter, and with many.
    one: Work,
    many: Work,
    /// The requests of waiters while nothing was released. `None`: not counted.
    requests: Option<u64>,
}

/// The work for releases, each with the acquisition that follows it and the next request of the
/// client that released.
#[derive(Clone, Copy, Debug)]
struct Work {
    releases: u64,
    /// `None`: not counted in every slice.
    calls: Option<u64>,
    server: Option<ServerStats>,
}

/// A run in progress.
struct Run {
    workers: Workers,
    session: Session,
    slice: Duration,
    hold: Duration,
}

/// Lets the lock pass back and forth. Beside holding one lock this process only waits for the others.
pub(super) async fn measure(
    settings: &Settings,
    target: &Target,
    session: Session,
) -> Result<report::Findings> {
    let mut workers = Workers::start(target, settings, PROCESSES).await?;
    let round_trips: Vec<Duration> = workers.ask(&Order::RoundTrip).await?;
    let slowest = round_trips.into_iter().max().unwrap_or_default();
    let mut run = Run {
        workers,
        session,
        slice: settings.duration / (ROUNDS * SLICES),
        hold: HOLD_MIN.max(slowest * HOLD_ROUND_TRIPS),
    };
    print_step("measuring");
    let findings = run.findings(settings.waiters).await?;
    run.workers.finish().await?;
    Ok((figures(settings, &findings)?, None))
}

impl Run {
    async fn findings(&mut self, waiters: u16) -> Result<Findings> {
        let mut findings = Findings {
            hold: self.hold,
            ..Findings::default()
        };
        // The first only warms up.
        self.slice(2, true).await?;
        for _ in 0..ROUNDS {
            self.wake(&mut findings).await?;
            self.work(2, &mut findings.one).await?;
            if waiters > 1 {
                self.work(waiters + 1, &mut findings.many).await?;
            } else {
                self.wake(&mut findings).await?;
            }
        }
        findings.requests = self.wait(waiters).await?;
        self.workers.ask::<()>(&Order::Close).await?;
        Ok(findings)
    }

    /// Lets the lock pass back and forth between two clients, with baseline calls in between.
    async fn wake(&mut self, findings: &mut Findings) -> Result<()> {
        let results = self.slice(2, true).await?;
        let holds: Vec<_> = results.iter().map(|result| &result.holds[..]).collect();
        for wakeup in holds::wakeups(&holds, self.hold) {
            findings.wakeups.record_nanos(wakeup.acquired, 1);
            findings.proclaimed.record_nanos(wakeup.proclaimed, 1);
        }
        for result in &results {
            findings.round_trips.add(&result.round_trips);
        }
        Ok(())
    }

    /// Lets the lock pass between several clients, and adds the work of the server.
    async fn work(&mut self, clients: u16, work: &mut Work) -> Result<()> {
        let before = Usage::now(&self.session).await?;
        let results = self.slice(clients, false).await?;
        let used = Usage::now(&self.session).await?.since(&before);
        work.add(&results, used.server);
        Ok(())
    }

    async fn slice(&mut self, clients: u16, calls: bool) -> Result<Vec<SliceResult>> {
        let slice = Slice {
            clients,
            calls,
            hold: self.hold,
            window: Window::after(LEAD, self.slice),
        };
        self.workers.ask(&Order::Slice(slice)).await
    }

    /// Holds a lock and renews it, while all waiters wait for it. Returns their requests.
    async fn wait(&mut self, waiters: u16) -> Result<Option<u64>> {
        let guard = self
            .session
            .mutex(HELD)?
            .with(LeaseOptions::new().ttl(TTL))?
            .lock()
            .await?;
        let window = Window::after(TTL, TTL * TTLS);
        let order = Order::Wait(waiters, window);
        let session = &self.session;
        let observe = async {
            window.from.wait().await;
            let before = Usage::now(session).await?;
            window.until.wait().await;
            Ok::<_, crate::Failure>(Usage::now(session).await?.since(&before))
        };
        let (of_waiters, observed) = tokio::join!(self.workers.ask(&order), observe);
        let used = observed?;
        let requests = requests(&of_waiters?, used.server, used.calls);
        guard.release().await?;
        Ok(requests)
    }
}

impl Default for Work {
    fn default() -> Self {
        Self {
            releases: 0,
            calls: Some(0),
            server: Some(ServerStats::default()),
        }
    }
}

impl Work {
    /// Adds a slice. What was not counted once is not known at all.
    fn add(&mut self, results: &[SliceResult], server: Option<ServerStats>) {
        for result in results {
            self.releases += result.holds.len() as u64;
            self.calls = self.calls.zip(result.calls).map(|(sum, calls)| sum + calls);
        }
        self.server = self.server.zip(server).map(|(sum, stats)| sum + stats);
    }
}

/// The requests of waiters, by the server's own count if there is one, else by that of the clients.
fn requests(
    of_waiters: &[Option<u64>],
    server: Option<ServerStats>,
    of_holder: Option<u64>,
) -> Option<u64> {
    let at_server = server.zip(of_holder);
    let at_server = at_server.map(|(stats, holder)| stats.script_calls.saturating_sub(holder));
    at_server.or(of_waiters.iter().copied().sum())
}

fn figures(settings: &Settings, findings: &Findings) -> Result<Value> {
    let (wakeups, round_trips) = (&findings.wakeups, &findings.round_trips);
    if wakeups.count() == 0 || round_trips.count() == 0 {
        return Err("no client was woken in that time; measure for longer with --seconds".into());
    }
    let proclaimed = settings.election.then_some(&findings.proclaimed);
    let (one, many) = (&findings.one, &findings.many);
    let many = (settings.waiters > 1).then_some(many);
    let cpu = |work: &Work| work.server_us(|stats| stats.cpu);
    let cpu_ratio = many.and_then(cpu).zip(cpu(one));
    let ratio_at = |quantile| {
        ratio(
            wakeups.quantile_us(quantile),
            round_trips.quantile_us(quantile),
        )
    };
    let chances = u64::from(settings.waiters) * u64::from(TTLS);
    let requests = findings.requests;
    Ok(json!({
        "waiters": settings.waiters,
        "election": settings.election,
        "hold_us": round(findings.hold.as_secs_f64() * 1e6),
        "wakeup": wakeups.spread(),
        "proclaimed": proclaimed.and_then(Latencies::spread),
        "round_trip": round_trips.spread(),
        "ratio": {"p50": ratio_at(0.5), "p99": ratio_at(0.99)},
        "one_waiter": one.figures(1),
        "many_waiters": many.map(|work| work.figures(settings.waiters)),
        "server_cpu_ratio": cpu_ratio.map(|(many, one)| ratio(many, one)),
        "while_waiting": {
            "waiters": settings.waiters,
            "ttl_ms": TTL.as_secs_f64() * 1e3,
            "ttls": TTLS,
            "requests": requests,
            "requests_per_waiter_and_ttl":
                requests.map(|requests| round(per(requests, chances))),
        },
    }))
}

impl Work {
    /// A time of the server for each release, in microseconds.
    fn server_us(&self, time: fn(&ServerStats) -> Duration) -> Option<f64> {
        let stats = self.server.as_ref()?;
        Some(round(
            time(stats).as_secs_f64() * 1e6 / per(self.releases.max(1), 1),
        ))
    }

    fn figures(&self, waiters: u16) -> Value {
        json!({
            "waiters": waiters,
            "releases": self.releases,
            "commands_per_release": self.calls.map(|calls| fine(per(calls, self.releases))),
            "server_cpu_us_per_release": self.server_us(|stats| stats.cpu),
            "script_us_per_release": self.server_us(|stats| stats.script_time),
        })
    }
}
