//! The steps of a node.

use leasehold_core::watchdog::{ActionResult, Liveness, WatchdogAction};

use super::rule::TICK;
use super::setup::{DeathProof, MAX_PAUSE};
use super::state::{HOST, InFlight, Kind, Message, RUNS, State, UNLIMITED};
use super::{Monitor, Property, Take, Watchdog, label};

impl Watchdog {
    /// The node reads the connections of a run.
    pub(super) fn read_connections(
        &self,
        state: &State,
        run: usize,
        node: usize,
        take: Take<'_, State>,
    ) {
        let label = label(node);
        let link = self.link(state, run, node);
        if link.closing.is_some() {
            let mut link = link.clone();
            let mut next = *state;
            match &mut link.closing {
                Some(messages) if !messages.is_empty() => {
                    let message = messages.remove(0);
                    self.receive(&mut next, run, node, message);
                }
                closing => {
                    *closing = None;
                    self.detect_end(&mut next, run, node);
                }
            }
            self.put_link(&mut next, run, node, link);
            let step = format_args!("{label} reads from a closed connection");
            take(&step, next);
        }
        if !link.messages.is_empty() {
            let mut link = link.clone();
            let mut next = *state;
            let message = link.messages.remove(0);
            if message == Message::Hello {
                // The messages of the earlier connection are outdated.
                link.closing = None;
            }
            if let Message::Changes(batch, ..) = message {
                let _ = link.session.acknowledged(batch, &[]);
            }
            self.put_link(&mut next, run, node, link);
            self.receive(&mut next, run, node, message);
            take(&format_args!("{label} receives a message"), next);
        }
        let is_known = link.open && !link.severed && self.monitor(state, run, node).is_some();
        if state.lost_connections > 0 && is_known {
            let mut next = *state;
            next.lost_connections -= 1;
            let mut link = link;
            link.sever();
            self.put_link(&mut next, run, node, link);
            self.detect_end(&mut next, run, node);
            take(&format_args!("{label} loses its connection"), next);
        }
    }

    /// A node receives a message.
    fn receive(&self, state: &mut State, run: usize, node: usize, message: Message) {
        let now = self.setup.node_now();
        let mut monitor = match (self.monitor(state, run, node), &message) {
            (Some(monitor), _) => monitor,
            (None, Message::Hello) => self.setup.monitor(node),
            (None, _) => return,
        };
        if !state.is_living(run) || message == Message::Hello {
            state.unwanted = 0;
        }
        let mut watched = None;
        match message {
            Message::Hello => monitor.connected(now),
            Message::Heartbeat => monitor.message_received(now),
            Message::Changes(_, register, unregister) => {
                monitor.message_received(now);
                let current = self.setup.number(state, state.current());
                let unregistered = unregister.contains(&current).then_some(false);
                let registered = register.iter().any(|(number, _)| *number == current);
                watched = registered.then_some(true).or(unregistered);
                for (number, max_hold) in register {
                    monitor.register(number, self.setup.terms(max_hold, now), (), now);
                }
                let unregisters = unregister.iter().filter(|_| self.setup.unregisters);
                unregisters.for_each(|number| monitor.unregister(*number));
            }
        }
        self.put_monitor(state, run, node, Some(monitor));
        if usize::from(state.run) == run {
            self.observe_message(state, node, watched);
        }
    }

    /// A node detects the end of a connection.
    fn detect_end(&self, state: &mut State, run: usize, node: usize) {
        let Some(mut monitor) = self.monitor(state, run, node) else {
            return;
        };
        monitor.disconnected();
        if node != HOST && usize::from(state.run) == run {
            state.watched &= !(1 << node);
        }
        if self.setup.death_proof == DeathProof::Connection {
            monitor.died(self.setup.node_now());
        }
        self.put_monitor(state, run, node, Some(monitor));
    }

    /// The node detects a death, sends its actions, and fails.
    pub(super) fn act(&self, state: &State, node: usize, take: Take<'_, State>) {
        let label = label(node);
        for run in 0..RUNS {
            let Some(monitor) = self.monitor(state, run, node) else {
                continue;
            };
            if self.detects_death(state, run, node, &monitor) {
                let (mut next, mut monitor) = (*state, monitor.clone());
                monitor.died(self.setup.node_now());
                self.put_monitor(&mut next, run, node, Some(monitor));
                let step = format_args!("{label} detects the death of the client");
                take(&step, next);
            }
            if self.is_due(&monitor) {
                let (mut next, mut monitor) = (*state, monitor);
                let actions = monitor.poll(self.setup.node_now());
                let what = match actions[..] {
                    [] => "does nothing",
                    _ => "sends its actions",
                };
                if self.send(&mut next, run, node, &monitor, actions) {
                    self.put_monitor(&mut next, run, node, Some(monitor));
                    take(&format_args!("{label} {what}"), next);
                }
            }
        }
        for at in 0..state.in_flight.len() {
            self.advance(state, at, node, take);
        }
        if state.node_restarts > 0 {
            let mut next = *state;
            next.node_restarts -= 1;
            self.stop(&next, node, take);
        }
        if state.slow_nodes > 0 && state.is_timely(node) {
            let mut next = *state;
            next.slow_nodes -= 1;
            next.timely &= !(1 << node);
            take(&format_args!("{label} is slow from now on"), next);
        }
    }

    /// Whether a node has not yet detected the death of a run.
    pub(super) fn detects_death(
        &self,
        state: &State,
        run: usize,
        node: usize,
        monitor: &Monitor,
    ) -> bool {
        let dead = match self.setup.death_proof {
            DeathProof::Nothing => false,
            DeathProof::MainProcess => !state.is_main_living(run),
            _ => !state.is_living(run),
        };
        node == HOST && dead && monitor.liveness(self.setup.node_now()) != Liveness::Dead
    }

    /// Whether a monitor is to be polled.
    pub(super) fn is_due(&self, monitor: &Monitor) -> bool {
        let now = self.setup.node_now();
        monitor.next_event(now).is_some_and(|next| next <= now)
    }

    /// Sends actions to the store, if there is room for them.
    fn send(
        &self,
        state: &mut State,
        run: usize,
        node: usize,
        monitor: &Monitor,
        actions: Vec<(u64, WatchdogAction)>,
    ) -> bool {
        for (number, action) in actions {
            let Some(acquisition) = self.setup.numbered(state, run, number) else {
                continue;
            };
            let kind = match action {
                WatchdogAction::Renew(_) => Kind::Renew,
                WatchdogAction::Release(_) => Kind::Release,
            };
            if kind == Kind::Renew {
                self.check_renewal(state, acquisition, node, monitor);
            }
            let Some(free) = state.in_flight.iter_mut().find(|flight| flight.is_none()) else {
                return false;
            };
            *free = Some(InFlight {
                node: node as u8,
                acquisition,
                kind,
                age: 0,
                renewed: None,
            });
        }
        true
    }

    /// The store applies an action, the node receives the reply, or the action fails.
    fn advance(&self, state: &State, at: usize, node: usize, take: Take<'_, State>) {
        let Some(flight) = state.in_flight[at].filter(|flight| flight.is_sent_by(node)) else {
            return;
        };
        let mut next = *state;
        next.in_flight[at] = None;
        let Some(renewed) = flight.renewed else {
            self.apply_in_flight(state, at, flight, take);
            return self.fail(next, flight, take);
        };
        self.handle_reply(&mut next, flight, result(renewed));
        let step = format_args!("{} receives a reply: {:?}", label(node), flight.kind);
        take(&step, next);
    }

    /// The store applies an action. A timely node receives the reply immediately.
    fn apply_in_flight(&self, state: &State, at: usize, flight: InFlight, take: Take<'_, State>) {
        let node = usize::from(flight.node);
        let mut next = *state;
        let renewed = self.apply(&mut next, flight.acquisition, flight.kind);
        if state.is_timely(node) {
            next.in_flight[at] = None;
            self.handle_reply(&mut next, flight, result(renewed));
        } else {
            let renewed = Some(renewed);
            next.in_flight[at] = Some(InFlight { renewed, ..flight });
            // It may have been sent at any time before.
            next.unwanted = 0;
        }
        let step = format_args!("the store applies for {}: {:?}", label(node), flight.kind);
        take(&step, next);
    }

    /// An action fails. If the node gives it up, it may come late.
    fn fail(&self, mut next: State, flight: InFlight, take: Take<'_, State>) {
        let node = usize::from(flight.node);
        let failed = u8::from(next.is_timely(node));
        if failed > next.failed_actions {
            return;
        }
        next.failed_actions -= failed;
        self.handle_reply(&mut next, flight, ActionResult::Failed);
        if !self.setup.survives_failed_action() {
            next.healthy &= !(1 << node);
        }
        let (label, kind) = (label(node), flight.kind);
        if failed > 0 {
            take(&format_args!("{label}: {kind:?} fails"), next);
        }
        if next.add_late(flight.acquisition, kind) {
            take(&format_args!("{label} gives up: {kind:?}"), next);
        }
    }

    /// A node processes the reply to an action.
    fn handle_reply(&self, state: &mut State, flight: InFlight, result: ActionResult) {
        let (run, node) = (state.run_of(flight.acquisition), flight.node.into());
        let Some(mut monitor) = self.monitor(state, run, node) else {
            return;
        };
        let now = self.setup.node_now();
        let ttl = self.setup.ttl();
        let action = match flight.kind {
            Kind::Renew => WatchdogAction::Renew(ttl),
            Kind::Release => WatchdogAction::Release(ttl),
        };
        let sent = match self.setup.from_reply {
            true => now,
            false => now.before(TICK * u32::from(flight.age)),
        };
        let number = self.setup.number(state, flight.acquisition);
        monitor.handle_result(number, action, result, sent, now);
        self.put_monitor(state, run, node, Some(monitor));
    }

    /// Actions that were given up reach the store at any time.
    pub(super) fn late(&self, state: &State, take: Take<'_, State>) {
        for at in 0..state.late.len() {
            if let Some((acquisition, kind)) = state.late[at] {
                let mut next = *state;
                next.late[at] = None;
                next.unwanted = 0;
                self.apply(&mut next, acquisition, kind);
                take(&format_args!("the store applies late: {kind:?}"), next);
            }
        }
    }

    /// The store applies an action.
    fn apply(&self, state: &mut State, acquisition: u8, kind: Kind) -> bool {
        let before = *state;
        let renewed = self.setup.apply_action(state, acquisition, kind);
        self.check_action(&before, state, acquisition, kind);
        renewed
    }

    /// A node is restarted without its data: killed, or after a handover.
    fn stop(&self, state: &State, node: usize, take: Take<'_, State>) {
        let label = label(node);
        let mut next = *state;
        let mut handed = *state;
        for run in 0..RUNS {
            if let Some(mut monitor) = self.monitor(state, run, node) {
                for (number, action) in monitor.hand_over(self.setup.node_now()) {
                    if let Some(acquisition) = self.setup.numbered(state, run, number)
                        && matches!(action, WatchdogAction::Renew(_))
                    {
                        self.check_renewal(&mut handed, acquisition, node, &monitor);
                        self.apply(&mut handed, acquisition, Kind::Renew);
                    }
                }
            }
        }
        self.restart(&mut next, node);
        take(&format_args!("{label} is killed and restarted"), next);
        if handed != *state {
            self.restart(&mut handed, node);
            take(&format_args!("{label} hands over and is restarted"), handed);
        }
    }

    fn restart(&self, state: &mut State, node: usize) {
        state.watched &= !(1 << node);
        for run in 0..RUNS {
            self.put_monitor(state, run, node, None);
            let mut link = self.link(state, run, node);
            link.sever();
            (link.severed, link.closing) = (link.open, None);
            self.put_link(state, run, node, link);
        }
        for at in 0..state.in_flight.len() {
            if let Some(flight) = state.in_flight[at].filter(|flight| flight.is_sent_by(node)) {
                state.in_flight[at] = None;
                if flight.renewed.is_none() {
                    state.add_late(flight.acquisition, flight.kind);
                }
            }
        }
    }

    /// Checks that a renewal may be sent.
    fn check_renewal(&self, state: &mut State, acquisition: u8, node: usize, monitor: &Monitor) {
        let silent = self.setup.node_now().since(monitor.last_received());
        let max_pause = TICK * u32::from(MAX_PAUSE);
        let kept = acquisition == state.current() && state.max_hold != UNLIMITED;
        let over = kept && state.max_hold == 0 && state.is_timely(node);
        if silent >= max_pause || over {
            state.violate(Property::Bounded);
        }
    }
}

fn result(renewed: bool) -> ActionResult {
    match renewed {
        true => ActionResult::Renewed,
        false => ActionResult::NotHeld,
    }
}
