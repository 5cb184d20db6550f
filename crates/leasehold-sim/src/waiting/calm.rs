//! The time after the faults: everybody is served, in order, and nobody sleeps who could be woken.

use std::time::Duration;

use leasehold_core::{LeaseId, Notice, Op, Outcome};

use super::client::Client;
use super::{Event, Request, World, Wrong, nanos};
use crate::world::belief::Belief;

/// How many ttls after the faults everybody must have been served. What is left of them may cost
/// several: a dead holder, a question that comes late.
const CALM_TTLS: u32 = 12;

/// Who reads along when nothing is in the way any more.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Since when nobody relies on a grant that was given since, to somebody who can take it.
    idle_since: Option<u64>,
    relied: Option<Belief>,
    /// Who waits, in the order in which the store put them into its queue.
    came: Vec<LeaseId>,
}

impl World {
    /// Stops all faults. Everybody who wants the lock then must get it.
    pub(super) fn calm_down(&mut self) -> Result<(), Wrong> {
        self.faults = false;
        self.go_on()?;
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
                self.connect(seat);
                self.resume(seat);
            }
        }
        self.watch = Some(Watch::default());
        let mut waiting: Vec<_> = (0..self.seats.len()).collect();
        let (forever, short) = (self.ttl.as_duration() * 100, self.ttl.as_duration() / 50);
        for seat in &waiting {
            self.with(*seat, |client, now| {
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

    pub(super) fn relies(&self, seat: usize) -> bool {
        self.seats[seat].belief(self.time).is_some()
    }

    /// The store has granted the lock, or put somebody into the queue.
    pub(super) fn watch_grant(
        &mut self,
        before: Option<LeaseId>,
        outcome: &Outcome,
        told: &[Notice],
        request: Option<Request>,
    ) {
        let holder = self.record.hold.map(|hold| hold.lease);
        let asker = request.and_then(|request| {
            let client = self.seats[request.seat].client.as_ref();
            let waits = client.and_then(Client::waits_with);
            waits.filter(|waits| matches!(request.op, Op::Acquire { lease, .. } if lease == *waits))
        });
        let Some(watch) = &mut self.watch else {
            return;
        };
        if holder != before {
            let is_told = |told: &Notice| matches!(told, Notice::Granted(_));
            // A question of a time before may still be granted to nobody. That lasts its ttl.
            let taken = told.iter().any(is_told) || holder == asker;
            watch.idle_since = (holder.is_some() && taken).then_some(self.time);
        }
        if let (
            Outcome::Refused {
                queue_position: Some(_),
                ..
            },
            Some(lease),
        ) = (outcome, asker)
            && !watch.came.contains(&lease)
        {
            watch.came.push(lease);
        }
    }

    /// A grant is relied on, or given back, as soon as its messages have arrived.
    pub(super) fn nobody_sleeps(&self) -> Result<(), Wrong> {
        // A question with its answer, before which the grant waits; the release and the next grant;
        // and timers ring a millisecond late.
        let longest = self.longest_delay() * 4 + Duration::from_millis(2);
        match &self.watch {
            Some(Watch {
                idle_since: Some(since),
                relied: None,
                ..
            }) if self.time > since + nanos(longest) => Err(Wrong::Asleep),
            _ => Ok(()),
        }
    }

    /// Somebody relies on the lock, or does not any more.
    pub(super) fn watch_beliefs(&mut self) -> Result<(), Wrong> {
        let time = self.time;
        let belief = self.seats.iter().find_map(|seat| seat.belief(time));
        let Some(watch) = &mut self.watch else {
            return Ok(());
        };
        if watch.relied == belief {
            return Ok(());
        }
        watch.relied = belief;
        watch.idle_since = watch.idle_since.map(|_| time);
        let Some(Belief { lease, .. }) = belief else {
            return Ok(());
        };
        match watch.came.iter().position(|other| *other == lease) {
            None => Ok(()),
            Some(0) => {
                watch.came.remove(0);
                Ok(())
            }
            Some(_) => Err(Wrong::Overtaken),
        }
    }
}
