//! A small world of waiters, and the same again for the same number.
//!
//! One store applies the real rule, clients wait for its grants with the manners of the real driver.
//! Between them are connections: what is told arrives in order or, when the connection breaks, not
//! at all; the store may see the break at once or much later, and may still run what was sent before
//! it. Processes and the store are stopped, processes are killed, waiters give up, and clocks run
//! apart. Judges read along.

mod asking;
mod calm;
mod client;
mod counts;
mod outcome;
mod seat;
mod setup;
mod store;
mod story;

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{Op, Record, Ttl};

use self::calm::Watch;
use self::client::{Client, Letter};
pub use self::counts::Counts;
pub use self::outcome::{Failure, Report, Wrong};
use self::seat::Seat;
pub use self::setup::{Broken, Setup, Story};
use self::store::Stall;
use crate::judge::Judge;
use crate::world::belief::BeliefJudge;

/// Runs the world of a seed.
///
/// # Errors
///
/// What went wrong in it, with the events that led there.
pub fn run(seed: u64, setup: &Setup) -> Result<Report, Box<Failure>> {
    let mut world = World::new(seed, setup, false);
    let Err(wrong) = world.live() else {
        return Ok(world.report());
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

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A request reaches the store.
    Request(Request),
    /// A letter reaches a machine.
    Letter {
        seat: usize,
        connection: u64,
        letter: Letter,
    },
    /// A timer rings.
    Wake { seat: usize, alarm: u64 },
    /// The store sees that a connection is gone.
    Noticed { seat: usize, connection: u64 },
    /// A client has a new connection.
    Reconnected { seat: usize },
    /// A stopped process goes on.
    Resume { seat: usize },
    /// A killed process is started again.
    Restart { seat: usize },
    /// Something befalls a machine, perhaps.
    Fate { seat: usize },
    /// A client wants the lock, if it does not already.
    Want { seat: usize },
    /// The store is stopped.
    Stop,
    /// The store goes on.
    GoOn,
}

/// A request, and the connection on which it travels.
#[derive(Clone, Copy, Debug)]
struct Request {
    seat: usize,
    connection: u64,
    number: u64,
    op: Op,
    /// The connection broke behind it, and it arrives all the same.
    late: bool,
}

struct World {
    setup: Setup,
    rng: Rng,
    ttl: Ttl,
    /// Nanoseconds since the start, by no clock of the world.
    time: u64,
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    record: Record,
    stall: Stall,
    judge: Judge,
    beliefs: BeliefJudge,
    seats: Vec<Seat>,
    /// Whether anything may befall anybody at this moment.
    faults: bool,
    watch: Option<Watch>,
    report: Report,
    trace: Option<Vec<String>>,
}

impl World {
    fn new(seed: u64, setup: &Setup, notes: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        // Long enough to tell the acceptance ttl from it.
        let ttl = Ttl::remainder(Duration::from_millis(rng.u64(6_000..=30_000)));
        let seats = (0..setup.clients).map(|_| Seat::new(&mut rng)).collect();
        Self {
            setup: *setup,
            rng,
            ttl,
            time: 0,
            events: BTreeMap::new(),
            scheduled: 0,
            record: Record::default(),
            stall: Stall::default(),
            judge: Judge::new(Duration::ZERO),
            beliefs: BeliefJudge::default(),
            seats,
            faults: matches!(setup.story, Story::Chaos(_)),
            watch: None,
            report: Report::default(),
            trace: notes.then(Vec::new),
        }
    }

    fn report(&self) -> Report {
        let alive = self.seats.iter().filter_map(|seat| seat.client.as_ref());
        let counts = alive.fold(self.report.counts, |sum, client| sum.plus(&client.counts));
        Report {
            begun: self.beliefs.begun,
            counts,
            ..self.report
        }
    }

    /// Lets the next event happen and asks the judges. `false`: there is none.
    fn step(&mut self) -> Result<bool, Wrong> {
        let Some(((time, _), event)) = self.events.pop_first() else {
            return Ok(false);
        };
        self.time = time;
        self.note(|| format!("{event:?}"));
        self.nobody_sleeps()?;
        self.happen(event)?;
        let beliefs = self.seats.iter().filter_map(|seat| seat.belief(time));
        self.beliefs.see(beliefs).map_err(Wrong::Deceived)?;
        self.watch_beliefs()?;
        Ok(true)
    }

    fn happen(&mut self, event: Event) -> Result<(), Wrong> {
        match event {
            Event::Request(request) => self.request(request)?,
            Event::Letter {
                seat,
                connection,
                letter,
            } => self.letter(seat, connection, letter),
            Event::Wake { seat, alarm } => {
                if self.seats[seat].alarm == alarm && !self.seats[seat].stopped {
                    self.with(seat, Client::wake);
                }
            }
            Event::Noticed { seat, connection } => self.noticed(seat, connection),
            Event::Reconnected { seat } => self.connect(seat),
            Event::Resume { seat } => self.resume(seat),
            Event::Restart { seat } => self.start(seat),
            Event::Fate { seat } => self.befall(seat),
            Event::Want { seat } => self.want(seat),
            Event::Stop => self.stop_store(),
            Event::GoOn => self.go_on()?,
        }
        Ok(())
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.schedule_at(self.time + nanos(after), event);
    }

    fn schedule_at(&mut self, time: u64, event: Event) {
        self.scheduled += 1;
        self.events
            .insert((time.max(self.time), self.scheduled), event);
    }

    /// A random part of a span.
    fn part(&mut self, span: Duration) -> Duration {
        span.mul_f64(self.rng.f64())
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let line = format!("{:>14?} {}", Duration::from_nanos(self.time), what());
            trace.push(line);
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
