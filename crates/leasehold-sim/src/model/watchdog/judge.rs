//! What must be true of deeds and of states.

use std::time::Duration;

use leasehold_core::watchdog::Liveness;

use super::Watchdog;
use super::rule::TICK;
use super::setup::{MAX_PAUSE, Verdict};
use super::state::{EVER, Kind, LIVES, NOBODY, NODES, Stand, State};
use super::steps::Mark;

/// What a step has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// A lease of a living client was released by a node.
    Living = 1,
    /// A deed touched another's lease.
    Foreign = 2,
    /// A deed made a lease hold the lock again.
    Revived = 4,
    /// A lease was renewed that was not to be any more.
    Longer = 8,
    /// A lease of the dead was not released at once.
    Stuck = 16,
}

impl Watchdog {
    /// Looks at what a deed has done.
    pub(super) fn judge_deed(&self, before: &State, after: &mut State, of: u8, kind: Kind) {
        let life = before.life_of(of);
        let lives = before.lives(life);
        let same = before.holder == after.holder && before.left == after.left;
        if same {
            return;
        }
        if before.holder == NOBODY {
            after.broken |= Broken::Revived as u8;
        } else if before.holder != of {
            after.broken |= Broken::Foreign as u8;
        }
        match kind {
            Kind::Release if before.holder == of && lives => after.broken |= Broken::Living as u8,
            Kind::Release => self.mark(Mark::Released),
            Kind::Renew if before.is_wanted(of) && before.stand == Stand::Holding => {
                if !before.main {
                    self.mark(Mark::KeptForChild);
                }
            }
            Kind::Renew => {}
        }
    }

    /// Whether two rely on the lock.
    pub(super) fn is_shared(&self, state: &State) -> bool {
        let holds = state.main && state.stand == Stand::Holding;
        let relies = self.setup.rules.trusting || self.setup.is_relied_on(state.age);
        holds && relies && state.rival > 0
    }

    /// Whether a lease has ended that a node in time could have kept.
    pub(super) fn is_dropped(&self, state: &State) -> bool {
        let held = state.stand == Stand::Holding && state.keep > 0;
        if !held || state.holder == state.current() {
            return false;
        }
        let kept = state.timely & state.watched & state.sound;
        let in_time = |node: usize| kept & 1 << node != 0 && state.silent[node] < MAX_PAUSE;
        state.lives(state.life.into()) && self.nodes().any(in_time)
    }

    /// A node has heard a word, and has been told to look after the current lease, or not to, or neither.
    pub(super) fn judge_word(&self, state: &mut State, node: usize, watched: Option<bool>) {
        let bit = 1 << node;
        let held = state.stand == Stand::Holding && state.holder == state.current();
        let well = held && state.left + self.setup.interval >= self.setup.ttl;
        match well || self.setup.rules.boasting {
            true => state.sound |= bit,
            false => state.sound &= !bit,
        }
        match watched {
            Some(true) => state.watched |= bit,
            Some(false) => state.watched &= !bit,
            None => {}
        }
        state.silent[node] = 0;
    }

    /// Whether a node says that a lease is kept for longer than it is.
    pub(super) fn is_promised_falsely(&self, state: &State) -> bool {
        if !state.main || state.stand != Stand::Holding {
            return false;
        }
        let now = self.setup.node_now();
        let life = usize::from(state.life);
        let number = self.setup.number(state, state.current());
        let left = match state.holder == state.current() {
            true => TICK * u32::from(state.left),
            false => Duration::ZERO,
        };
        self.nodes().any(|node| {
            let charge = self.charge(state, life, node);
            let kept = charge.and_then(|charge| charge.kept_until(number));
            kept.is_some_and(|kept| now.until(kept) > left)
        })
    }

    /// For how many ticks at most a lease holds the lock that nobody wants, after the last word.
    pub(super) fn longest_unwanted(&self) -> u8 {
        MAX_PAUSE + self.setup.ttl
    }

    /// Whether a lease holds the lock for too long that nobody wants.
    pub(super) fn is_stuck(&self, state: &State) -> bool {
        state.unwanted > self.longest_unwanted()
    }

    /// Whether the lock is held by a lease of the program's that nobody wants.
    fn is_unwanted(&self, state: &State) -> bool {
        state.holder < NOBODY && !(state.is_wanted(state.holder) && state.lives(state.life.into()))
    }

    /// Leaves out what no step and no property can use any more.
    pub(super) fn forget_past(&self, state: &mut State) {
        let now = self.setup.node_now();
        if !self.is_unwanted(state) {
            state.unwanted = 0;
        }
        for life in 0..LIVES {
            for node in self.nodes() {
                let Some(charge) = self.charge(state, life, node) else {
                    continue;
                };
                if charge.liveness(now) == Liveness::Abandoned && !charge.is_empty() {
                    self.mark(Mark::Abandoned);
                }
                if charge.is_finished(now) {
                    self.put_charge(state, life, node, None);
                }
            }
        }
        if state.stand != Stand::Holding {
            state.watched = 0;
        }
        for node in 0..NODES {
            if state.silent[node] >= MAX_PAUSE {
                state.watched &= !(1 << node);
            }
            if state.watched & 1 << node == 0 {
                state.sound &= !(1 << node);
                state.silent[node] = MAX_PAUSE;
            }
        }
        if state.stand == Stand::Idle {
            (state.age, state.keep) = (0, EVER);
        }
        state.flights.sort_unstable();
        state.late.sort_unstable();
        if self.setup.rules.verdict == Verdict::Proof && state.acquired == 0 {
            state.unwanted = 0;
        }
    }
}
