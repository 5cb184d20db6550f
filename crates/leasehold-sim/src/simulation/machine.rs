//! A machine: its clock, the process on it, and its connection to the store.

use fastrand::Rng;
use leasehold_core::{ClientId, Instant};

use super::calls::Context;
use super::client::{Message, SimulatedClient};
use super::clock::DriftingClock;
use super::watching::{Link, Watching};
use super::{Event, LeaseToken, Network, Occurrence, Setup, Simulation, nanos};

pub(super) struct Machine {
    pub(super) clock: DriftingClock,
    pub(super) id: ClientId,
    /// `None`: its process is dead.
    pub(super) client: Option<SimulatedClient>,
    /// The number of the connection. Messages of earlier ones are dropped.
    pub(super) connection: u64,
    /// Whether the connection exists on the client's side, and as far as the store knows.
    pub(super) connected: bool,
    pub(super) store_open: bool,
    /// Whether the store can notify its client, which otherwise may not wait in the queue.
    pub(super) can_wait: bool,
    pub(super) stopped: bool,
    /// The messages that came while the process was stopped, and whether there is a new connection since.
    pub(super) mailbox: Vec<(u64, Message)>,
    pub(super) interrupted: bool,
    /// Whether its next acquisition is scheduled.
    acquires: bool,
    /// The number of the timer that is set. Earlier ones were set for another time.
    pub(super) timer: u64,
    /// When the last message in each direction arrives.
    pub(super) arrivals: [u64; 2],
    /// The connection of its process to a node of the watchdog.
    pub(super) link: Link,
}

impl Machine {
    pub(super) fn new(setup: &Setup, rng: &mut Rng) -> Self {
        Self {
            clock: DriftingClock::random(setup, rng),
            id: ClientId::from_random(rng.u128(..).to_be_bytes()),
            client: None,
            connection: 0,
            connected: false,
            store_open: false,
            can_wait: setup.has_queue(),
            stopped: false,
            mailbox: Vec::new(),
            interrupted: false,
            acquires: false,
            timer: 0,
            arrivals: [0; 2],
            link: Link::default(),
        }
    }

    pub(super) fn now(&self, time: u64) -> Instant {
        self.clock.read(time)
    }

    /// What its client relies on at a time of the simulation.
    pub(super) fn hold(&self, time: u64) -> Option<LeaseToken> {
        self.client.as_ref()?.holder()?.hold(self.now(time))
    }

    /// What its client relies on again once the store has confirmed its lease.
    pub(super) fn unconfirmed(&self, time: u64) -> Option<LeaseToken> {
        self.client.as_ref()?.holder()?.unconfirmed(self.now(time))
    }
}

impl Simulation {
    /// Starts a process, connected.
    pub(super) fn start(&mut self, machine: usize) {
        let id = ClientId::from_random(self.rng.u128(..).to_be_bytes());
        let mut client = SimulatedClient::new(id, self.ttl);
        if self.setup.watchdog.is_some() {
            client.watching = Some(Watching::new(self.rng.bool()));
        }
        self.reset_link(machine);
        let it = &mut self.machines[machine];
        (it.id, it.client) = (id, Some(client));
        (it.stopped, it.interrupted) = (false, false);
        (it.connected, it.acquires) = (false, false);
        it.mailbox.clear();
        self.connect(machine);
    }

    /// Lets a stopped process go on: its timers expire and its messages are read, in either order.
    pub(super) fn resume(&mut self, machine: usize) {
        let it = &mut self.machines[machine];
        if !std::mem::take(&mut it.stopped) {
            return;
        }
        let messages = std::mem::take(&mut it.mailbox);
        let interrupted = std::mem::take(&mut it.interrupted);
        let timers_first = self.rng.bool();
        if timers_first {
            self.with(machine, SimulatedClient::handle_timer);
        }
        self.read_mailbox(machine);
        for (connection, message) in messages {
            self.receive(machine, connection, message);
        }
        if interrupted {
            self.with(machine, SimulatedClient::handle_interruption);
        }
        if !timers_first {
            self.with(machine, SimulatedClient::handle_timer);
        }
    }

    pub(super) fn receive(&mut self, machine: usize, connection: u64, message: Message) {
        let it = &mut self.machines[machine];
        if it.connection == connection && it.stopped {
            it.mailbox.push((connection, message));
        } else if it.connection == connection {
            self.with(machine, |client, cx| client.handle_message(message, cx));
        }
    }

    /// Lets a client act, sends its requests and sets its timer.
    pub(super) fn with(
        &mut self,
        machine: usize,
        act: impl FnOnce(&mut SimulatedClient, &mut Context<'_>),
    ) {
        let unless = self.wanted_run();
        let it = &mut self.machines[machine];
        let now = it.now(self.time);
        let Some(client) = &mut it.client else {
            return;
        };
        let (mut outbox, mut to_node) = (Vec::new(), Vec::new());
        let mut context = Context {
            now,
            time: self.time,
            setup: &self.setup,
            rng: &mut self.rng,
            report: &mut self.report,
            unless,
            completed: &self.completed,
            values: &mut self.values,
            outbox: &mut outbox,
            to_node: &mut to_node,
        };
        act(client, &mut context);
        client.watch(&mut context);
        it.timer += 1;
        let number = it.timer;
        if let Some(timeout) = client.next_timeout(now, &self.setup) {
            // A timer expires up to a millisecond late.
            let late = self.rng.u64(0..1_000_000);
            let at = it.clock.simulation_time(timeout).max(self.time) + late;
            self.schedule_at(at, Event::Timer { machine, number });
        }
        for (number, payload) in outbox {
            self.send_request(machine, number, payload);
        }
        for message in to_node {
            self.send_to_node(machine, message);
        }
        self.schedule_acquire(machine);
    }

    /// Lets an idle client acquire the lock some time later, or when the last refusal expects it to be free.
    fn schedule_acquire(&mut self, machine: usize) {
        let it = &mut self.machines[machine];
        let idle = it.client.as_ref().filter(|client| client.is_idle());
        // In the queue, each client acquires the lock once after the faults, and of candidates only the first one.
        let repeats = self.faults || !(self.setup.has_queue() || self.setup.elects);
        let Some(client) = idle.filter(|_| repeats && !it.acquires) else {
            return;
        };
        it.acquires = true;
        let expiry = client.expiry.map(|at| it.clock.simulation_time(at));
        let soon = self.time + nanos(self.part(self.ttl.as_duration() / 2));
        let at = expiry.filter(|_| self.rng.bool()).unwrap_or(soon);
        self.schedule_at(at, Event::Acquire { machine });
    }

    /// Lets an idle client acquire the lock, with random times.
    pub(super) fn acquire(&mut self, machine: usize) {
        let ttl = self.ttl.as_duration();
        let wait_for = match self.rng.u8(0..4) {
            0 => self.part(ttl),
            _ => ttl * 100,
        };
        let longest = match self.setup.network {
            Network::Datagrams => ttl * 3,
            Network::Connections => ttl,
        };
        let hold_for = match self.rng.u8(0..3) {
            0 => self.part(ttl / 20),
            _ => self.part(longest),
        };
        let it = &mut self.machines[machine];
        it.acquires = false;
        if it.stopped {
            return self.schedule_acquire(machine);
        }
        self.with(machine, |client, cx| {
            if client.is_idle() {
                client.acquire(wait_for, hold_for, cx);
            }
        });
    }

    pub(super) fn is_holder(&self, machine: usize) -> bool {
        self.machines[machine].hold(self.time).is_some()
    }

    pub(super) fn count(&mut self, occurrence: Occurrence) {
        self.report.count(occurrence);
    }
}
