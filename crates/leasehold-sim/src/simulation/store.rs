//! The store of a simulation: the rule that ships, its notices, and the time in which it is stopped.

use std::time::Duration;

use leasehold_core::record::queue;
use leasehold_core::{
    Acquire, ClientId, Environment, Leader, LeaseId, Op, Outcome, Slot, StoreTime,
};

use super::calendar::STORE_START;
use super::calls::Payload;
use super::client::Message;
use super::network::Request;
use super::node::{Node, NodeEvent};
use super::values::{Observed, value};
use super::{Event, Mutation, Occurrence, Simulation, Violation, nanos};

/// A stop of the store.
#[derive(Debug, Default)]
pub(super) struct Stall {
    /// When it goes on. `None`: it is not stopped.
    pub(super) until: Option<u64>,
    /// The requests that came meanwhile.
    requests: Vec<Request>,
}

impl Simulation {
    fn store_now(&self) -> StoreTime {
        StoreTime::from_micros(STORE_START + self.time / 1_000)
    }

    pub(super) fn environment(&self) -> Environment {
        let now = self.store_now();
        Environment::at(now)
    }

    /// The lease that holds the lock.
    pub(super) fn holder(&self) -> Option<LeaseId> {
        let environment = self.environment();
        let holder = self.record.holders(&environment).next();
        holder.map(|holder| holder.lease)
    }

    /// How long it holds the lock without a further request.
    pub(super) fn time_left(&self) -> Duration {
        let environment = self.environment();
        let holder = self.record.holders(&environment).next();
        holder.map_or(Duration::ZERO, |holder| environment.time_left(holder.end))
    }

    /// How many leases wait for the lock.
    pub(super) fn waiters(&self) -> usize {
        self.record.waiters(&self.environment()).count()
    }

    pub(super) fn handle_request(&mut self, request: Request) -> Result<(), Violation> {
        if self.stall.until.is_some() {
            self.stall.requests.push(request);
            return Ok(());
        }
        if request.late {
            self.count(Occurrence::LateRequest);
        }
        let (machine, connection, number) = (request.machine, request.connection, request.number);
        let reply = match request.payload {
            Payload::Apply(op) => {
                let (outcome, now) = self.apply(op)?;
                Message::Reply(number, outcome, now)
            }
            Payload::Read => {
                self.watchers.push((machine, connection, number));
                Message::State(number, self.read()?)
            }
        };
        self.reply(machine, connection, reply);
        Ok(())
    }

    /// Reads the lock for an observer. A value that is known to be stored is not behind another one.
    fn read(&self) -> Result<Observed, Violation> {
        let environment = self.environment();
        let holder = self.record.holders(&environment).next();
        let stored = holder.and_then(|holder| self.values.stored(holder.first));
        let note = self.record.note(&Slot::Value, &environment);
        let observed = Observed {
            holder: holder.map(|holder| (holder.lease, environment.time_left(holder.end))),
            value: note.map(Into::into),
            at: self.time,
        };
        let leader = Leader::of(observed.lease(), observed.value.as_ref());
        let is_new = leader.as_ref().and_then(value) >= stored;
        is_new.then_some(observed).ok_or(Violation::ValueWentBack)
    }

    /// Sends a message on the connection of its request.
    fn reply(&mut self, machine: usize, connection: u64, message: Message) {
        if self.machines[machine].connection == connection {
            self.send_message(machine, message);
        }
    }

    pub(super) fn stop_store(&mut self) {
        let ttl = self.ttl.as_duration();
        let stop = self.part(ttl * 3 / 2);
        self.stall.until = Some(self.time + nanos(stop));
        self.schedule(stop, Event::ResumeStore);
        let rest = self.part(ttl * 10);
        self.schedule(stop + rest, Event::StopStore);
    }

    /// The store processes the requests that came meanwhile: in order on each connection, but one
    /// connection after the other.
    pub(super) fn resume_store(&mut self) -> Result<(), Violation> {
        if self.stall.until.take().is_none() {
            return Ok(());
        }
        let mut requests = std::mem::take(&mut self.stall.requests);
        let mut order: Vec<usize> = (0..self.machines.len()).collect();
        self.rng.shuffle(&mut order);
        requests.sort_by_key(|request| (request.late, order[request.machine]));
        for request in requests {
            self.count(Occurrence::DelayedByStore);
            self.handle_request(request)?;
        }
        Ok(())
    }

    /// Applies an operation and sends its notices. The checker observes both.
    pub(super) fn apply(&mut self, mut op: Op) -> Result<(Outcome, StoreTime), Violation> {
        if let Op::Acquire(request) = &mut op {
            let mut machines = self.machines.iter();
            let requester = machines.find(|machine| machine.id == request.lease.client);
            request.wait &= requester.map_or(self.setup.has_queue(), |machine| machine.can_wait);
        }
        let environment = self.environment();
        let now = environment.now;
        let before = self.holder();
        let request = op.clone();
        self.mutate_run(&mut op);
        let open = self.machines.iter().filter(|machine| machine.store_open);
        let open: Vec<ClientId> = open.map(|machine| machine.id).collect();
        let reaches = |client| open.contains(&client);
        // The first living waiter is granted the lock, and another one is the next.
        let mut has_head = false;
        let report = &mut self.report;
        let applied = self.record.apply(&op, &environment, |client| {
            let is_taken_for_living = match self.setup.mutation {
                Some(Mutation::NotifiesDeadHeads) => true,
                Some(Mutation::NotifiesDeadNext) => has_head,
                _ => false,
            };
            let reached = is_taken_for_living || reaches(client);
            if !reached {
                report.count(Occurrence::PassedOver);
            }
            has_head |= reached;
            reached
        });
        let (outcome, notices) = (applied.outcome, applied.notices);
        if !self.setup.mutation.is_some_and(Mutation::changes_store) {
            let checker = &mut self.store_checker;
            let checked = checker.observe(&op, &outcome, &notices, now, reaches);
            checked.map_err(|violation| Violation::Store(violation.promise))?;
        }
        self.count_outcome(&op, &outcome);
        self.observe_completion(&request, &outcome, before)?;
        if applied.is_visible {
            self.push_changes();
        }
        self.note(|| format!("  {op:?} -> {outcome:?}, notices {notices:?}"));
        for notice in notices {
            let to = notice.lease().client;
            if let Some(machine) = self.machines.iter().position(|machine| machine.id == to) {
                self.send_message(machine, Message::Notice(notice));
            }
        }
        Ok((outcome, now))
    }

    /// Notifies the clients that have read the state of the lock.
    fn push_changes(&mut self) {
        let watchers = std::mem::take(&mut self.watchers);
        for (machine, connection, number) in watchers {
            if self.setup.has_queue() {
                self.reply(machine, connection, Message::Changed(number));
            }
        }
    }

    fn count_outcome(&mut self, op: &Op, outcome: &Outcome) {
        self.count(match (op, outcome) {
            (_, Outcome::Refused { .. }) => Occurrence::Refused,
            (Op::Renew { count: None, .. }, Outcome::Kept) => Occurrence::Renewed,
            (_, Outcome::Lost(_)) => Occurrence::Lost,
            (_, Outcome::Complete(_)) => Occurrence::FoundComplete,
            (Op::WriteNote { .. }, Outcome::Outdated) => Occurrence::LateValue,
            _ => return,
        });
    }

    /// Kills every process, lets the last requests arrive, waits for every ttl, and checks that nothing
    /// stays behind.
    pub(super) fn check_leftovers(&mut self) -> Result<(), Violation> {
        for machine in 0..self.machines.len() {
            self.kill(machine, None);
        }
        self.nodes.iter_mut().for_each(Node::forget);
        let is_request = |event: &Event| {
            matches!(
                event,
                Event::Request(_) | Event::Node(NodeEvent::Request(..))
            )
        };
        self.events.retain(|_, event| is_request(event));
        while self.step()? {}
        self.resume_store()?;
        self.time += nanos(queue::retention(self.ttl));
        let (client, number) = (ClientId::from_random([0; 16]), 0);
        let lease = LeaseId { client, number };
        let probe = Op::Acquire(Acquire::mutex(lease, self.ttl));
        let (outcome, _) = self.apply(probe)?;
        let is_granted = matches!(outcome, Outcome::Granted { .. });
        is_granted.then_some(()).ok_or(Violation::Leftover)
    }
}
