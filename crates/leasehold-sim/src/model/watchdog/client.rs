//! The steps of the client's program and of its rival.

use leasehold_core::watchdog::{NodeSession, SessionAction};

use super::setup::Setup;
use super::state::{FREE, Link, Message, Phase, RIVAL, State, UNLIMITED};
use super::{Take, Watchdog, label};

impl Watchdog {
    pub(super) fn client(&self, state: &State, take: Take<'_, State>) {
        if state.main {
            self.hold(state, take);
            if state.acquired > 0 {
                take(&"the program dies", self.ended(state, true));
            }
        } else if state.run + 1 < self.setup.runs {
            let mut next = *state;
            next.run += 1;
            next.main = true;
            next.watched = 0;
            next.phase = Phase::Idle;
            take(&"the program runs again", next);
        }
        if state.child && state.acquired > 0 {
            take(&"its child dies", self.ended(state, false));
        }
    }

    /// One of its processes dies. With the last one, its hold ends.
    fn ended(&self, state: &State, main: bool) -> State {
        let mut next = *state;
        if main {
            next.main = false;
            for node in self.nodes() {
                let mut link = self.link(state, state.run.into(), node);
                link.close();
                link.session = Default::default();
                self.put_link(&mut next, state.run.into(), node, link);
            }
        } else {
            next.child = false;
        }
        let held_by_child = next.run == 0 && next.child && next.phase == Phase::Holding;
        if !next.main && !held_by_child {
            next.phase = Phase::Idle;
        }
        next
    }

    fn hold(&self, state: &State, take: Take<'_, State>) {
        let setup = self.setup;
        match state.phase {
            Phase::Idle if state.acquired < setup.acquisitions => {
                let mut next = *state;
                next.runs[usize::from(state.acquired)] = state.run;
                if setup.acquire(&mut next, state.acquired) {
                    next.acquired += 1;
                    next.phase = Phase::Granted;
                    next.age = 0;
                    next.max_hold = setup.max_hold.unwrap_or(UNLIMITED);
                    take(&"the client is granted the lock", next);
                }
            }
            Phase::Idle => {}
            Phase::Granted if setup.is_relied_on(state.age) => {
                let mut next = *state;
                next.phase = Phase::Holding;
                self.register_current(&mut next, true);
                take(&"the client receives its grant", next);
            }
            Phase::Granted => {
                let mut next = *state;
                next.phase = Phase::Idle;
                setup.release(&mut next, state.current());
                take(&"the client receives its grant too late", next);
            }
            Phase::Holding => self.hold_on(state, take),
        }
    }

    fn hold_on(&self, state: &State, take: Take<'_, State>) {
        let setup = self.setup;
        let over = !setup.is_relied_on(state.age);
        if state.age > 0 && state.max_hold > 0 {
            let mut next = *state;
            if setup.renew(&mut next, state.current()) {
                next.age = 0;
                take(&"the client renews", next);
            } else {
                self.leave(&mut next);
                take(&"the client receives the loss of its lease", next);
            }
        }
        let mut next = *state;
        setup.release(&mut next, state.current());
        self.leave(&mut next);
        take(&"the client releases", next);
        if over && setup.abandons_leases {
            let mut next = *state;
            self.leave(&mut next);
            take(&"the client gives up its lease", next);
        }
    }

    fn leave(&self, state: &mut State) {
        self.register_current(state, false);
        state.phase = Phase::Idle;
    }

    /// Registers the current lease for all nodes, or unregisters it.
    fn register_current(&self, state: &mut State, wanted: bool) {
        let setup = self.setup;
        let number = setup.number(state, state.current());
        let terms = setup.terms(state.max_hold, Setup::client_now());
        for node in self.nodes() {
            let mut link = self.link(state, state.run.into(), node);
            match wanted {
                true => link.session.register(number, terms, ()),
                false => link.session.unregister(number),
            };
            self.put_link(state, state.run.into(), node, link);
        }
    }

    /// The client connects, sends a message, or closes the connection.
    pub(super) fn send_messages(&self, state: &State, node: usize, take: Take<'_, State>) {
        if !state.main {
            return;
        }
        let label = label(node);
        let run = usize::from(state.run);
        let link = self.link(state, run, node);
        let now = Setup::client_now();
        let mut to = |step: &str, link: Link, lost: u8| {
            let mut next = *state;
            next.lost_connections -= lost;
            self.put_link(&mut next, run, node, link);
            take(&format_args!("{step} {label}"), next);
        };
        if !link.open {
            let mut link = link;
            link.open = true;
            if self.setup.registers_current_only {
                link.session = self.session_of(state);
            }
            link.session.connected(0, now);
            link.messages.push(Message::Hello);
            to("the client connects to", link, 0);
            return;
        }
        if link.messages.is_empty() {
            let mut link = link.clone();
            if let Some(message) = self.next_message(state, &mut link) {
                link.send(message);
                to("the client sends a message to", link, 0);
            }
        }
        // To notice the end is no further fault.
        let lost = u8::from(!link.severed);
        if lost <= state.lost_connections {
            let mut link = link;
            link.close();
            link.session.disconnected(false, now, 0.0);
            to("the client loses its connection to", link, lost);
        }
    }

    /// The next message: changes first.
    fn next_message(&self, state: &State, link: &mut Link) -> Option<Message> {
        match link.session.poll(Setup::client_now()) {
            SessionAction::Changes(changes) => {
                let register = changes.register.into_iter();
                let register = register.map(|(number, ..)| (number, state.max_hold));
                let (batch, register) = (changes.batch, register.collect());
                Some(Message::Changes(batch, register, changes.unregister))
            }
            SessionAction::Heartbeat => Some(Message::Heartbeat),
            // A client that gives up has other leases, or it would be silent.
            _ => self.setup.abandons_leases.then_some(Message::Heartbeat),
        }
    }

    /// A session with the current lease alone.
    fn session_of(&self, state: &State) -> NodeSession<()> {
        let mut session = NodeSession::default();
        if state.phase == Phase::Holding {
            let terms = self.setup.terms(state.max_hold, Setup::client_now());
            session.register(self.setup.number(state, state.current()), terms, ());
        }
        session
    }

    pub(super) fn rival(&self, state: &State, take: Take<'_, State>) {
        let mut next = *state;
        if state.holder == FREE && self.setup.acquire(&mut next, RIVAL) {
            let relied_on = (1..=self.setup.ttl).take_while(|age| self.setup.is_relied_on(*age));
            next.rival = relied_on.count() as u8 + 1;
            take(&"the rival is granted the lock", next);
        }
        if state.rival > 0 {
            let mut next = *state;
            next.rival = 0;
            self.setup.release(&mut next, RIVAL);
            take(&"the rival releases", next);
        }
    }
}

impl Link {
    /// The node closes it.
    pub(super) fn sever(&mut self) {
        self.severed = true;
        self.messages.clear();
    }

    fn send(&mut self, message: Message) {
        if !self.severed {
            self.messages.push(message);
        }
    }

    /// Closes it on the client's side. Its messages may still arrive.
    fn close(&mut self) {
        let messages = std::mem::take(&mut self.messages);
        if self.open && !self.severed {
            self.closing = Some(messages);
        }
        self.open = false;
        self.severed = false;
    }
}
