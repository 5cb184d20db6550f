//! What can happen next.

use std::fmt;
use std::sync::atomic::Ordering;

use super::rule::TICK;
use super::setup::MAX_PAUSE;
use super::state::{Course, EVER, Flight, HOST, Kind, LIVES, NOBODY, Stand, State};
use super::{Broken, Watchdog};

/// What is told of a step.
pub(super) type Take<'a> = &'a mut dyn FnMut(&dyn fmt::Display, State);

/// What a model must reach, or it shows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A holder whose own time was over heard that the lease was still its own.
    WentOn = 1,
    /// A node has released a dead client's lease.
    Released = 2,
    /// A client was silent for too long.
    Abandoned = 4,
    /// A late deed has changed nothing.
    LateForNothing = 8,
    /// A node kept a lease while the other one was slow or gone.
    KeptByOne = 16,
    /// A lease was kept for a child whose program was dead.
    KeptForChild = 32,
}

impl Mark {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::WentOn,
        Self::Released,
        Self::Abandoned,
        Self::LateForNothing,
        Self::KeptByOne,
        Self::KeptForChild,
    ];
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WentOn => "a holder goes on after a pause",
            Self::Released => "a dead client's lease is released",
            Self::Abandoned => "a silent client is given up",
            Self::LateForNothing => "a late deed changes nothing",
            Self::KeptByOne => "one node keeps a lease without the other",
            Self::KeptForChild => "a lease is kept for a child",
        })
    }
}

impl Watchdog {
    pub(super) fn all_steps(&self, state: &State, take: Take<'_>) {
        self.client(state, take);
        self.rival(state, take);
        for node in self.nodes() {
            self.speak(state, node, take);
            for life in 0..LIVES {
                self.listen(state, life, node, take);
            }
            self.act(state, node, take);
        }
        self.late(state, take);
        if !self.nodes().any(|node| self.is_busy(state, node)) {
            take(&"a tick", self.tick(state));
        }
    }

    /// Whether a node that is in time has something to do before the tick is over.
    fn is_busy(&self, state: &State, node: usize) -> bool {
        if !state.is_timely(node) {
            return false;
        }
        let mut flights = state.flights.iter();
        let waits = |flight: &Flight| matches!(flight, Flight::Some { node: of, .. } if usize::from(*of) == node);
        flights.any(waits)
            || (0..LIVES).any(|life| {
                let link = self.link(state, life, node);
                let charge = self.charge(state, life, node);
                let before = link.before.is_some_and(|words| !words.is_empty());
                before
                    || !link.words.is_empty()
                    || charge.is_some_and(|charge| {
                        self.is_proof(state, life, node, &charge) || self.is_due(&charge)
                    })
            })
    }

    /// Time passes for everybody.
    fn tick(&self, state: &State) -> State {
        let mut next = *state;
        self.judge_release(&mut next);
        next.left = next.left.saturating_sub(1);
        if next.left == 0 {
            next.holder = NOBODY;
        }
        next.rival = next.rival.saturating_sub(1);
        if next.stand != Stand::Idle {
            next.age = self.setup.ttl.min(next.age + 1);
        }
        for silent in &mut next.silent {
            *silent = MAX_PAUSE.min(*silent + 1);
        }
        if next.keep != EVER {
            next.keep = next.keep.saturating_sub(1);
        }
        for flight in &mut next.flights {
            // Only of a renewal is it asked later when it was sent.
            if let Flight::Some {
                age,
                kind: Kind::Renew,
                course: Course::Sent | Course::Renewed,
                ..
            } = flight
            {
                *age = self.setup.ttl.min(*age + 1);
            }
        }
        for life in 0..LIVES {
            for node in self.nodes() {
                if let Some(mut charge) = self.charge(&next, life, node) {
                    charge.back(TICK, self.setup.node_now());
                    self.put_charge(&mut next, life, node, Some(charge));
                }
                let mut link = self.link(&next, life, node);
                link.registry.back(TICK);
                self.put_link(&mut next, life, node, link);
            }
        }
        next.unwanted = (next.unwanted + 1).min(self.longest_unwanted() + 1);
        next
    }

    /// A lease of the dead is gone before the tick is over if the node on their host is in time.
    fn judge_release(&self, state: &mut State) {
        if state.holder >= NOBODY || !state.is_timely(HOST) || state.slack < self.setup.slack {
            return;
        }
        let life = state.life_of(state.holder);
        let number = self.setup.number(state, state.holder);
        let charge = self.charge(state, life, HOST);
        let known = charge.is_some_and(|charge| charge.lease(number).is_some());
        if !state.lives(life) && known {
            state.broken |= Broken::Stuck as u8;
        }
    }

    pub(super) fn mark(&self, mark: Mark) {
        self.marks.fetch_or(mark as u32, Ordering::Relaxed);
    }
}
