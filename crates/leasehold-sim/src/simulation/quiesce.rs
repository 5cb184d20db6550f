//! The time after the faults: every waiter is served, and every observer has the newest value.

use std::time::Duration;

use super::network::LossRates;
use super::node::NodeEvent;
use super::scenario::with_drift;
use super::values::Value;
use super::{Event, Simulation, Violation, nanos};

/// After how many ttls every client has been served. The effects of the faults may take several: a dead
/// holder, a late request.
const SERVED_TTLS: u32 = 12;

/// After how many ttls the lock is granted again on a network that delayed requests by up to two ttls. Each
/// may keep the lock for two more.
const GRANTED_TTLS: u32 = 8;

/// How long a poll of a store without pushes takes at most, by a clock that is slow.
const POLL_MAX: Duration = Duration::from_millis(1_020);

impl Simulation {
    /// Ends all faults. Then the lock must be granted again: in the order of the queue, if there is one.
    pub(super) fn quiesce(&mut self) -> Result<(), Violation> {
        self.faults = false;
        self.loss = LossRates::default();
        self.resume_store()?;
        let has_queue = self.setup.has_queue();
        self.events.retain(|_, event| match event {
            Event::Request(_) | Event::Message(..) | Event::Timer { .. } => true,
            Event::Acquire { .. } => !has_queue,
            Event::Node(event) => !matches!(event, NodeEvent::Fault(_)),
            _ => false,
        });
        for machine in 0..self.machines.len() {
            if self.machines[machine].client.is_none() {
                self.start(machine);
            } else {
                self.reconnect(machine);
                self.resume(machine);
            }
        }
        match has_queue {
            _ if self.setup.elects => self.observe_all(),
            true => self.serve_all(),
            false => self.grant_again(),
        }
    }

    /// Lets every client acquire the lock once.
    fn serve_all(&mut self) -> Result<(), Violation> {
        let ttl = self.ttl.as_duration();
        let mut waiting: Vec<_> = (0..self.machines.len()).collect();
        for machine in &waiting {
            self.with(*machine, |client, cx| {
                client.leave(cx);
                client.acquire(ttl * 100, ttl / 50, cx);
            });
        }
        let until = self.time + nanos(ttl * SERVED_TTLS);
        while !waiting.is_empty() {
            if !self.step()? || self.time > until {
                return Err(Violation::NotServed);
            }
            waiting.retain(|machine| !self.is_holder(*machine));
        }
        Ok(())
    }

    /// Waits until any client acquires the lock.
    fn grant_again(&mut self) -> Result<(), Violation> {
        let before = self.holders.acquisitions();
        let until = self.time + nanos(self.ttl.as_duration() * GRANTED_TTLS);
        while self.holders.acquisitions() == before {
            if !self.step()? || self.time > until {
                return Err(Violation::NotServed);
            }
        }
        Ok(())
    }

    /// Lets one client lead after the faults. Its newest value reaches all observers, and so does its end.
    pub(super) fn observe_all(&mut self) -> Result<(), Violation> {
        let ttl = self.ttl.as_duration();
        self.events
            .retain(|_, event| !matches!(event, Event::Acquire { .. }));
        let mut machines = 0..self.machines.len();
        let leader = machines.find(|machine| self.is_holder(*machine));
        let leader = leader.unwrap_or_default();
        for machine in (0..self.machines.len()).filter(|machine| *machine != leader) {
            self.with(machine, |client, cx| client.leave(cx));
        }
        // The effects of the faults end, and the value changes.
        let mut led = 0;
        for _ in 0..SERVED_TTLS * 10 {
            self.with(leader, |client, cx| client.lead(cx));
            self.pass(ttl / 10)?;
            led = if self.is_holder(leader) { led + 1 } else { 0 };
            if led == 30 {
                break;
            }
        }
        let mut newest = None;
        self.with(leader, |client, cx| newest = client.keep_value(cx.now));
        let newest = newest.ok_or(Violation::NotServed)?;
        // A write that is in flight and another one, a push, and two readings.
        let soon = match self.setup.has_queue() {
            true => self.longest_delay() * 10 + Duration::from_millis(30),
            false => ttl / 50 * 10 + POLL_MAX,
        };
        self.await_report(Some(newest), soon)?;
        let left = self.time_left().max(ttl);
        self.kill(leader, None);
        self.await_report(None, soon + with_drift(with_drift(left)))
    }

    /// Waits until all observers report a value, or that there is no leader.
    fn await_report(&mut self, value: Option<Value>, within: Duration) -> Result<(), Violation> {
        let until = self.time + nanos(within);
        while !self.is_reported(value) {
            if self.time > until || !self.step()? {
                return Err(Violation::NotObserved);
            }
        }
        Ok(())
    }

    fn is_reported(&self, value: Option<Value>) -> bool {
        let mut clients = self.machines.iter().filter_map(|it| it.client.as_ref());
        clients.all(|client| client.reports(value))
    }
}
