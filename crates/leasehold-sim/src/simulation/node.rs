//! The nodes of the watchdog: the hosts of the monitors of their clients.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::watchdog::{ActionResult, ClientMonitor, Evidence, WatchdogAction};
use leasehold_core::{ClientId, Instant, LeaseId, Op, Outcome, Ttl};

use super::calls::{Call, Calls, timeout};
use super::clock::DriftingClock;
use super::frames::{Frame, FromNode, ToNode};
use super::{Event, Mutation, Occurrence, Setup, Simulation, Violation, Watchdog, nanos};

/// For how many ttls a node renews the leases of a silent client.
const MAX_PAUSE_TTLS: u32 = 4;

/// What happens to a node, or by it.
#[derive(Clone, Debug)]
pub(super) enum NodeEvent {
    /// A message of a client reaches its node.
    Message(usize, Frame),
    /// A message of a node reaches a machine, on this connection.
    Reply(usize, u64, FromNode),
    /// The timer of a node with this number expires.
    Timer(usize, u64),
    /// The request of a node with this number reaches the store.
    Request(usize, u64, Op),
    /// Its result reaches the node.
    Result(usize, u64, ActionResult),
    /// A random fault happens to a node.
    Fault(usize),
}

pub(super) struct Node {
    clock: DriftingClock,
    evidence: Evidence,
    max_pause: Duration,
    clients: BTreeMap<ClientId, WatchedClient>,
    /// The requests without a result so far.
    requests: Calls<(LeaseId, WatchdogAction)>,
    /// Until when it is stopped. What reaches it meanwhile is processed then.
    stopped_until: u64,
    /// The number of the timer that is set.
    timer: u64,
}

struct WatchedClient {
    monitor: ClientMonitor<()>,
    /// The number of its last connection. Messages of earlier ones are dropped.
    connection: u64,
    /// The leases that it may renew: those that are registered, by what the node has received since its start.
    registered: BTreeSet<u64>,
}

impl Node {
    /// The nodes of a simulation, whose machines have these clocks.
    pub(super) fn all(
        setup: &Setup,
        clocks: impl Iterator<Item = DriftingClock>,
        ttl: Ttl,
        rng: &mut Rng,
    ) -> Vec<Self> {
        let node = |clock, evidence| Self {
            clock,
            evidence,
            max_pause: match setup.has(Mutation::RenewsForEver) {
                true => Duration::MAX,
                false => max_pause(ttl),
            },
            clients: BTreeMap::new(),
            requests: Calls::new(timeout(ttl)),
            stopped_until: 0,
            timer: 0,
        };
        let local = |clock| node(clock, Evidence::Processes);
        match setup.watchdog {
            None => Vec::new(),
            Some(Watchdog::Local) => clocks.map(local).collect(),
            Some(Watchdog::Remote) => {
                let clock = DriftingClock::random(setup, rng);
                vec![node(clock, Evidence::Connection)]
            }
        }
    }

    /// Forgets all clients and requests.
    pub(super) fn forget(&mut self) {
        self.clients.clear();
        self.requests.take_if(|_| true);
    }

    /// Processes a message. Returns the reply.
    fn receive(&mut self, frame: Frame, setup: &Setup, now: Instant) -> Option<FromNode> {
        let (client, connection) = (frame.client, frame.connection);
        if let ToNode::Hello = frame.message {
            let (evidence, max_pause) = (self.evidence, self.max_pause);
            let watched = self.clients.entry(client);
            let watched = watched.or_insert_with(|| WatchedClient {
                monitor: ClientMonitor::new(evidence, max_pause, now),
                connection,
                registered: BTreeSet::new(),
            });
            watched.connection = connection;
            watched.monitor.connected(now);
            return Some(FromNode::Welcome);
        }
        let watched = self.clients.get_mut(&client)?;
        let monitor = &mut watched.monitor;
        match frame.message {
            ToNode::Died => {
                watched.registered.clear();
                if !setup.has(Mutation::IgnoresDeath) {
                    monitor.died(now);
                }
            }
            _ if watched.connection != connection => {}
            ToNode::Hello | ToNode::Heartbeat => monitor.message_received(now),
            ToNode::Closed => {
                monitor.disconnected();
                if setup.has(Mutation::DiesWithConnection) {
                    monitor.died(now);
                }
            }
            ToNode::Changes(changes) => {
                monitor.message_received(now);
                for (number, terms, _) in changes.register {
                    monitor.register(number, terms, (), now);
                    watched.registered.insert(number);
                }
                for number in changes.unregister {
                    watched.registered.remove(&number);
                    monitor.unregister(number);
                }
                return Some(FromNode::Acknowledged(changes.batch));
            }
        }
        None
    }

    fn handle_result(
        &mut self,
        request: Call<(LeaseId, WatchdogAction)>,
        result: ActionResult,
        now: Instant,
    ) {
        let (lease, action) = request.purpose;
        if let Some(WatchedClient { monitor, .. }) = self.clients.get_mut(&lease.client) {
            monitor.handle_result(lease.number, action, result, request.sent, now);
        }
    }

    /// Takes actions from the monitors. Returns the requests to send.
    fn take_actions(
        &mut self,
        take: impl Fn(&mut ClientMonitor<()>, Instant) -> Vec<(u64, WatchdogAction)>,
        now: Instant,
    ) -> Result<Vec<(u64, Op)>, Violation> {
        let mut requests = Vec::new();
        for (client, watched) in &mut self.clients {
            for (number, action) in take(&mut watched.monitor, now) {
                let client = *client;
                let lease = LeaseId { client, number };
                let op = match action {
                    WatchdogAction::Renew(_) if !watched.registered.contains(&number) => {
                        return Err(Violation::UnknownRenewed);
                    }
                    WatchdogAction::Renew(ttl) => Op::renew(lease, ttl),
                    WatchdogAction::Release(_) => Op::release(lease),
                };
                let number = self.requests.begin((lease, action), Ttl::MAX, now);
                requests.push((number, op));
            }
        }
        Ok(requests)
    }

    fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let clients = self.clients.values();
        let events = clients.filter_map(|watched| watched.monitor.next_event(now));
        events.chain(self.requests.next_timeout()).min()
    }
}

/// For how long a node renews the leases of a silent client.
pub(super) fn max_pause(ttl: Ttl) -> Duration {
    ttl.as_duration() * MAX_PAUSE_TTLS
}

impl Simulation {
    /// The node of a machine.
    pub(super) fn node_of(&self, machine: usize) -> Option<usize> {
        self.setup.watchdog.map(|watchdog| match watchdog {
            Watchdog::Local => machine,
            Watchdog::Remote => 0,
        })
    }

    pub(super) fn handle_node_event(&mut self, event: NodeEvent) -> Result<(), Violation> {
        if let NodeEvent::Message(node, _) | NodeEvent::Timer(node, _) | NodeEvent::Result(node, ..) =
            event
            && self.time < self.nodes[node].stopped_until
        {
            let until = self.nodes[node].stopped_until;
            self.schedule_at(until, Event::Node(event));
            return Ok(());
        }
        match event {
            NodeEvent::Message(node, frame) => {
                let (machine, connection) = (frame.machine, frame.connection);
                let now = self.node_now(node);
                let reply = self.nodes[node].receive(frame, &self.setup, now);
                if let Some(reply) = reply {
                    self.send_from_node(machine, connection, reply);
                }
                self.drive(node)?;
            }
            NodeEvent::Reply(machine, connection, message) => {
                self.receive_from_node(machine, connection, message);
            }
            NodeEvent::Timer(node, number) if number == self.nodes[node].timer => {
                self.drive(node)?;
            }
            NodeEvent::Timer(..) => {}
            NodeEvent::Request(node, number, op) => self.apply_of_node(node, number, op)?,
            NodeEvent::Result(node, number, result) => {
                let now = self.node_now(node);
                let it = &mut self.nodes[node];
                if let Some(request) = it.requests.take(number) {
                    it.handle_result(request, result, now);
                }
                self.drive(node)?;
            }
            NodeEvent::Fault(node) => self.node_fault(node)?,
        }
        Ok(())
    }

    fn node_now(&self, node: usize) -> Instant {
        self.nodes[node].clock.read(self.time)
    }

    /// Lets the monitors of a node act, and sets its timer.
    fn drive(&mut self, node: usize) -> Result<(), Violation> {
        let now = self.node_now(node);
        let it = &mut self.nodes[node];
        // The requests that have waited for too long have failed.
        for request in it.requests.take_if(|request| request.timeout <= now) {
            it.handle_result(request, ActionResult::Failed, now);
        }
        let requests = it.take_actions(ClientMonitor::poll, now)?;
        it.clients
            .retain(|_, watched| !watched.monitor.is_finished(now));
        it.timer += 1;
        let number = it.timer;
        if let Some(timeout) = it.next_timeout(now) {
            // A timer expires up to a millisecond late.
            let late = self.rng.u64(0..1_000_000);
            let at = it.clock.simulation_time(timeout).max(self.time) + late;
            self.schedule_at(at, Event::Node(NodeEvent::Timer(node, number)));
        }
        self.send_to_store(node, requests);
        Ok(())
    }

    fn send_to_store(&mut self, node: usize, requests: Vec<(u64, Op)>) {
        for (number, op) in requests {
            self.transmit_of_node(NodeEvent::Request(node, number, op));
        }
    }

    /// Transmits a message between a node and the store. While there are faults, it may be lost or late.
    fn transmit_of_node(&mut self, event: NodeEvent) {
        let late = self.ttl.as_duration() * 2;
        let longest = match self.rng.u8(0..10) {
            0 if self.faults => return self.count(Occurrence::LostMessage),
            1 if self.faults => late,
            _ => self.longest_delay(),
        };
        let delay = self.part(longest);
        self.schedule(delay, Event::Node(event));
    }

    /// The store applies a request of a node.
    fn apply_of_node(&mut self, node: usize, number: u64, op: Op) -> Result<(), Violation> {
        if let Some(until) = self.stall.until {
            self.schedule_at(until, Event::Node(NodeEvent::Request(node, number, op)));
            return Ok(());
        }
        let client = op.lease().map(|lease| lease.client);
        let (outcome, _) = self.apply(op)?;
        let result = match outcome {
            Outcome::Kept => {
                self.count(Occurrence::RenewedByNode);
                ActionResult::Renewed
            }
            Outcome::Released => {
                let mut machines = self.machines.iter();
                if machines.any(|it| it.client.is_some() && Some(it.id) == client) {
                    return Err(Violation::LivingReleased);
                }
                self.count(Occurrence::ReleasedByNode);
                ActionResult::NotHeld
            }
            _ => ActionResult::NotHeld,
        };
        self.transmit_of_node(NodeEvent::Result(node, number, result));
        Ok(())
    }

    /// A random fault: a node is stopped or restarted, or a connection to it breaks.
    fn node_fault(&mut self, node: usize) -> Result<(), Violation> {
        let ttl = self.ttl.as_duration();
        match self.rng.u8(0..4) {
            0 => {
                let is_planned = self.rng.bool();
                self.restart_node(node, is_planned)?;
            }
            1 => {
                let stop = self.part(ttl * 2);
                self.nodes[node].stopped_until = self.time + nanos(stop);
            }
            _ => {
                let machine = self.rng.usize(..self.machines.len());
                let is_lossy = self.rng.bool();
                self.break_link(machine, is_lossy);
            }
        }
        let rest = self.part(ttl * 4);
        let rest = rest + Duration::from_millis(1);
        self.schedule(rest, Event::Node(NodeEvent::Fault(node)));
        Ok(())
    }

    /// Restarts a node without its data. If that is planned, it renews the leases that it keeps once more.
    pub(super) fn restart_node(&mut self, node: usize, is_planned: bool) -> Result<(), Violation> {
        self.count(Occurrence::NodeRestarted);
        if is_planned {
            let now = self.node_now(node);
            let requests = self.nodes[node].take_actions(ClientMonitor::hand_over, now)?;
            self.send_to_store(node, requests);
        }
        for machine in 0..self.machines.len() {
            if self.node_of(machine) == Some(node) {
                self.break_link(machine, true);
            }
        }
        let it = &mut self.nodes[node];
        if self.setup.has(Mutation::NodeKeepsLeases) {
            let clients = it.clients.values_mut();
            clients.for_each(|watched| watched.registered.clear());
        } else {
            it.forget();
        }
        Ok(())
    }
}
