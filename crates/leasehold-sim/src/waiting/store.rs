//! The store of a world: the real rule, whom it can tell, and the time in which it stands still.

use std::time::Duration;

use leasehold_core::mutex;
use leasehold_core::{ClientId, LeaseId, Notice, Op, Outcome, StoreTime, TokenCount, Ttl, queue};

use super::client::Letter;
use super::{Broken, Event, Request, World, Wrong, nanos};
use crate::judge::Seen;

/// When the store's clock starts, in microseconds.
const STORE_START: u64 = 1_700_000_000_000_000;

/// A store that is stopped.
#[derive(Debug, Default)]
pub(super) struct Stall {
    /// When it goes on, if it is stopped.
    pub(super) until: Option<u64>,
    /// What came in meanwhile.
    piled_up: Vec<Request>,
}

impl World {
    pub(super) fn store_time(&self) -> StoreTime {
        StoreTime::from_micros(STORE_START + self.time / 1_000)
    }

    /// How long the holder holds the lock unless it says more.
    pub(super) fn left(&self) -> Duration {
        let now = self.store_time();
        let holder = self.record.holder(now);
        holder.map_or(Duration::ZERO, |hold| now.until(hold.expires_at))
    }

    pub(super) fn request(&mut self, request: Request) -> Result<(), Wrong> {
        if self.stall.until.is_some() {
            self.stall.piled_up.push(request);
            return Ok(());
        }
        self.report.late += u64::from(request.late);
        let (outcome, now) = self.apply(&request.op, Some(request))?;
        // The answer goes where the request came from, if that is still there.
        if self.seats[request.seat].connection == request.connection {
            let answer = Letter::Answer {
                number: request.number,
                outcome,
                now,
            };
            self.send_down(request.seat, answer);
        }
        Ok(())
    }

    pub(super) fn stop_store(&mut self) {
        let ttl = self.ttl.as_duration();
        let span = self.part(ttl * 3 / 2);
        self.stall.until = Some(self.time + nanos(span));
        self.schedule(span, Event::GoOn);
        let rest = self.part(ttl * 10);
        self.schedule(span + rest, Event::Stop);
    }

    /// The store goes on with what came in meanwhile: in order on each connection, but one
    /// connection after the other.
    pub(super) fn go_on(&mut self) -> Result<(), Wrong> {
        if self.stall.until.take().is_none() {
            return Ok(());
        }
        let mut piled_up = std::mem::take(&mut self.stall.piled_up);
        let mut order: Vec<usize> = (0..self.seats.len()).collect();
        self.rng.shuffle(&mut order);
        piled_up.sort_by_key(|request| (request.late, order[request.seat]));
        for request in piled_up {
            self.report.piled_up += 1;
            self.request(request)?;
        }
        Ok(())
    }

    /// The store applies an operation and tells what it has to tell; its judge reads along.
    pub(super) fn apply(
        &mut self,
        op: &Op,
        request: Option<Request>,
    ) -> Result<(Outcome, StoreTime), Wrong> {
        let now = self.store_time();
        let before = self.record.holder(now).map(|hold| hold.lease);
        let open: Vec<(ClientId, bool)> = self
            .seats
            .iter()
            .map(|seat| (seat.id, seat.store_open))
            .collect();
        let reaches = |client| open.contains(&(client, true));
        let taken_for_alive = |notice: &Notice| match self.setup.broken {
            Some(Broken::NoSkip) => true,
            Some(Broken::NextMayBeDead) => matches!(notice, Notice::Next { .. }),
            _ => false,
        };
        let (mut told, mut passed_over) = (Vec::new(), 0);
        let outcome = mutex::apply(&mut self.record, op, now, |notice| {
            let reached = taken_for_alive(notice) || reaches(notice.lease().client);
            if reached {
                told.push(*notice);
            } else if matches!(notice, Notice::Granted(_)) {
                passed_over += 1;
            }
            reached
        });
        self.report.passed_over += passed_over;
        self.break_acceptance(&told, now);
        if !self.setup.broken.is_some_and(Broken::is_of_store) {
            let seen = Seen {
                op,
                outcome: &outcome,
                told: &told,
                now,
            };
            let judged = self.judge.see(seen, reaches);
            judged.map_err(|broken| Wrong::Broken(broken.promise))?;
        }
        self.note(|| format!("  {op:?} -> {outcome:?}, told {told:?}"));
        self.watch_grant(before, &outcome, &told, request);
        for notice in told {
            let to = notice.lease().client;
            if let Some(seat) = self.seats.iter().position(|seat| seat.id == to) {
                self.send_down(seat, Letter::Notice(notice));
            }
        }
        Ok((outcome, now))
    }

    /// What a broken store makes of the time of a grant that it told.
    fn break_acceptance(&mut self, told: &[Notice], now: StoreTime) {
        let ttl = match self.setup.broken {
            Some(Broken::NoAcceptance) => Ttl::MAX,
            Some(Broken::FullAcceptance) => self.ttl,
            _ => return,
        };
        let granted = told.iter().any(|told| matches!(told, Notice::Granted(_)));
        if let Some(hold) = self.record.hold.as_mut().filter(|_| granted) {
            hold.expires_at = now.after(ttl);
        }
    }

    /// Kills everybody, lets the last requests arrive, waits out every ttl and looks for what stays
    /// behind.
    pub(super) fn die_out(&mut self) -> Result<(), Wrong> {
        for seat in 0..self.seats.len() {
            self.kill(seat, None);
        }
        self.events
            .retain(|_, event| matches!(event, Event::Request(_)));
        self.watch = None;
        while self.step()? {}
        self.go_on()?;
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
        match self.apply(&probe, None)? {
            (Outcome::Granted { .. }, _) if self.record.queue.is_empty() => Ok(()),
            _ => Err(Wrong::Litter),
        }
    }
}
