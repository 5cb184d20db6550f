//! What was found about waking up. Field names and units stay as they are.

use leasehold::store::yardstick::Load;
use serde::Serialize;

use super::work::{Questions, Seen};
use super::{Findings, TTL, TTLS, Wakeup};
use crate::bench::Scenario;
use crate::bench::figures::{Spread, fine, per, ratio, round};
use crate::exit::Failure;

/// What a run found.
#[derive(Debug, Serialize)]
pub(in crate::bench) struct Report {
    pub(super) scenario: Scenario,
    /// Its URL without a password.
    pub(super) store: String,
    /// While the server's work is compared, and while nothing is released.
    pub(super) waiters: u16,
    pub(super) seconds: u64,
    /// How long the lock was held at least.
    pub(super) pause_us: f64,
    /// From the release in one process to the acquisition in the other.
    pub(super) wake_up: Spread,
    /// One bare script call; half a bare pair where the store has no scripts.
    pub(super) round_trip: Spread,
    /// The shortest round trip there can be. `None`: the store is no server.
    pub(super) ping: Option<Spread>,
    /// Wake-ups divided by round trips.
    pub(super) ratio: Ratio,
    pub(super) one_waiter: Work,
    /// `None`: there was one only.
    pub(super) many_waiters: Option<Work>,
    /// The server's time for each release with many waiters, divided by that with one.
    pub(super) server_cpu_ratio: Option<f64>,
    pub(super) asleep: Asleep,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Ratio {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// What a release costs, with the acquisition that follows it and the next question of who gave the
/// lock back.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Work {
    pub(super) waiters: u16,
    pub(super) releases: u64,
    /// Script calls at Redis, transactions in SQLite.
    pub(super) commands_per_release: Option<f64>,
    /// All that the server did. `None`: there is none, or it does not tell us.
    pub(super) server_cpu_us_per_release: Option<f64>,
    /// In scripts only.
    pub(super) script_us_per_release: Option<f64>,
}

/// What it costs to wait while nothing is released.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Asleep {
    pub(super) waiters: u16,
    pub(super) ttl_ms: u64,
    pub(super) ttls: u32,
    /// Script calls at Redis, transactions in SQLite; without those of the holder.
    pub(super) questions: Option<u64>,
    pub(super) questions_per_waiter_and_ttl: Option<f64>,
}

/// What was counted for [`Work`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    releases: u64,
    calls: Option<u64>,
    load: Option<Load>,
}

impl Report {
    pub(super) fn new(wakeup: &Wakeup, store: String, found: &Findings) -> Result<Self, Failure> {
        let wake_up = Spread::of(&found.wake_ups);
        let round_trip = Spread::of(&found.round_trips);
        if wake_up.count == 0 || round_trip.count == 0 {
            return Err(Failure::usage(
                "nobody was woken up in that time; measure for longer with --seconds",
            ));
        }
        let one = found.one.work(1);
        let many = (wakeup.waiters > 1).then(|| found.many.work(wakeup.waiters));
        let cpu = |work: Work| work.server_cpu_us_per_release;
        Ok(Self {
            scenario: Scenario::Wakeup,
            store,
            waiters: wakeup.waiters,
            seconds: wakeup.span.as_secs(),
            pause_us: round(found.pause.as_secs_f64() * 1e6),
            wake_up,
            round_trip,
            ping: Some(Spread::of(&found.pings)).filter(|pings| pings.count > 0),
            ratio: Ratio {
                p50: ratio(wake_up.p50_us, round_trip.p50_us),
                p99: ratio(wake_up.p99_us, round_trip.p99_us),
            },
            server_cpu_ratio: many
                .and_then(cpu)
                .zip(cpu(one))
                .map(|(many, one)| ratio(many, one)),
            one_waiter: one,
            many_waiters: many,
            asleep: found.asleep,
        })
    }
}

impl Default for Served {
    fn default() -> Self {
        Self {
            releases: 0,
            calls: Some(0),
            load: Some(Load::default()),
        }
    }
}

impl Served {
    /// Adds a slice. What was not counted once is not known at all.
    pub(super) fn add(&mut self, seen: &[Seen], load: Option<Load>) {
        for seen in seen {
            self.releases += seen.holds.len() as u64;
            self.calls = self.calls.zip(seen.calls).map(|(sum, calls)| sum + calls);
        }
        self.load = self.load.zip(load).map(|(sum, load)| sum + load);
    }

    fn work(&self, waiters: u16) -> Work {
        let micros = |span: std::time::Duration| {
            let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
            round(per(micros, self.releases))
        };
        Work {
            waiters,
            releases: self.releases,
            commands_per_release: self.calls.map(|calls| fine(per(calls, self.releases))),
            server_cpu_us_per_release: self.load.map(|load| micros(load.cpu)),
            script_us_per_release: self.load.map(|load| micros(load.script_time)),
        }
    }
}

impl Asleep {
    /// By the server's own count where it tells it, else by that of the clients.
    pub(super) fn of(waiters: u16, questions: &[Questions], load: Option<Load>) -> Self {
        let sum = |part: fn(&Questions) -> Option<u64>| questions.iter().map(part).sum();
        let of_holder: Option<u64> = sum(|questions| questions.of_holder);
        let of_waiters: Option<u64> = sum(|questions| questions.of_waiters);
        let at_server = load
            .zip(of_holder)
            .map(|(load, of_holder)| load.script_calls.saturating_sub(of_holder));
        let questions = at_server.or(of_waiters);
        let chances = u64::from(waiters) * u64::from(TTLS);
        Self {
            waiters,
            ttl_ms: u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX),
            ttls: TTLS,
            questions,
            questions_per_waiter_and_ttl: questions.map(|questions| round(per(questions, chances))),
        }
    }
}
