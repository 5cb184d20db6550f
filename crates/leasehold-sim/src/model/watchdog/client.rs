//! What the client's program and its rival do.

use leasehold_core::watchdog::Registrations;

use super::Watchdog;
use super::setup::Setup;
use super::state::{EVER, Link, NOBODY, RIVAL, Stand, State, Word};
use super::steps::{Mark, Take};

impl Watchdog {
    pub(super) fn client(&self, state: &State, take: Take<'_>) {
        if state.main {
            self.hold(state, take);
            if state.acquired > 0 {
                take(&"the program dies", self.ended(state, true));
            }
        } else if state.life + 1 < self.setup.lives {
            let mut next = *state;
            next.life += 1;
            next.main = true;
            next.watched = 0;
            next.stand = Stand::Idle;
            take(&"the program runs again", next);
        }
        if state.child && state.acquired > 0 {
            take(&"its child dies", self.ended(state, false));
        }
    }

    /// A process of it ends, and with the last one whatever was held.
    fn ended(&self, state: &State, main: bool) -> State {
        let mut next = *state;
        if main {
            next.main = false;
            for node in self.nodes() {
                let mut link = self.link(state, state.life.into(), node);
                link.close();
                link.registry = Default::default();
                self.put_link(&mut next, state.life.into(), node, link);
            }
        } else {
            next.child = false;
        }
        let alone = next.life == 0 && next.child && next.stand == Stand::Holding;
        if !next.main && !alone {
            next.stand = Stand::Idle;
        }
        next
    }

    fn hold(&self, state: &State, take: Take<'_>) {
        let setup = self.setup;
        match state.stand {
            Stand::Idle if state.acquired < setup.acquisitions => {
                let mut next = *state;
                next.lives[usize::from(state.acquired)] = state.life;
                if setup.acquire(&mut next, state.acquired) {
                    next.acquired += 1;
                    next.stand = Stand::Granted;
                    next.age = 0;
                    next.keep = setup.keep.unwrap_or(EVER);
                    take(&"the client is granted the lock", next);
                }
            }
            Stand::Idle => {}
            Stand::Granted if setup.is_relied_on(state.age) => {
                let mut next = *state;
                next.stand = Stand::Holding;
                self.tell_registries(&mut next, true);
                take(&"the client hears that it holds the lock", next);
            }
            Stand::Granted => {
                let mut next = *state;
                next.stand = Stand::Idle;
                setup.release(&mut next, state.current());
                take(&"the client hears too late that it was granted", next);
            }
            Stand::Holding => self.keep(state, take),
        }
    }

    fn keep(&self, state: &State, take: Take<'_>) {
        let setup = self.setup;
        let over = !setup.is_relied_on(state.age);
        if state.age > 0 && state.keep > 0 {
            let mut next = *state;
            if setup.renew(&mut next, state.current()) {
                next.age = 0;
                if over {
                    self.mark(Mark::WentOn);
                }
                take(&"the client renews", next);
            } else {
                self.leave(&mut next);
                take(&"the client hears that its lease is lost", next);
            }
        }
        let mut next = *state;
        setup.release(&mut next, state.current());
        self.leave(&mut next);
        take(&"the client releases", next);
        if over && setup.gives_up {
            let mut next = *state;
            self.leave(&mut next);
            take(&"the client gives its lease up", next);
        }
    }

    fn leave(&self, state: &mut State) {
        self.tell_registries(state, false);
        state.stand = Stand::Idle;
    }

    /// Tells the registries of all nodes that the current lease is wanted, or not any more.
    fn tell_registries(&self, state: &mut State, wanted: bool) {
        let setup = self.setup;
        let number = setup.number(state, state.current());
        let terms = setup.terms(state.keep, Setup::client_now());
        for node in self.nodes() {
            let mut link = self.link(state, state.life.into(), node);
            match wanted {
                true => link.registry.register(number, terms, ()),
                false => link.registry.unregister(number),
            }
            self.put_link(state, state.life.into(), node, link);
        }
    }

    /// What the client says to a node.
    pub(super) fn speak(&self, state: &State, node: usize, take: Take<'_>) {
        if !state.main {
            return;
        }
        let place = self.place(node);
        let life = usize::from(state.life);
        let link = self.link(state, life, node);
        let now = Setup::client_now();
        let mut to = |step: &str, link: Link, ends: u8| {
            let mut next = *state;
            next.ends -= ends;
            self.put_link(&mut next, life, node, link);
            take(&format_args!("{step} {place}"), next);
        };
        if !link.open {
            let mut link = link;
            link.open = true;
            if self.setup.rules.forgetful {
                link.registry = self.registry_of(state);
            }
            link.registry.connected(now);
            link.words.push(Word::Hello);
            to("the client connects to", link, 0);
            return;
        }
        if link.words.len() < self.setup.words {
            let mut link = link.clone();
            if let Some(word) = self.word(state, &mut link) {
                link.say(word);
                to("the client speaks to", link, 0);
            }
        }
        // To hear of what has happened is no new fault.
        let ends = u8::from(!link.severed);
        if ends <= state.ends {
            let mut link = link;
            link.close();
            link.registry.disconnected();
            to("for the client the connection ends to", link, ends);
        }
    }

    /// What is to be said: news first.
    fn word(&self, state: &State, link: &mut Link) -> Option<Word> {
        let now = Setup::client_now();
        if !link.registry.has_changes() {
            // Who gives up has other leases to look after, or it would be silent.
            let beats = link.registry.heartbeat(now) || self.setup.gives_up;
            return beats.then_some(Word::Beat);
        }
        let changes = link.registry.next_changes(usize::MAX, now)?;
        let register = changes.register.into_iter();
        let register = register.map(|(number, ..)| (number, state.keep));
        Some(Word::Changes {
            batch: changes.batch,
            register: register.collect(),
            unregister: changes.unregister,
        })
    }

    /// A registry that knows only what is wanted now.
    fn registry_of(&self, state: &State) -> Registrations<()> {
        let mut registry = Registrations::default();
        if state.stand == Stand::Holding {
            let terms = self.setup.terms(state.keep, Setup::client_now());
            registry.register(self.setup.number(state, state.current()), terms, ());
        }
        registry
    }

    pub(super) fn rival(&self, state: &State, take: Take<'_>) {
        let mut next = *state;
        if state.holder == NOBODY && self.setup.acquire(&mut next, RIVAL) {
            next.rival = (1..=self.setup.ttl)
                .take_while(|age| self.setup.is_relied_on(*age))
                .count() as u8
                + 1;
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
    fn say(&mut self, word: Word) {
        if !self.severed {
            self.words.push(word);
        }
    }

    /// The client's end of it is gone. What it said may still come.
    fn close(&mut self) {
        let words = std::mem::take(&mut self.words);
        if self.open && !self.severed {
            self.before = Some(words);
        }
        self.open = false;
        self.severed = false;
    }
}
