//! A machine: its clock, the process on it, and its connection to the store.

use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{ClientId, Instant};

use super::client::{Client, Letter};
use super::{Event, Request, World, nanos};
use crate::world::belief::Belief;
use crate::world::clock::DriftingClock;

/// The place of a client.
pub(super) struct Seat {
    clock: DriftingClock,
    pub(super) id: ClientId,
    pub(super) client: Option<Client>,
    /// Which connection there is. Letters of earlier ones are lost.
    pub(super) connection: u64,
    /// Whether the client's side stands, and whether the store's side seems to.
    pub(super) connected: bool,
    pub(super) store_open: bool,
    pub(super) stopped: bool,
    /// Letters that came while it was stopped, and whether there is a new connection since.
    mailbox: Vec<(u64, Letter)>,
    interrupted: bool,
    pub(super) alarm: u64,
    /// When the last letter arrives in each direction: they stay in order.
    arrives: [u64; 2],
}

/// Where a letter goes.
#[derive(Clone, Copy)]
enum To {
    Store = 0,
    Client = 1,
}

impl Seat {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self {
            clock: DriftingClock::new(rng.u64(0..1 << 50), rng.i64(-9_000..=9_000)),
            id: ClientId::from_random(rng.u128(..).to_be_bytes()),
            client: None,
            connection: 0,
            connected: false,
            store_open: false,
            stopped: false,
            mailbox: Vec::new(),
            interrupted: false,
            alarm: 0,
            arrives: [0; 2],
        }
    }

    /// What its client relies on at a time of the world.
    pub(super) fn belief(&self, time: u64) -> Option<Belief> {
        self.client.as_ref()?.belief(self.clock.read(time))
    }
}

impl World {
    /// A process begins its life, connected.
    pub(super) fn start(&mut self, seat: usize) {
        let id = ClientId::from_random(self.rng.u128(..).to_be_bytes());
        let client = Client::new(id, self.ttl, self.setup.broken);
        let machine = &mut self.seats[seat];
        machine.id = id;
        machine.client = Some(client);
        machine.stopped = false;
        machine.interrupted = false;
        machine.mailbox.clear();
        self.connect(seat);
        if self.faults {
            let soon = self.part(self.ttl.as_duration());
            self.schedule(soon, Event::Want { seat });
        }
    }

    pub(super) fn connect(&mut self, seat: usize) {
        if self.seats[seat].client.is_none() || self.seats[seat].connected {
            return;
        }
        if let Some(until) = self.stall.until {
            // A stopped store answers no greeting.
            let delay = self.part(self.longest_delay());
            return self.schedule_at(until + nanos(delay), Event::Reconnected { seat });
        }
        let machine = &mut self.seats[seat];
        machine.connection += 1;
        machine.connected = true;
        machine.store_open = true;
        machine.arrives = [self.time; 2];
        if machine.stopped {
            // It learns of it when it goes on.
            machine.interrupted = true;
        } else {
            self.with(seat, Client::interrupted);
        }
    }

    /// A connection breaks: what is under way to the client is lost, and what is under way to the
    /// store is lost or comes late. The store sees it at once, or later.
    pub(super) fn cut(&mut self, seat: usize, unseen_for: Option<Duration>) {
        let machine = &mut self.seats[seat];
        machine.connected = false;
        let connection = machine.connection;
        match unseen_for {
            None => machine.store_open = false,
            Some(span) => self.schedule(span, Event::Noticed { seat, connection }),
        }
        let under_way: Vec<_> = self
            .events
            .iter()
            .filter_map(|(at, event)| match event {
                Event::Request(request) if request.seat == seat && !request.late => {
                    Some((*at, *request))
                }
                _ => None,
            })
            .collect();
        let mut late = self.time;
        for (at, request) in under_way {
            self.events.remove(&at);
            // The bounds of the stories do not reckon with them.
            if !self.faults || self.rng.bool() {
                continue;
            }
            late += nanos(self.part(self.ttl.as_duration()));
            let late_one = Request {
                late: true,
                ..request
            };
            self.schedule_at(late, Event::Request(late_one));
        }
    }

    pub(super) fn noticed(&mut self, seat: usize, connection: u64) {
        if let Some(until) = self.stall.until {
            return self.schedule_at(until, Event::Noticed { seat, connection });
        }
        let machine = &mut self.seats[seat];
        if machine.connection == connection && !machine.connected {
            machine.store_open = false;
        }
    }

    pub(super) fn kill(&mut self, seat: usize, unseen_for: Option<Duration>) {
        if let Some(client) = self.seats[seat].client.take() {
            self.report.counts = self.report.counts.plus(&client.counts);
        }
        self.cut(seat, unseen_for);
    }

    /// A stopped process goes on: its timers ring and its letters are read, in either order.
    pub(super) fn resume(&mut self, seat: usize) {
        let machine = &mut self.seats[seat];
        if !std::mem::take(&mut machine.stopped) {
            return;
        }
        let letters = std::mem::take(&mut machine.mailbox);
        let interrupted = std::mem::take(&mut machine.interrupted);
        let timers_first = self.rng.bool();
        if timers_first {
            self.with(seat, Client::wake);
        }
        let current = self.seats[seat].connection;
        for (connection, letter) in letters {
            if connection == current {
                self.with(seat, |client, now| client.read(letter, now));
            }
        }
        if interrupted {
            self.with(seat, Client::interrupted);
        }
        if !timers_first {
            self.with(seat, Client::wake);
        }
    }

    pub(super) fn letter(&mut self, seat: usize, connection: u64, letter: Letter) {
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
    pub(super) fn with(&mut self, seat: usize, act: impl FnOnce(&mut Client, Instant)) {
        let machine = &mut self.seats[seat];
        let now = machine.clock.read(self.time);
        let Some(client) = &mut machine.client else {
            return;
        };
        act(client, now);
        let requests = client.outbox();
        let wake = client.next_wake(now);
        machine.alarm += 1;
        let (alarm, connection) = (machine.alarm, machine.connection);
        if let Some(wake) = wake {
            let late = self.rng.u64(0..1_000_000);
            let rings = machine.clock.world_time(wake).max(self.time) + late;
            self.schedule_at(rings, Event::Wake { seat, alarm });
        }
        if !self.seats[seat].connected {
            return;
        }
        for (number, op) in requests {
            let at = self.arrival(seat, To::Store);
            let request = Request {
                seat,
                connection,
                number,
                op,
                late: false,
            };
            self.schedule_at(at, Event::Request(request));
            self.may_break(seat);
        }
    }

    pub(super) fn send_down(&mut self, seat: usize, letter: Letter) {
        let connection = self.seats[seat].connection;
        let at = self.arrival(seat, To::Client);
        let event = Event::Letter {
            seat,
            connection,
            letter,
        };
        self.schedule_at(at, event);
        self.may_break(seat);
    }

    /// The connection breaks behind a letter, now and then.
    fn may_break(&mut self, seat: usize) {
        if self.faults && self.seats[seat].connected && self.rng.u8(0..50) == 0 {
            let ttl = self.ttl.as_duration();
            let unseen = self.rng.bool().then(|| self.part(ttl));
            self.cut(seat, unseen);
            let back = self.part(ttl / 10);
            self.schedule(back, Event::Reconnected { seat });
        }
    }

    /// When a letter arrives that is sent now: after all that were sent before.
    fn arrival(&mut self, seat: usize, to: To) -> u64 {
        let delay = self.rng.u64(0..nanos(self.longest_delay()));
        let arrives = &mut self.seats[seat].arrives[to as usize];
        *arrives = (self.time + delay).max(*arrives + 1);
        *arrives
    }

    /// No letter is longer under way, unless it is lost.
    pub(super) fn longest_delay(&self) -> Duration {
        self.ttl.as_duration() / 200
    }
}
