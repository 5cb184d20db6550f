//! How messages travel, and random faults of machines.

use std::time::Duration;

use super::calls::Payload;
use super::client::{Message, SimulatedClient};
use super::frames::Direction;
use super::node::NodeEvent;
use super::{Event, Network, Occurrence, Scenario, Simulation, nanos};
use fastrand::Rng;

/// A request, and the connection on which it travels.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) machine: usize,
    pub(super) connection: u64,
    pub(super) number: u64,
    pub(super) payload: Payload,
    /// Whether the connection broke after it was sent.
    pub(super) late: bool,
}

/// How many datagrams in a hundred are lost, doubled, and delayed for longer than a client waits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossRates {
    lost: u8,
    doubled: u8,
    slow: u8,
}

impl LossRates {
    pub(super) fn random(rng: &mut Rng) -> Self {
        Self {
            lost: rng.u8(0..15),
            doubled: rng.u8(0..15),
            slow: rng.u8(0..25),
        }
    }
}

impl Simulation {
    pub(super) fn send_request(&mut self, machine: usize, number: u64, payload: Payload) {
        let request = Request {
            machine,
            connection: self.machines[machine].connection,
            number,
            payload,
            late: false,
        };
        self.transmit(machine, Direction::FromClient, Event::Request(request));
    }

    pub(super) fn send_message(&mut self, machine: usize, message: Message) {
        let event = Event::Message(machine, self.machines[machine].connection, message);
        self.transmit(machine, Direction::ToClient, event);
    }

    fn transmit(&mut self, machine: usize, direction: Direction, event: Event) {
        if !self.machines[machine].connected {
            return self.count(Occurrence::Disconnected);
        }
        match self.setup.network {
            Network::Datagrams => self.transmit_datagram(event),
            Network::Connections => {
                let longest = nanos(self.longest_delay());
                let delay = match self.setup.scenario {
                    Scenario::SlowNetwork => longest,
                    _ => self.rng.u64(0..longest),
                };
                let last = &mut self.machines[machine].arrivals[direction as usize];
                *last = (self.time + delay).max(*last + 1);
                let at = *last;
                self.schedule_at(at, event);
                self.break_by_chance(machine);
            }
        }
    }

    fn transmit_datagram(&mut self, event: Event) {
        let LossRates { lost, doubled, .. } = self.loss;
        let lost = self.rng.u8(0..100) < lost;
        let doubled = self.rng.u8(0..100) < doubled;
        if lost {
            self.count(Occurrence::LostMessage);
        } else if doubled {
            self.count(Occurrence::DoubledMessage);
        }
        for _ in 0..u8::from(!lost) + u8::from(doubled) {
            let delay = self.datagram_delay();
            self.schedule(delay, event.clone());
        }
    }

    fn datagram_delay(&mut self) -> Duration {
        let ttl = self.ttl.as_duration();
        let longest = if self.rng.u8(0..100) >= self.loss.slow {
            ttl / 50
        } else if self.rng.u8(0..4) > 0 {
            ttl / 3
        } else {
            ttl * 2
        };
        self.part(longest)
    }

    /// The longest delay of a message on a connection. Several of them fit into the ttl of a grant that is accepted.
    pub(super) fn longest_delay(&self) -> Duration {
        let longest = match self.setup.scenario {
            Scenario::SlowNetwork => 750,
            _ => 150,
        };
        let of_ttl = self.ttl.as_duration() / 200;
        of_ttl.min(Duration::from_millis(longest))
    }

    /// Breaks the connection behind a message, now and then.
    fn break_by_chance(&mut self, machine: usize) {
        if self.faults && self.machines[machine].connected && self.rng.u8(0..50) == 0 {
            let ttl = self.ttl.as_duration();
            let undetected = self.rng.bool().then(|| self.part(ttl));
            self.disconnect(machine, undetected);
            let back = self.part(ttl / 10);
            self.schedule(back, Event::Reconnect { machine });
        }
    }

    /// Opens a connection for a process that has none.
    pub(super) fn connect(&mut self, machine: usize) {
        if self.machines[machine].client.is_none() || self.machines[machine].connected {
            return;
        }
        if let Some(until) = self.stall.until {
            // A stopped store accepts no connection.
            let delay = self.part(self.longest_delay());
            return self.schedule_at(until + nanos(delay), Event::Reconnect { machine });
        }
        let it = &mut self.machines[machine];
        it.connection += 1;
        it.connected = true;
        it.store_open = self.setup.has_queue();
        it.arrivals = [self.time; 2];
        if it.stopped {
            it.interrupted = true;
        } else {
            self.with(machine, SimulatedClient::handle_interruption);
        }
    }

    pub(super) fn reconnect(&mut self, machine: usize) {
        match self.setup.network {
            // Without connections, nothing shows that messages were lost.
            Network::Datagrams if self.machines[machine].connection > 0 => {
                self.machines[machine].connected = true;
            }
            _ => self.connect(machine),
        }
    }

    /// Disconnects a machine. On a connection, all messages to the client are lost, and those to the store are
    /// lost or come late. The store detects it immediately, or later.
    pub(super) fn disconnect(&mut self, machine: usize, undetected_for: Option<Duration>) {
        let it = &mut self.machines[machine];
        it.connected = false;
        if self.setup.network == Network::Datagrams {
            return;
        }
        let connection = it.connection;
        match undetected_for {
            None => it.store_open = false,
            Some(after) => self.schedule(after, Event::BreakDetected(machine, connection)),
        }
        let mut requests = Vec::new();
        self.events.retain(|_, event| match event {
            Event::Request(request) if request.machine == machine && !request.late => {
                requests.push(request.clone());
                false
            }
            Event::Message(to, ..) => *to != machine,
            _ => true,
        });
        let (mut at, late) = (self.time, true);
        for request in requests {
            // The bounds of the scenarios do not include them.
            if !self.faults || self.rng.bool() {
                continue;
            }
            at += nanos(self.part(self.ttl.as_duration()));
            self.schedule_at(at, Event::Request(Request { late, ..request }));
        }
    }

    pub(super) fn detect_break(&mut self, machine: usize, connection: u64) {
        if let Some(until) = self.stall.until {
            return self.schedule_at(until, Event::BreakDetected(machine, connection));
        }
        let it = &mut self.machines[machine];
        if it.connection == connection && !it.connected {
            it.store_open = false;
        }
    }

    pub(super) fn kill(&mut self, machine: usize, undetected_for: Option<Duration>) {
        if self.machines[machine].client.take().is_some() {
            self.end_link(machine);
        }
        self.disconnect(machine, undetected_for);
    }

    pub(super) fn schedule_faults(&mut self) {
        let ttl = self.ttl.as_duration();
        for machine in 0..self.machines.len() {
            self.schedule(ttl, Event::Fault { machine });
        }
        for node in 0..self.nodes.len() {
            self.schedule(ttl, Event::Node(NodeEvent::Fault(node)));
        }
        if self.setup.has_queue() {
            let stop = self.part(ttl * 10);
            self.schedule(stop, Event::StopStore);
        }
    }

    /// Stops, kills or disconnects a machine, or does nothing.
    pub(super) fn fault(&mut self, machine: usize) {
        let ttl = self.ttl.as_duration();
        let long = self.part(ttl * 2);
        let undetected = self.rng.bool().then(|| self.part(ttl));
        let it = &mut self.machines[machine];
        match self.rng.u8(0..8) {
            0..=2 if it.client.is_some() => {
                it.stopped = true;
                self.count(Occurrence::Stopped);
                self.schedule(long, Event::Resume { machine });
            }
            3 => {
                self.kill(machine, undetected);
                self.count(Occurrence::Killed);
                self.schedule(long, Event::Restart { machine });
            }
            4..=6 if it.client.is_some() && it.connected => {
                self.disconnect(machine, undetected);
                let back = self.part(ttl / 3);
                self.schedule(back, Event::Reconnect { machine });
            }
            _ => {}
        }
        let rest = self.part(ttl * 2);
        let next = long + rest + Duration::from_millis(1);
        self.schedule(next, Event::Fault { machine });
    }
}
