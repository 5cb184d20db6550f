//! A small world of waiters, and the same again for the same number.
//!
//! One store applies the real rule, clients wait for its grants with the manners of the real driver.
//! Between them are connections: what is told arrives in order or, when the connection breaks, not
//! at all; the store may see the break at once or much later. Processes are stopped and killed,
//! waiters give up, and clocks run apart.

mod client;
mod setup;
mod story;

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::mutex::{self, Record};
use leasehold_core::{ClientId, LeaseId, Notice, Op, Outcome, StoreTime, TokenCount, Ttl, queue};

use self::client::Client;
pub use self::client::Counts;
use self::client::Letter;
pub use self::setup::{Broken, Setup, Story};
use crate::world::belief::{BeliefJudge, Deception};
use crate::world::clock::DriftingClock;

/// When the store's clock starts, in microseconds.
const STORE_START: u64 = 1_700_000_000_000_000;

/// What went wrong in a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A client relied on what was not so.
    Deceived(Deception),
    /// A waiter that could be told was granted the lock after one that came later.
    Overtaken,
    /// A waiter was not served in the time that the protocol promises.
    NotServed,
    /// Something stayed behind after everybody had died and every ttl had passed.
    Litter,
}

/// What happened in a world that went well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How often a client began to rely on the lock.
    pub begun: u64,
    /// How many heads the store passed over.
    pub passed_over: u64,
    /// What the clients did.
    pub counts: Counts,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A request reaches the store.
    Request {
        seat: usize,
        connection: u64,
        number: u64,
        op: Op,
    },
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
}

/// The place of a client: its machine, the process on it, and its connection.
struct Seat {
    clock: DriftingClock,
    id: ClientId,
    client: Option<Client>,
    /// Which connection there is. Letters of earlier ones are lost.
    connection: u64,
    /// Whether the client's side stands, and whether the store's side seems to.
    connected: bool,
    store_open: bool,
    stopped: bool,
    mailbox: Vec<(u64, Letter)>,
    alarm: u64,
    /// When the last letter arrives in each direction: they stay in order.
    arrives: [u64; 2],
}

/// Runs the world of a seed.
///
/// # Errors
///
/// What went wrong in it, and what had happened before.
pub fn run(seed: u64, setup: &Setup) -> Result<Report, (Wrong, Vec<String>)> {
    let mut world = World::new(seed, setup);
    match world.live() {
        Ok(()) => Ok(world.report()),
        Err(wrong) => Err((wrong, world.trace)),
    }
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
    beliefs: BeliefJudge,
    seats: Vec<Seat>,
    passed_over: u64,
    /// The counts of processes that are gone.
    gone: Counts,
    trace: Vec<String>,
}

impl World {
    fn new(seed: u64, setup: &Setup) -> Self {
        let mut rng = Rng::with_seed(seed);
        // Long enough to tell the acceptance ttl from it.
        let ttl = Ttl::remainder(Duration::from_millis(rng.u64(6_000..=30_000)));
        let seats = (0..setup.clients).map(|_| Seat {
            clock: DriftingClock::new(rng.u64(0..1 << 50), rng.i64(-9_000..=9_000)),
            id: ClientId::from_random(rng.u128(..).to_be_bytes()),
            client: None,
            connection: 0,
            connected: false,
            store_open: false,
            stopped: false,
            mailbox: Vec::new(),
            alarm: 0,
            arrives: [0; 2],
        });
        let seats = seats.collect();
        Self {
            setup: *setup,
            rng,
            ttl,
            time: 0,
            events: BTreeMap::new(),
            scheduled: 0,
            record: Record::default(),
            beliefs: BeliefJudge::default(),
            seats,
            passed_over: 0,
            gone: Counts::default(),
            trace: Vec::new(),
        }
    }

    fn report(&self) -> Report {
        let alive = self.seats.iter().filter_map(|seat| seat.client.as_ref());
        let counts = alive.fold(self.gone, |sum, client| sum.plus(&client.counts));
        Report {
            begun: self.beliefs.begun,
            passed_over: self.passed_over,
            counts,
        }
    }

    /// Lets the next event happen and asks the judge. `false`: there is none.
    fn step(&mut self) -> Result<bool, Wrong> {
        let Some(((time, _), event)) = self.events.pop_first() else {
            return Ok(false);
        };
        self.time = time;
        self.note(format!("{event:?}"));
        match event {
            Event::Request {
                seat,
                connection,
                number,
                op,
            } => self.request(seat, connection, number, &op)?,
            Event::Letter {
                seat,
                connection,
                letter,
            } => self.letter(seat, connection, letter),
            Event::Wake { seat, alarm } => {
                if self.seats[seat].alarm == alarm && !self.seats[seat].stopped {
                    self.with(seat, |client, now| client.wake(now));
                }
            }
            Event::Noticed { seat, connection } => {
                if self.seats[seat].connection == connection && !self.seats[seat].connected {
                    self.seats[seat].store_open = false;
                }
            }
            Event::Reconnected { seat } => self.connect(seat),
            Event::Resume { seat } => self.resume(seat),
            Event::Restart { seat } => self.start(seat),
            Event::Fate { seat } => self.befall(seat),
            Event::Want { seat } => self.want(seat),
        }
        self.judge()?;
        Ok(true)
    }

    fn judge(&mut self) -> Result<(), Wrong> {
        let time = self.time;
        let beliefs = self.seats.iter().filter_map(|seat| {
            let client = seat.client.as_ref()?;
            client.belief(seat.clock.read(time))
        });
        self.beliefs.see(beliefs).map_err(Wrong::Deceived)
    }

    fn request(&mut self, seat: usize, connection: u64, number: u64, op: &Op) -> Result<(), Wrong> {
        // A connection that broke under way has swallowed it; one that is only half gone may still
        // deliver what was sent before.
        if self.seats[seat].connection != connection {
            return Ok(());
        }
        let (outcome, now) = self.apply(op)?;
        let answer = Letter::Answer {
            number,
            outcome,
            now,
        };
        self.send_down(seat, answer);
        Ok(())
    }

    /// The store applies an operation and tells what it has to tell.
    fn apply(&mut self, op: &Op) -> Result<(Outcome, StoreTime), Wrong> {
        let now = StoreTime::from_micros(STORE_START + self.time / 1_000);
        // Whoever releases leaves by its own will.
        let leaves = match op {
            Op::Release { lease, .. } | Op::Renew { lease, .. } => Some(*lease),
            _ => None,
        };
        let waiting = self.record.queue.waiters().map(|waiter| waiter.lease);
        let before: Vec<_> = waiting.filter(|lease| Some(*lease) != leaves).collect();
        let open: Vec<(ClientId, bool)> = self
            .seats
            .iter()
            .map(|seat| (seat.id, seat.store_open))
            .collect();
        let is_open = |lease: LeaseId| open.contains(&(lease.client, true));
        let blind = self.setup.broken == Some(Broken::NoSkip);
        let mut told = Vec::new();
        let mut passed_over = 0;
        let outcome = mutex::apply(&mut self.record, op, now, |notice| {
            let reached = blind || is_open(notice.lease());
            passed_over += u64::from(!reached);
            if reached {
                told.push(*notice);
            }
            reached
        });
        self.passed_over += passed_over;
        for notice in &told {
            if let Notice::Granted(grant) = notice {
                let overtaken = before.iter().take_while(|lease| **lease != grant.lease);
                if overtaken.copied().any(is_open) {
                    return Err(Wrong::Overtaken);
                }
                if self.setup.broken == Some(Broken::NoAcceptance)
                    && let Some(hold) = &mut self.record.hold
                {
                    hold.expires_at = now.after(Ttl::MAX);
                }
            }
            let seat = self
                .seats
                .iter()
                .position(|seat| seat.id == notice.lease().client);
            if let Some(seat) = seat {
                self.send_down(seat, Letter::Notice(*notice));
            }
        }
        self.note(format!("  {op:?} -> {outcome:?}, told {told:?}"));
        Ok((outcome, now))
    }

    fn letter(&mut self, seat: usize, connection: u64, letter: Letter) {
        let machine = &mut self.seats[seat];
        if machine.connection != connection || !machine.connected {
            return;
        }
        if machine.stopped {
            machine.mailbox.push((connection, letter));
        } else {
            self.with(seat, |client, now| client.read(letter, now));
        }
    }

    /// Lets a client do something, carries its letters to the network and sets its timer.
    fn with(&mut self, seat: usize, act: impl FnOnce(&mut Client, leasehold_core::Instant)) {
        let machine = &mut self.seats[seat];
        let now = machine.clock.read(self.time);
        let Some(client) = &mut machine.client else {
            return;
        };
        act(client, now);
        let requests = std::mem::take(&mut client.outbox);
        machine.alarm += 1;
        if let Some(wake) = client.next_wake(now) {
            let alarm = machine.alarm;
            let late = self.rng.u64(0..1_000_000);
            let rings = machine.clock.world_time(wake).max(self.time) + late;
            self.schedule_at(rings, Event::Wake { seat, alarm });
        }
        for (number, op) in requests {
            if !self.seats[seat].connected {
                continue;
            }
            let connection = self.seats[seat].connection;
            let at = self.arrival(seat, 0);
            self.schedule_at(
                at,
                Event::Request {
                    seat,
                    connection,
                    number,
                    op,
                },
            );
        }
    }

    fn send_down(&mut self, seat: usize, letter: Letter) {
        let connection = self.seats[seat].connection;
        let at = self.arrival(seat, 1);
        self.schedule_at(
            at,
            Event::Letter {
                seat,
                connection,
                letter,
            },
        );
    }

    /// When a letter arrives that is sent now: after all that were sent before.
    fn arrival(&mut self, seat: usize, direction: usize) -> u64 {
        let delay = self.rng.u64(0..nanos(self.longest_delay()));
        let arrives = &mut self.seats[seat].arrives[direction];
        *arrives = (self.time + delay).max(*arrives + 1);
        *arrives
    }

    /// No letter is longer under way, unless it is lost.
    fn longest_delay(&self) -> Duration {
        self.ttl.as_duration() / 200
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.schedule_at(self.time + nanos(after), event);
    }

    fn schedule_at(&mut self, time: u64, event: Event) {
        self.scheduled += 1;
        self.events
            .insert((time.max(self.time), self.scheduled), event);
    }

    fn note(&mut self, line: String) {
        const LINES: usize = 120;
        if self.trace.len() >= 2 * LINES {
            self.trace.drain(..LINES);
        }
        let line = format!("{:>14?} {line}", Duration::from_nanos(self.time));
        self.trace.push(line);
    }

    /// Kills everybody, waits out every ttl and looks for what stays behind.
    fn die_out(&mut self) -> Result<(), Wrong> {
        for seat in &mut self.seats {
            seat.client = None;
            seat.store_open = false;
            seat.connection += 1;
        }
        self.events.clear();
        self.time += nanos(queue::retention(self.ttl));
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
            (Outcome::Granted { .. }, _) if self.record.queue.is_empty() => Ok(()),
            _ => Err(Wrong::Litter),
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
