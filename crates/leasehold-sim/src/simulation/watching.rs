//! The session of a client with its node of the watchdog: the host of it, and its connection.

use leasehold_core::Instant;
use leasehold_core::watchdog::{NodeSession, SessionAction, Terms};

use super::calls::Context;
use super::frames::{Direction, Frame, FromNode, ToNode};
use super::node::NodeEvent;
use super::setup::{Mutation, Watchdog};
use super::{Event, Simulation, nanos};

/// The connection of a machine to its node.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// The number of the connection. Messages of earlier ones are dropped.
    connection: u64,
    open: bool,
    /// When the last message in each direction arrives.
    arrivals: [u64; 2],
    /// The messages that came while the process was stopped.
    mailbox: Vec<(u64, FromNode)>,
}

/// The host of a session.
#[derive(Debug, Default)]
pub(super) struct Watching {
    session: NodeSession<u64>,
    /// The lease that it has registered.
    registered: Option<u64>,
    pause_ends: Option<Instant>,
    connections: u64,
}

impl Watching {
    /// A session that collects its changes for a moment, or sends them immediately.
    pub(super) fn new(lingers: bool) -> Self {
        Self {
            session: match lingers {
                true => NodeSession::lingering(),
                false => NodeSession::default(),
            },
            ..Self::default()
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let next = self.session.next_timeout();
        next.into_iter().chain(self.pause_ends).min()
    }

    /// Registers a lease, and unregisters the one before.
    pub(super) fn register(&mut self, lease: Option<(u64, Terms)>, cx: &Context<'_>) {
        let number = lease.map(|(number, _)| number);
        if let Some(before) = self.registered
            && number != Some(before)
            && !cx.setup.has(Mutation::KeepsRegistrations)
        {
            self.session.unregister(before);
        }
        if let Some((number, terms)) = lease {
            self.session.register(number, terms, number);
        }
        self.registered = number;
    }

    /// Does what the session returns, until it waits.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        if self.pause_ends.take_if(|at| *at <= cx.now).is_some() {
            self.session.end_pause();
        }
        let drops = cx.setup.has(Mutation::NoRegistrationAfterReconnect);
        loop {
            match self.session.poll(cx.now) {
                SessionAction::Connect => cx.to_node.push(ToNode::Hello),
                SessionAction::Changes(_) if drops && self.connections > 1 => {}
                SessionAction::Changes(changes) => cx.to_node.push(ToNode::Changes(changes)),
                SessionAction::Heartbeat if cx.setup.has(Mutation::NoHeartbeats) => {}
                SessionAction::Heartbeat => cx.to_node.push(ToNode::Heartbeat),
                SessionAction::Pause(pause) => {
                    self.pause_ends.get_or_insert(cx.now.after(pause));
                    return;
                }
                SessionAction::Wait => return,
                SessionAction::Process(_) | SessionAction::Disconnect | SessionAction::End => {
                    unreachable!("it has one process, and is not closed: {self:?}")
                }
            }
        }
    }

    /// Processes a message. Returns the leases that the node watches from now on, or no longer, and which of both.
    pub(super) fn handle_message(
        &mut self,
        message: FromNode,
        cx: &mut Context<'_>,
    ) -> (Vec<u64>, bool) {
        match message {
            FromNode::Welcome => {
                self.connections += 1;
                self.session.connected(0, cx.now);
                (Vec::new(), true)
            }
            FromNode::Acknowledged(batch) => (self.session.acknowledged(batch, &[]), true),
            FromNode::Ended => {
                let spread = cx.spread();
                (self.session.disconnected(false, cx.now, spread), false)
            }
        }
    }
}

impl Simulation {
    /// Drops all messages of earlier processes of a machine.
    pub(super) fn reset_link(&mut self, machine: usize) {
        let link = &mut self.machines[machine].link;
        link.connection += 1;
        link.open = false;
        link.mailbox.clear();
    }

    /// Sends a message of a process to its node. The first one opens a connection.
    pub(super) fn send_to_node(&mut self, machine: usize, message: ToNode) {
        let link = &mut self.machines[machine].link;
        if let ToNode::Hello = message {
            link.connection += 1;
            link.open = true;
        }
        if !link.open {
            return;
        }
        self.transmit_to_node(machine, message);
        if self.faults && self.rng.u8(0..50) == 0 {
            let is_lossy = self.rng.bool();
            self.break_link(machine, is_lossy);
        }
    }

    fn transmit_to_node(&mut self, machine: usize, message: ToNode) {
        let Some(node) = self.node_of(machine) else {
            return;
        };
        let at = self.arrival(machine, Direction::FromClient);
        let it = &self.machines[machine];
        let frame = Frame {
            machine,
            client: it.id,
            connection: it.link.connection,
            message,
        };
        self.schedule_at(at, Event::Node(NodeEvent::Message(node, frame)));
    }

    /// Sends a message on the connection of its request.
    pub(super) fn send_from_node(&mut self, machine: usize, connection: u64, message: FromNode) {
        let link = &self.machines[machine].link;
        if link.open && link.connection == connection {
            self.transmit_from_node(machine, message);
        }
    }

    fn transmit_from_node(&mut self, machine: usize, message: FromNode) {
        let at = self.arrival(machine, Direction::ToClient);
        let connection = self.machines[machine].link.connection;
        let reply = NodeEvent::Reply(machine, connection, message);
        self.schedule_at(at, Event::Node(reply));
    }

    fn arrival(&mut self, machine: usize, direction: Direction) -> u64 {
        let delay = self.rng.u64(0..nanos(self.longest_delay()));
        let last = &mut self.machines[machine].link.arrivals[direction as usize];
        *last = (self.time + delay).max(*last + 1);
        *last
    }

    pub(super) fn receive_from_node(&mut self, machine: usize, connection: u64, message: FromNode) {
        let it = &mut self.machines[machine];
        if it.link.connection == connection && it.stopped {
            it.link.mailbox.push((connection, message));
        } else if it.link.connection == connection {
            self.with(machine, |client, cx| client.handle_node(message, cx));
        }
    }

    /// Lets a process that goes on read the messages of its node.
    pub(super) fn read_mailbox(&mut self, machine: usize) {
        let messages = std::mem::take(&mut self.machines[machine].link.mailbox);
        for (connection, message) in messages {
            self.receive_from_node(machine, connection, message);
        }
    }

    /// Breaks the connection to a node. Both sides notice that behind the messages on it, which may be lost.
    pub(super) fn break_link(&mut self, machine: usize, is_lossy: bool) {
        if !std::mem::take(&mut self.machines[machine].link.open) {
            return;
        }
        if is_lossy {
            self.events.retain(|_, event| match event {
                Event::Node(NodeEvent::Message(_, frame)) => {
                    let is_end = matches!(frame.message, ToNode::Closed | ToNode::Died);
                    frame.machine != machine || is_end
                }
                Event::Node(NodeEvent::Reply(to, _, message)) => {
                    *to != machine || matches!(message, FromNode::Ended)
                }
                _ => true,
            });
        }
        self.transmit_to_node(machine, ToNode::Closed);
        self.transmit_from_node(machine, FromNode::Ended);
    }

    /// A process was killed: its connection ends behind its messages, and a node of its machine notices its end.
    pub(super) fn end_link(&mut self, machine: usize) {
        if std::mem::take(&mut self.machines[machine].link.open) {
            self.transmit_to_node(machine, ToNode::Closed);
        }
        if self.setup.watchdog == Some(Watchdog::Local) {
            self.transmit_to_node(machine, ToNode::Died);
        }
    }
}
