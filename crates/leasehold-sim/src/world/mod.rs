//! A small world in which everything goes wrong, and the same again for the same number.
//!
//! One store applies the real rule. Clients hold real leases. Between them is a network that
//! delays, loses and doubles messages; the clients are stopped, killed and cut off, and their
//! clocks run apart from the store's. Judges read along. Then the faults stop and somebody must get
//! the lock; then everybody dies and nothing may stay behind.

pub(crate) mod belief;
pub(crate) mod client;
pub(crate) mod clock;
mod event;
pub(crate) mod farewell;
mod holding;
mod network;
mod outcome;
mod setup;

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::mutex::{self, Record};
use leasehold_core::{ClientId, LeaseId, Op, Outcome, StoreTime, TokenCount, Ttl};

use self::belief::BeliefJudge;
pub use self::belief::Deception;
use self::client::Client;
use self::clock::DriftingClock;
use self::event::{Event, Letter};
use self::network::Network;
pub use self::outcome::{Failure, Report, Wrong};
pub use self::setup::{Broken, Leases, Setup};
use crate::judge::{Judge, Seen};

/// When the store's clock starts, in microseconds: some day in 2023.
const STORE_START: u64 = 1_700_000_000_000_000;

/// How many ttls may pass after the faults until somebody holds the lock. Requests sent before may
/// be under way for two, and each may keep the lock for two more.
const CALM_TTLS: u32 = 8;

/// How many events the calm may take: far more than it does, so that a loop ends.
const CALM_EVENTS_MAX: usize = 100_000;

/// Runs the world of a seed.
///
/// # Errors
///
/// What went wrong in it, with the events that led there.
pub fn run(seed: u64, setup: &Setup) -> Result<Report, Box<Failure>> {
    let mut world = World::new(seed, setup, false);
    let Err(wrong) = world.live() else {
        return Ok(world.report);
    };
    // The same once more, and this time somebody takes notes.
    let mut again = World::new(seed, setup, true);
    let repeated = again.live();
    assert_eq!(repeated, Err(wrong.clone()), "the world is not repeatable");
    Err(Box::new(Failure {
        seed,
        at: Duration::from_nanos(again.time),
        wrong,
        trace: again.trace.unwrap_or_default(),
    }))
}

struct World {
    setup: Setup,
    rng: Rng,
    ttl: Ttl,
    network: Network,
    /// Nanoseconds since the start, by no clock of the world.
    time: u64,
    queue: BTreeMap<(u64, u64), Event>,
    queued: u64,
    record: Record,
    judge: Judge,
    beliefs: BeliefJudge,
    seats: Vec<Seat>,
    longest: Ttl,
    report: Report,
    trace: Option<Vec<String>>,
}

/// The place of a client: its machine, and the process that runs on it now.
struct Seat {
    clock: DriftingClock,
    client: Option<Client>,
    /// Which process this is. Answers to the one before are for nobody.
    life: u32,
    /// Which wake-up counts; earlier ones were set for another time.
    alarm: u64,
    stopped: bool,
    cut_off: bool,
    mailbox: Vec<Letter>,
}

impl World {
    fn new(seed: u64, setup: &Setup, notes: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let ttl = Ttl::remainder(Duration::from_millis(rng.u64(300..=3_000)));
        let (slow, fast) = setup.drift_ppm;
        let seats = (0..setup.clients).map(|_| Seat {
            clock: DriftingClock::new(rng.u64(0..1 << 50), rng.i64(slow..=fast)),
            client: None,
            life: 0,
            alarm: 0,
            stopped: false,
            cut_off: false,
            mailbox: Vec::new(),
        });
        let seats = seats.collect();
        Self {
            setup: *setup,
            ttl,
            network: Network::random(&mut rng, ttl),
            rng,
            time: 0,
            queue: BTreeMap::new(),
            queued: 0,
            record: Record::default(),
            judge: Judge::new(Duration::ZERO),
            beliefs: BeliefJudge::default(),
            seats,
            longest: ttl,
            report: Report::default(),
            trace: notes.then(Vec::new),
        }
    }

    fn live(&mut self) -> Result<(), Wrong> {
        for seat in 0..self.seats.len() {
            self.start(seat);
            self.schedule(self.ttl.as_duration(), Event::Fate { seat });
        }
        for _ in 0..self.setup.events {
            self.step()?;
        }
        self.calm_down()?;
        self.die_out()
    }

    /// Stops all faults and waits for somebody to get the lock.
    fn calm_down(&mut self) -> Result<(), Wrong> {
        self.network = self.network.calm();
        self.queue.retain(|_, event| !event.is_fault());
        for seat in 0..self.seats.len() {
            self.seats[seat].cut_off = false;
            match (&self.seats[seat].client, self.seats[seat].stopped) {
                (None, _) => self.start(seat),
                (Some(_), true) => self.resume(seat),
                _ => {}
            }
        }
        let begun = self.beliefs.begun;
        let until = self.time + nanos(self.ttl.as_duration() * CALM_TTLS);
        for _ in 0..CALM_EVENTS_MAX {
            self.step()?;
            if self.beliefs.begun > begun {
                return Ok(());
            }
            if self.time > until {
                break;
            }
        }
        Err(Wrong::Stuck)
    }

    /// Kills everybody, lets the last messages arrive and looks for what stays behind.
    fn die_out(&mut self) -> Result<(), Wrong> {
        for seat in &mut self.seats {
            seat.client = None;
            seat.life += 1;
        }
        while !self.queue.is_empty() {
            self.step()?;
        }
        self.time += nanos(self.longest.as_duration());
        let probe = Op::Acquire {
            lease: LeaseId {
                client: ClientId::from_random([0; 16]),
                number: 0,
            },
            count: TokenCount::MIN,
            ttl: self.ttl,
            tokens: TokenCount::MIN,
            wait: false,
        };
        match self.apply(&probe)? {
            Outcome::Granted { .. } => Ok(()),
            _ => Err(Wrong::Litter),
        }
    }

    /// Lets the next event happen and asks the judges.
    fn step(&mut self) -> Result<(), Wrong> {
        let Some(((time, _), event)) = self.queue.pop_first() else {
            return Ok(());
        };
        assert!(time >= self.time, "time goes back");
        self.time = time;
        self.note(|| format!("{event:?}"));
        self.happen(event)?;
        let beliefs = self.seats.iter().filter_map(|seat| {
            let client = seat.client.as_ref()?;
            client.belief(seat.clock.read(time))
        });
        self.beliefs.see(beliefs).map_err(Wrong::Deceived)?;
        self.report.begun = self.beliefs.begun;
        Ok(())
    }

    /// The store applies an operation, and its judge reads along.
    fn apply(&mut self, op: &Op) -> Result<Outcome, Wrong> {
        let now = StoreTime::from_micros(STORE_START + self.time / 1_000);
        let outcome = mutex::apply(&mut self.record, op, now, |_| false);
        let seen = Seen {
            op,
            outcome: &outcome,
            told: &[],
            now,
        };
        self.judge
            .see(seen, |_| false)
            .map_err(|broken| Wrong::Broken(broken.promise))?;
        self.longest = self.longest.max(op.ttl().unwrap_or(self.longest));
        self.note(|| format!("  store: {outcome:?}"));
        self.report.count(&outcome);
        Ok(outcome)
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.schedule_at(self.time + nanos(after), event);
    }

    fn schedule_at(&mut self, time: u64, event: Event) {
        self.queued += 1;
        self.queue.insert((time.max(self.time), self.queued), event);
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let line = format!("{:>12?} {}", Duration::from_nanos(self.time), what());
            trace.push(line);
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
