//! What befalls the machines, and what must come of it.

use std::time::Duration;

use leasehold_core::{queue, time};

use super::asking::question;
use super::client::Client;
use super::{Event, Request, Story, World, Wrong, nanos};

impl World {
    pub(super) fn live(&mut self) -> Result<(), Wrong> {
        for seat in 0..self.seats.len() {
            self.start(seat);
        }
        match self.setup.story {
            Story::Chaos(events) => {
                let ttl = self.ttl.as_duration();
                for seat in 0..self.seats.len() {
                    self.schedule(ttl, Event::Fate { seat });
                }
                let stop = self.part(ttl * 10);
                self.schedule(stop, Event::Stop);
                for _ in 0..events {
                    self.step()?;
                }
                self.calm_down()?;
            }
            story => self.play(story)?,
        }
        self.die_out()
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

    /// One holds, others queue up in order; then the story, and the one that must be served.
    fn play(&mut self, story: Story) -> Result<(), Wrong> {
        let ttl = self.ttl.as_duration();
        let waiters = match story {
            Story::LateQuestion => 1,
            _ => self.seats.len() - 1,
        };
        for seat in 0..=waiters {
            self.line_up(seat, seat)?;
        }
        // Some way into somebody's ttl.
        let some = self.part(ttl);
        self.pass(some)?;
        let delay = self.longest_delay();
        // The release and the grant are under way, and perhaps a question and its answer.
        let soon = delay * 4 + Duration::from_millis(2);
        let (next, within) = match story {
            Story::Chaos(_) => return Ok(()),
            Story::DeadHeads => {
                self.kill(1, None);
                self.kill(2, None);
                self.with(0, Client::leave);
                (3, soon)
            }
            Story::DeafHead | Story::DeafHeadDeadSecond => {
                self.deafen_head()?;
                let dead = usize::from(story == Story::DeafHeadDeadSecond);
                (0..dead).for_each(|_| self.kill(2, None));
                self.with(0, Client::leave);
                let accepted = queue::acceptance(self.ttl).as_duration();
                (2 + dead, soon + sure(accepted))
            }
            Story::DeadHolder => {
                let left = self.left();
                self.kill(0, None);
                // Asked for at its renewal at the latest, which may have been just before.
                (1, soon + sure(sure(left.max(ttl))))
            }
            Story::LostGrant => {
                self.with(0, Client::leave);
                let waits = self.seats[1].client.as_ref().and_then(Client::waits_with);
                while self.record.hold.map(|hold| hold.lease) != waits {
                    self.step()?;
                }
                self.cut(1, Some(ttl));
                self.schedule(delay, Event::Reconnected { seat: 1 });
                (1, soon)
            }
            Story::LeavingHead => {
                self.with(1, Client::leave);
                self.pass(delay)?;
                self.with(0, Client::leave);
                // The release and the grant, and nothing else.
                (2, delay * 2 + Duration::from_millis(1))
            }
            Story::LateQuestion => {
                self.ask_late()?;
                self.line_up(2, 2)?;
                self.with(0, Client::leave);
                (2, soon)
            }
        };
        let until = self.time + nanos(within);
        while !self.relies(next) {
            // A grant waits for the answer to a question that is under way.
            let over = self.time > until && !self.asks(next);
            if over || !self.step()? {
                return Err(Wrong::NotServed);
            }
        }
        Ok(())
    }

    /// A client wants the lock for as long as it can have it, and has it or waits behind so many.
    fn line_up(&mut self, seat: usize, place: usize) -> Result<(), Wrong> {
        let forever = self.ttl.as_duration() * 100;
        self.with(seat, |client, now| client.want(now, forever, forever));
        while self.record.queue.waiters().len() < place || self.record.hold.is_none() {
            self.step()?;
        }
        Ok(())
    }

    fn asks(&self, seat: usize) -> bool {
        self.seats[seat].client.as_ref().is_some_and(Client::asks)
    }

    fn pass(&mut self, span: Duration) -> Result<(), Wrong> {
        let until = self.time + nanos(span);
        while self.time < until {
            self.step()?;
        }
        Ok(())
    }

    /// The head hears nothing any more, and nobody knows.
    fn deafen_head(&mut self) -> Result<(), Wrong> {
        // A question that is under way would be granted for the full ttl.
        while self.asks(1) {
            self.step()?;
        }
        if self.rng.bool() {
            self.seats[1].stopped = true;
        } else {
            self.cut(1, Some(self.ttl.as_duration() * 100));
        }
        Ok(())
    }

    /// The head gives up, and is in the queue again by a question that it asked before.
    fn ask_late(&mut self) -> Result<(), Wrong> {
        let waits = self.seats[1].client.as_ref().and_then(Client::waits_with);
        self.with(1, Client::leave);
        while !self.record.queue.is_empty() {
            self.step()?;
        }
        if let Some(lease) = waits {
            let request = Request {
                seat: 1,
                connection: 0,
                number: 0,
                op: question(lease, self.ttl),
                late: true,
            };
            self.schedule(Duration::ZERO, Event::Request(request));
        }
        while self.record.queue.is_empty() {
            self.step()?;
        }
        Ok(())
    }
}

/// A span by a clock that may be late, and its own allowance for that.
fn sure(span: Duration) -> Duration {
    span + time::drift(span) * 2
}
