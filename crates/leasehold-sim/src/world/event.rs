//! What happens in a world, one thing after another.

use std::time::Duration;

use leasehold_core::{Instant, Op, Outcome};

use super::client::{Client, part};
use super::outcome::Wrong;
use super::{World, nanos};

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A request reaches the store.
    Request {
        seat: usize,
        life: u32,
        number: u64,
        op: Op,
    },
    /// An answer reaches a machine.
    Answer {
        seat: usize,
        life: u32,
        letter: Letter,
    },
    /// A timer rings.
    Wake { seat: usize, alarm: u64 },
    /// Something befalls a machine, perhaps.
    Fate { seat: usize },
    /// A stopped process goes on.
    Resume { seat: usize },
    /// A killed process is started again.
    Restart { seat: usize },
    /// A machine is reached again.
    Heal { seat: usize },
}

impl Event {
    pub(super) const fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::Fate { .. } | Self::Resume { .. } | Self::Restart { .. } | Self::Heal { .. }
        )
    }
}

/// An answer to a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Letter {
    pub(super) number: u64,
    pub(super) outcome: Outcome,
}

impl World {
    pub(super) fn happen(&mut self, event: Event) -> Result<(), Wrong> {
        match event {
            Event::Request {
                seat,
                life,
                number,
                op,
            } => {
                let outcome = self.apply(&op)?;
                let letter = Letter { number, outcome };
                self.send(seat, Event::Answer { seat, life, letter });
            }
            Event::Answer { seat, life, letter } => {
                let machine = &mut self.seats[seat];
                if machine.life == life && machine.stopped {
                    machine.mailbox.push(letter);
                } else if machine.life == life {
                    self.read(seat, letter);
                }
            }
            Event::Wake { seat, alarm } => {
                if self.seats[seat].alarm == alarm && !self.seats[seat].stopped {
                    self.wake(seat);
                }
            }
            Event::Fate { seat } => self.befall(seat),
            Event::Resume { seat } => self.resume(seat),
            Event::Restart { seat } => self.start(seat),
            Event::Heal { seat } => self.seats[seat].cut_off = false,
        }
        Ok(())
    }

    /// A process begins its life.
    pub(super) fn start(&mut self, seat: usize) {
        let now = self.now(seat);
        let client = Client::new(&self.setup, self.ttl, now, &mut self.rng);
        self.seats[seat].client = Some(client);
        self.carry(seat);
    }

    /// A stopped process goes on: its timers ring and its letters are read, in either order.
    pub(super) fn resume(&mut self, seat: usize) {
        self.seats[seat].stopped = false;
        let letters = std::mem::take(&mut self.seats[seat].mailbox);
        let timers_first = self.rng.bool();
        if timers_first {
            self.wake(seat);
        }
        for letter in letters {
            self.read(seat, letter);
        }
        if !timers_first {
            self.wake(seat);
        }
    }

    fn wake(&mut self, seat: usize) {
        let now = self.now(seat);
        if let Some(client) = &mut self.seats[seat].client {
            client.wake(now, &mut self.rng);
            self.carry(seat);
        }
    }

    fn read(&mut self, seat: usize, letter: Letter) {
        let now = self.now(seat);
        if let Some(client) = &mut self.seats[seat].client {
            client.answer(letter.number, letter.outcome, now, &mut self.rng);
            self.carry(seat);
        }
    }

    /// Takes a client's letters to the network and sets its timer.
    fn carry(&mut self, seat: usize) {
        let now = self.now(seat);
        let machine = &mut self.seats[seat];
        let Some(client) = &mut machine.client else {
            return;
        };
        let requests = client.outbox();
        let wake = client.next_wake(now);
        machine.alarm += 1;
        let (life, alarm) = (machine.life, machine.alarm);
        // Timers ring late, sometimes very late.
        let late = part(&mut self.rng, self.ttl, 1_000);
        let rings = machine.clock.world_time(wake).max(self.time) + nanos(late);
        self.schedule_at(rings, Event::Wake { seat, alarm });
        for (number, op) in requests {
            let event = Event::Request {
                seat,
                life,
                number,
                op,
            };
            self.send(seat, event);
        }
    }

    fn send(&mut self, seat: usize, event: Event) {
        if self.seats[seat].cut_off {
            self.report.cut_off += 1;
            return;
        }
        let delays = self.network.copies(&mut self.rng);
        match delays.len() {
            0 => self.report.lost += 1,
            1 => {}
            _ => self.report.doubled += 1,
        }
        for delay in delays {
            self.schedule(delay, event);
        }
    }

    /// Stops, kills or cuts off a machine, or lets it be.
    fn befall(&mut self, seat: usize) {
        let long = part(&mut self.rng, self.ttl, 1) * 2;
        let machine = &mut self.seats[seat];
        match self.rng.u8(0..8) {
            0..=2 => {
                self.report.stops += 1;
                machine.stopped = true;
                self.schedule(long, Event::Resume { seat });
            }
            3 => {
                self.report.kills += 1;
                machine.client = None;
                machine.life += 1;
                self.schedule(long, Event::Restart { seat });
            }
            4 | 5 => {
                machine.cut_off = true;
                self.schedule(long, Event::Heal { seat });
            }
            _ => {}
        }
        let rest = part(&mut self.rng, self.ttl, 1) * 2;
        self.schedule(long + rest + Duration::from_millis(1), Event::Fate { seat });
    }

    fn now(&self, seat: usize) -> Instant {
        self.seats[seat].clock.read(self.time)
    }
}
