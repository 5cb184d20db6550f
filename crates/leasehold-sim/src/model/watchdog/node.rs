//! What a node hears and does.

use leasehold_core::watchdog::{ActionResult, ClientMonitor, Liveness, WatchdogAction};

use super::Broken;
use super::Watchdog;
use super::rule::TICK;
use super::setup::Verdict;
use super::state::{Course, EVER, Flight, HOST, Kind, LIVES, Late, Link, State, Word};
use super::steps::{Mark, Take};

impl Watchdog {
    /// What comes over the connections of a life.
    pub(super) fn listen(&self, state: &State, life: usize, node: usize, take: Take<'_>) {
        let place = self.place(node);
        let link = self.link(state, life, node);
        if let Some(before) = &link.before {
            let mut link = link.clone();
            let mut next = *state;
            if before.is_empty() {
                link.before = None;
                self.end_seen(&mut next, life, node);
            } else {
                let words = link.before.get_or_insert_default();
                let word = words.remove(0);
                self.hear(&mut next, life, node, word);
            }
            self.put_link(&mut next, life, node, link);
            take(
                &format_args!("{place} reads on from a closed connection"),
                next,
            );
        }
        if !link.words.is_empty() {
            let mut link = link.clone();
            let mut next = *state;
            let word = link.words.remove(0);
            if word == Word::Hello {
                // Whatever came over the one before is the past.
                link.before = None;
            }
            if let Word::Changes { batch, .. } = word {
                link.registry.acknowledged(batch, &[]);
            }
            self.put_link(&mut next, life, node, link);
            self.hear(&mut next, life, node, word);
            take(&format_args!("{place} hears the client"), next);
        }
        if state.ends > 0 && link.open && !link.severed && self.charge(state, life, node).is_some()
        {
            let mut next = *state;
            next.ends -= 1;
            let link = Link {
                severed: true,
                words: Vec::new(),
                ..link
            };
            self.put_link(&mut next, life, node, link);
            self.end_seen(&mut next, life, node);
            take(&format_args!("for {place} the connection ends"), next);
        }
    }

    /// A node hears a word.
    fn hear(&self, state: &mut State, life: usize, node: usize, word: Word) {
        let now = self.setup.node_now();
        let mut charge = match (self.charge(state, life, node), &word) {
            (Some(charge), _) => charge,
            (None, Word::Hello) => self.setup.charge(node),
            (None, _) => return,
        };
        if !state.lives(life) || word == Word::Hello {
            state.unwanted = 0;
        }
        let mut watched = None;
        match word {
            Word::Hello => charge.connected(now),
            Word::Beat => charge.message_received(now),
            Word::Changes {
                register,
                unregister,
                ..
            } => {
                charge.message_received(now);
                let current = self.setup.number(state, state.current());
                if unregister.contains(&current) {
                    watched = Some(false);
                }
                if register.iter().any(|(number, _)| *number == current) {
                    watched = Some(true);
                }
                for (number, keep) in register {
                    charge.register(number, self.setup.terms(keep, now), (), now);
                }
                let heeded = unregister.iter().filter(|_| self.setup.rules.heeded);
                heeded.for_each(|number| charge.unregister(*number));
            }
        }
        self.put_charge(state, life, node, Some(charge));
        if usize::from(state.life) == life {
            self.judge_word(state, node, watched);
        }
    }

    /// A node sees that a connection is over.
    fn end_seen(&self, state: &mut State, life: usize, node: usize) {
        let Some(mut charge) = self.charge(state, life, node) else {
            return;
        };
        charge.disconnected();
        if node != HOST && usize::from(state.life) == life {
            state.watched &= !(1 << node);
        }
        if self.setup.rules.verdict == Verdict::Connection {
            charge.died(self.setup.node_now());
        }
        self.put_charge(state, life, node, Some(charge));
    }

    /// What a node sees and does by itself.
    pub(super) fn act(&self, state: &State, node: usize, take: Take<'_>) {
        let place = self.place(node);
        for life in 0..LIVES {
            let Some(charge) = self.charge(state, life, node) else {
                continue;
            };
            if self.is_proof(state, life, node, &charge) {
                let mut next = *state;
                let mut charge = charge.clone();
                charge.died(self.setup.node_now());
                self.put_charge(&mut next, life, node, Some(charge));
                take(&format_args!("{place} sees that the client is dead"), next);
            }
            if self.is_due(&charge) {
                let mut next = *state;
                let mut charge = charge;
                let deeds = charge.poll(self.setup.node_now());
                let nothing = deeds.is_empty();
                if self.send(&mut next, life, node, &charge, deeds) {
                    self.put_charge(&mut next, life, node, Some(charge));
                    let what = if nothing { "looks" } else { "acts" };
                    take(&format_args!("{place} {what}"), next);
                }
            }
        }
        for at in 0..state.flights.len() {
            self.fly(state, at, node, take);
        }
        if state.stops > 0 {
            let mut next = *state;
            next.stops -= 1;
            self.stop(&next, node, take);
        }
        if state.slow > 0 && state.is_timely(node) {
            let mut next = *state;
            next.slow -= 1;
            next.timely &= !(1 << node);
            take(&format_args!("{place} is slow from now on"), next);
        }
    }

    /// Whether the processes of a life are gone that a node looks at, and it has not seen that yet.
    pub(super) fn is_proof(
        &self,
        state: &State,
        life: usize,
        node: usize,
        charge: &ClientMonitor<()>,
    ) -> bool {
        let gone = match self.setup.rules.verdict {
            Verdict::Main => !state.main_lives(life),
            _ => !state.lives(life),
        };
        node == HOST && gone && charge.liveness(self.setup.node_now()) != Liveness::Dead
    }

    /// Whether a charge asks to be polled.
    pub(super) fn is_due(&self, charge: &ClientMonitor<()>) -> bool {
        let now = self.setup.node_now();
        charge.next_event(now).is_some_and(|next| next <= now)
    }

    /// Sends deeds to the store, if there is room for them.
    fn send(
        &self,
        state: &mut State,
        life: usize,
        node: usize,
        charge: &ClientMonitor<()>,
        deeds: Vec<(u64, WatchdogAction)>,
    ) -> bool {
        for (number, deed) in deeds {
            let Some(acquisition) = self.setup.numbered(state, life, number) else {
                continue;
            };
            let kind = match deed {
                WatchdogAction::Renew(_) => Kind::Renew,
                WatchdogAction::Release(_) => Kind::Release,
            };
            if kind == Kind::Renew {
                self.judge_renewal(state, acquisition, node, charge);
            }
            let sent = state.fly(Flight::Some {
                node: node as u8,
                acquisition,
                kind,
                age: 0,
                course: Course::Sent,
            });
            if !sent {
                return false;
            }
        }
        true
    }

    /// What can become of a deed.
    fn fly(&self, state: &State, at: usize, of: usize, take: Take<'_>) {
        let Flight::Some {
            node,
            acquisition,
            kind,
            age,
            course,
        } = state.flights[at]
        else {
            return;
        };
        let node = usize::from(node);
        if node != of {
            return;
        }
        let place = self.place(node);
        let what = told(kind);
        let deed = (acquisition, kind, age);
        let timely = state.is_timely(node);
        if course != Course::Sent {
            let mut next = *state;
            let end = match course {
                Course::Renewed => ActionResult::Renewed,
                _ => ActionResult::NotHeld,
            };
            next.flights[at] = Flight::None;
            self.answer(&mut next, node, deed, end);
            take(&format_args!("{place} hears of its {what}"), next);
            return;
        }
        let mut next = *state;
        let end = match self.deed(&mut next, acquisition, kind) {
            true => ActionResult::Renewed,
            false => ActionResult::NotHeld,
        };
        if !timely {
            // It may have been sent long ago.
            next.unwanted = 0;
        }
        if timely {
            let mut others = self.nodes().filter(|other| *other != node);
            if end == ActionResult::Renewed && others.any(|other| !state.is_timely(other)) {
                self.mark(Mark::KeptByOne);
            }
            next.flights[at] = Flight::None;
            self.answer(&mut next, node, deed, end);
        } else if let Flight::Some { course, .. } = &mut next.flights[at] {
            *course = match end {
                ActionResult::Renewed => Course::Renewed,
                _ => Course::Over,
            };
        }
        take(&format_args!("the store does the {what} of {place}"), next);
        let slack = u8::from(timely);
        if slack <= state.slack {
            let mut next = *state;
            next.slack -= slack;
            next.flights[at] = Flight::None;
            self.answer(&mut next, node, deed, ActionResult::Failed);
            if !self.setup.has_slack() {
                next.sound &= !(1 << node);
            }
            if slack > 0 {
                take(&format_args!("the {what} of {place} fails"), next);
            }
            if next.fly_late(acquisition, kind) {
                take(&format_args!("{place} waits no more for its {what}"), next);
            }
        }
    }

    /// Tells a node what became of a deed.
    fn answer(&self, state: &mut State, node: usize, deed: (u8, Kind, u8), end: ActionResult) {
        let (acquisition, kind, age) = deed;
        let life = state.life_of(acquisition);
        let Some(mut charge) = self.charge(state, life, node) else {
            return;
        };
        let now = self.setup.node_now();
        let ttl = self.setup.ttl();
        let deed = match kind {
            Kind::Renew => WatchdogAction::Renew(ttl),
            Kind::Release => WatchdogAction::Release(ttl),
        };
        let sent = match self.setup.rules.from_answer {
            true => now,
            false => now.before(TICK * u32::from(age)),
        };
        charge.handle_result(self.setup.number(state, acquisition), deed, end, sent, now);
        self.put_charge(state, life, node, Some(charge));
    }

    /// Deeds that nobody waits for come when they like.
    pub(super) fn late(&self, state: &State, take: Take<'_>) {
        for at in 0..state.late.len() {
            if let Late::Some { acquisition, kind } = state.late[at] {
                let mut next = *state;
                next.late[at] = Late::None;
                next.unwanted = 0;
                self.deed(&mut next, acquisition, kind);
                if next.holder == state.holder && next.left == state.left {
                    self.mark(Mark::LateForNothing);
                }
                take(&format_args!("the store does a late {}", told(kind)), next);
            }
        }
    }

    /// A node does something to the store.
    fn deed(&self, state: &mut State, acquisition: u8, kind: Kind) -> bool {
        let before = *state;
        let renewed = self.setup.deed(state, acquisition, kind);
        self.judge_deed(&before, state, acquisition, kind);
        renewed
    }

    /// A node ends, and another begins in its place that knows nothing: at once, or in good order.
    fn stop(&self, state: &State, node: usize, take: Take<'_>) {
        let place = self.place(node);
        let mut next = *state;
        let mut handed = *state;
        for life in 0..LIVES {
            if let Some(mut charge) = self.charge(state, life, node) {
                for (number, deed) in charge.hand_over(self.setup.node_now()) {
                    if let Some(acquisition) = self.setup.numbered(state, life, number)
                        && matches!(deed, WatchdogAction::Renew(_))
                    {
                        self.judge_renewal(&mut handed, acquisition, node, &charge);
                        self.deed(&mut handed, acquisition, Kind::Renew);
                    }
                }
            }
        }
        self.forget(&mut next, node);
        take(&format_args!("{place} is killed and begins again"), next);
        if handed != *state {
            self.forget(&mut handed, node);
            take(&format_args!("{place} hands over and begins again"), handed);
        }
    }

    fn forget(&self, state: &mut State, node: usize) {
        state.watched &= !(1 << node);
        for life in 0..LIVES {
            self.put_charge(state, life, node, None);
            let link = self.link(state, life, node);
            let severed = link.open;
            let link = Link {
                severed,
                words: Vec::new(),
                before: None,
                ..link
            };
            self.put_link(state, life, node, link);
        }
        for at in 0..state.flights.len() {
            if let Flight::Some {
                node: of,
                acquisition,
                kind,
                course,
                ..
            } = state.flights[at]
                && usize::from(of) == node
            {
                state.flights[at] = Flight::None;
                if course == Course::Sent {
                    state.fly_late(acquisition, kind);
                }
            }
        }
    }

    /// A renewal that is sent must be one that may be.
    fn judge_renewal(
        &self,
        state: &mut State,
        acquisition: u8,
        node: usize,
        charge: &ClientMonitor<()>,
    ) {
        let silent = self.setup.node_now().since(charge.last_received());
        let max_pause = TICK * u32::from(super::setup::MAX_PAUSE);
        let kept = acquisition == state.current() && state.keep != EVER;
        let over = kept && state.keep == 0 && state.is_timely(node);
        if silent >= max_pause || over {
            state.broken |= Broken::Longer as u8;
        }
    }
}

fn told(kind: Kind) -> &'static str {
    match kind {
        Kind::Renew => "renewal",
        Kind::Release => "release",
    }
}
