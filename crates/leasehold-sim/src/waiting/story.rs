//! What befalls the machines, and what must come of it.

use std::time::Duration;

use leasehold_core::{ClientId, queue, time};

use super::client::Client;
use super::{Event, Story, World, Wrong, nanos};

/// How many ttls after the faults everybody must have been served. A dead holder and a deaf head
/// cost less than one each, but several may follow each other.
const CALM_TTLS: u32 = 12;

impl World {
    pub(super) fn live(&mut self) -> Result<(), Wrong> {
        for seat in 0..self.seats.len() {
            self.start(seat);
        }
        match self.setup.story {
            Story::Chaos(events) => {
                for seat in 0..self.seats.len() {
                    self.schedule(self.ttl.as_duration(), Event::Fate { seat });
                }
                for _ in 0..events {
                    self.step()?;
                }
                self.calm_down()?;
            }
            story => self.play(story)?,
        }
        self.die_out()
    }

    /// A process begins its life, connected.
    pub(super) fn start(&mut self, seat: usize) {
        let id = ClientId::from_random(self.rng.u128(..).to_be_bytes());
        let client = Client::new(id, self.ttl, self.setup.broken);
        let machine = &mut self.seats[seat];
        machine.id = id;
        machine.client = Some(client);
        machine.stopped = false;
        machine.mailbox.clear();
        self.connect(seat);
        if matches!(self.setup.story, Story::Chaos(_)) {
            let soon = self.part(self.ttl.as_duration());
            self.schedule(soon, Event::Want { seat });
        }
    }

    pub(super) fn connect(&mut self, seat: usize) {
        let machine = &mut self.seats[seat];
        machine.connection += 1;
        machine.connected = true;
        machine.store_open = true;
        machine.arrives = [self.time; 2];
        if machine.stopped {
            // Its kernel has the connection; it learns of it when it goes on.
            return;
        }
        self.with(seat, |client, now| client.interrupted(now));
    }

    /// A connection breaks: all that is under way is lost. The store sees it at once, or later.
    pub(super) fn cut(&mut self, seat: usize, unseen_for: Option<Duration>) {
        let machine = &mut self.seats[seat];
        machine.connection += 1;
        machine.connected = false;
        let connection = machine.connection;
        match unseen_for {
            None => machine.store_open = false,
            Some(span) => self.schedule(span, Event::Noticed { seat, connection }),
        }
    }

    pub(super) fn kill(&mut self, seat: usize, unseen_for: Option<Duration>) {
        if let Some(client) = self.seats[seat].client.take() {
            self.gone = self.gone.plus(&client.counts);
        }
        self.cut(seat, unseen_for);
    }

    /// A stopped process goes on: its timers ring and its letters are read, in either order.
    pub(super) fn resume(&mut self, seat: usize) {
        if !self.seats[seat].stopped {
            return;
        }
        self.seats[seat].stopped = false;
        let letters = std::mem::take(&mut self.seats[seat].mailbox);
        let timers_first = self.rng.bool();
        if timers_first {
            self.with(seat, Client::wake);
        }
        let current = self.seats[seat].connection;
        let interrupted = letters.iter().any(|(connection, _)| *connection != current);
        for (connection, letter) in letters {
            if connection == current {
                self.with(seat, |client, now| client.read(letter, now));
            }
        }
        if interrupted {
            self.with(seat, |client, now| client.interrupted(now));
        }
        if !timers_first {
            self.with(seat, Client::wake);
        }
    }

    /// A client that wants nothing begins to; after some time it will again.
    pub(super) fn want(&mut self, seat: usize) {
        let ttl = self.ttl.as_duration();
        let patience = if self.rng.u8(0..4) == 0 {
            self.part(ttl)
        } else {
            ttl * 100
        };
        let hold_for = if self.rng.bool() {
            self.part(ttl / 20)
        } else {
            self.part(ttl)
        };
        if !self.seats[seat].stopped {
            self.with(seat, |client, now| {
                if client.is_idle() {
                    client.want(now, patience, hold_for);
                }
            });
        }
        let rest = self.part(ttl / 2);
        self.schedule(rest, Event::Want { seat });
    }

    /// Stops, kills or cuts off a machine, or lets it be.
    pub(super) fn befall(&mut self, seat: usize) {
        let ttl = self.ttl.as_duration();
        let long = self.part(ttl * 2);
        let unseen = self.rng.bool().then(|| self.part(ttl));
        match self.rng.u8(0..8) {
            0 | 1 if self.seats[seat].client.is_some() => {
                self.seats[seat].stopped = true;
                self.schedule(long, Event::Resume { seat });
            }
            2 => {
                self.kill(seat, unseen);
                self.schedule(long, Event::Restart { seat });
            }
            3..=5 if self.seats[seat].client.is_some() && self.seats[seat].connected => {
                self.cut(seat, unseen);
                let back = self.part(ttl / 3);
                self.schedule(back, Event::Reconnected { seat });
            }
            _ => {}
        }
        let rest = self.part(ttl * 2);
        self.schedule(long + rest + Duration::from_millis(1), Event::Fate { seat });
    }

    /// Stops all faults. Everybody who wants the lock then must get it.
    fn calm_down(&mut self) -> Result<(), Wrong> {
        self.events.retain(|_, event| {
            matches!(
                event,
                Event::Request { .. } | Event::Letter { .. } | Event::Wake { .. }
            )
        });
        for seat in 0..self.seats.len() {
            if self.seats[seat].client.is_none() {
                self.start(seat);
            } else {
                if !self.seats[seat].connected {
                    self.connect(seat);
                }
                self.resume(seat);
            }
        }
        self.events
            .retain(|_, event| !matches!(event, Event::Want { .. }));
        let mut waiting: Vec<_> = (0..self.seats.len()).collect();
        for seat in waiting.clone() {
            let (forever, short) = (self.ttl.as_duration() * 100, self.ttl.as_duration() / 50);
            self.with(seat, |client, now| {
                client.leave(now);
                client.want(now, forever, short);
            });
        }
        let until = self.time + nanos(self.ttl.as_duration() * CALM_TTLS);
        while !waiting.is_empty() {
            if !self.step()? || self.time > until {
                return Err(Wrong::NotServed);
            }
            waiting.retain(|seat| !self.relies(*seat));
        }
        Ok(())
    }

    /// One holds, all others queue up in order; then the story, and the one that must be served.
    fn play(&mut self, story: Story) -> Result<(), Wrong> {
        let ttl = self.ttl.as_duration();
        let forever = ttl * 100;
        for seat in 0..self.seats.len() {
            self.with(seat, |client, now| client.want(now, forever, forever));
            while self.record.queue.waiters().len() < seat || self.record.hold.is_none() {
                self.step()?;
            }
        }
        // Some way into somebody's ttl.
        let until = self.time + nanos(self.part(ttl));
        while self.time < until {
            self.step()?;
        }
        // The release and the grant are under way, and perhaps a question and its answer.
        let delay = self.longest_delay() * 4 + Duration::from_millis(2);
        let accepted = queue::acceptance(self.ttl).as_duration();
        let (next, within) = match story {
            Story::Chaos(_) => return Ok(()),
            Story::DeadHeads => {
                self.kill(1, None);
                self.kill(2, None);
                self.with(0, Client::leave);
                (3, delay)
            }
            Story::DeafHead => {
                // A question that is under way would be granted for the full ttl.
                while self.seats[1].client.as_ref().is_some_and(Client::asks) {
                    self.step()?;
                }
                if self.rng.bool() {
                    self.seats[1].stopped = true;
                } else {
                    self.cut(1, Some(forever));
                }
                self.with(0, Client::leave);
                (2, delay + sure(accepted))
            }
            Story::DeadHolder => {
                let left = self.record.hold.map_or(Duration::ZERO, |hold| {
                    let now = super::STORE_START + self.time / 1_000;
                    Duration::from_micros(hold.expires_at.as_micros().saturating_sub(now))
                });
                self.kill(0, None);
                // Asked for at its renewal at the latest, which may have been just before.
                (1, delay + sure(sure(left.max(self.ttl.as_duration()))))
            }
            Story::LostGrant => {
                self.with(0, Client::leave);
                let waits = self.seats[1].client.as_ref().and_then(Client::waits_with);
                while self.record.hold.map(|hold| hold.lease) != waits {
                    self.step()?;
                }
                self.cut(1, Some(ttl));
                self.schedule(self.longest_delay(), Event::Reconnected { seat: 1 });
                (1, delay)
            }
        };
        let until = self.time + nanos(within);
        while !self.relies(next) {
            if !self.step()? || self.time > until {
                return Err(Wrong::NotServed);
            }
        }
        Ok(())
    }

    fn relies(&self, seat: usize) -> bool {
        let Some(client) = &self.seats[seat].client else {
            return false;
        };
        client
            .belief(self.seats[seat].clock.read(self.time))
            .is_some()
    }

    /// A random part of a span.
    fn part(&mut self, span: Duration) -> Duration {
        span.mul_f64(self.rng.f64())
    }
}

/// A span by a clock that may be late, and its own allowance for that.
fn sure(span: Duration) -> Duration {
    span + time::drift(span) * 2
}
