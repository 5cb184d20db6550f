//! A client that waits for its grant: the manners of the real driver, and none of its means.

use std::time::Duration;

use leasehold_core::{
    Action, Cause, ClientId, Grant, Instant, Lease, LeaseId, Notice, Op, Outcome, StoreTime, Token,
    Ttl,
};

use super::asking::{Asking, Step};
use super::counts::Counts;
use super::setup::Broken;
use crate::world::belief::Belief;
use crate::world::client::{Call, Caller};
use crate::world::farewell::Farewell;

/// How long a client waits for an answer: the library's default for longer ttls.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What a client is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Letter {
    Answer {
        number: u64,
        outcome: Outcome,
        now: StoreTime,
    },
    Notice(Notice),
}

#[derive(Debug)]
pub(super) struct Client {
    id: ClientId,
    ttl: Ttl,
    broken: Option<Broken>,
    leases: u64,
    caller: Caller,
    pub(super) counts: Counts,
    phase: Phase,
    farewells: Vec<Farewell>,
}

#[derive(Debug)]
enum Phase {
    Idle,
    Asking(Box<Asking>),
    Holding(Box<Holding>),
}

#[derive(Debug)]
struct Holding {
    lease: LeaseId,
    token: Token,
    machine: Lease,
    renewal: Option<Call>,
    until: Instant,
    /// Whether a question for it may still run late.
    unsure: bool,
}

impl Client {
    pub(super) fn new(id: ClientId, ttl: Ttl, broken: Option<Broken>) -> Self {
        Self {
            id,
            ttl,
            broken,
            leases: 0,
            caller: Caller::new(TIMEOUT.min(ttl.as_duration() / 6)),
            counts: Counts::default(),
            phase: Phase::Idle,
            farewells: Vec::new(),
        }
    }

    pub(super) const fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// The lease with which it waits, if it does.
    pub(super) fn waits_with(&self) -> Option<LeaseId> {
        match &self.phase {
            Phase::Asking(asking) => Some(asking.lease),
            _ => None,
        }
    }

    /// Whether a question of it is under way.
    pub(super) fn asks(&self) -> bool {
        matches!(&self.phase, Phase::Asking(asking) if asking.asks())
    }

    pub(super) fn belief(&self, now: Instant) -> Option<Belief> {
        match &self.phase {
            Phase::Holding(holding) if !holding.machine.state(now).is_lost() => Some(Belief {
                lease: holding.lease,
                token: holding.token,
            }),
            _ => None,
        }
    }

    /// What it wants to send.
    pub(super) fn outbox(&mut self) -> Vec<(u64, Op)> {
        std::mem::take(&mut self.caller.outbox)
    }

    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Idle => None,
            Phase::Asking(asking) => Some(asking.next_wake()),
            Phase::Holding(holding) => Some(holding.next_wake(now)),
        };
        let farewells = self.farewells.iter().map(Farewell::next_wake);
        farewells.chain(phase).min()
    }

    /// Begins to want the lock.
    pub(super) fn want(&mut self, now: Instant, patience: Duration, hold_for: Duration) {
        self.begin(now, (now.after(patience), hold_for));
    }

    /// Gives up what it waits for, or back what it holds.
    pub(super) fn leave(&mut self, now: Instant) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle => {}
            Phase::Asking(asking) => {
                self.counts.gave_up += 1;
                if asking.is_known() && self.broken != Some(Broken::NoLeave) {
                    self.release(asking.lease, asking.is_unsure(), now);
                }
            }
            Phase::Holding(holding) => self.release(holding.lease, holding.unsure, now),
        }
    }

    /// Its timer rang.
    pub(super) fn wake(&mut self, now: Instant) {
        let caller = &mut self.caller;
        self.farewells
            .retain_mut(|farewell| farewell.wake(caller, now));
        match &mut self.phase {
            Phase::Idle => {}
            Phase::Asking(asking) if now >= asking.gives_up => self.leave(now),
            Phase::Asking(asking) => {
                let step = asking.wake(&mut self.caller, &mut self.counts, now);
                self.go_on(step, now);
            }
            Phase::Holding(holding) => {
                if holding.wake(&mut self.caller, now) {
                    self.leave(now);
                }
            }
        }
    }

    /// Its connection broke, and it has a new one: what was under way is not answered any more.
    pub(super) fn interrupted(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Idle => {}
            Phase::Asking(asking) => {
                let step = asking.interrupted(&mut self.caller, &mut self.counts, now);
                self.go_on(step, now);
            }
            Phase::Holding(holding) => {
                if holding.renewal.take().is_some() {
                    holding.machine.renewal_failed(now, Cause::Unreachable);
                }
                holding.machine.interrupted(now);
                self.wake(now);
            }
        }
    }

    pub(super) fn read(&mut self, letter: Letter, now: Instant) {
        match letter {
            Letter::Notice(Notice::Granted(grant)) => self.granted(grant, now),
            Letter::Notice(Notice::Next { lease, ttl }) => match &mut self.phase {
                Phase::Asking(asking) if asking.lease == lease => asking.is_next(ttl, now),
                _ => {}
            },
            // There is no operator here.
            Letter::Notice(Notice::Revoked { .. }) => {}
            Letter::Answer {
                number,
                outcome,
                now: at,
            } => self.answered(number, (outcome, at), now),
        }
    }

    fn granted(&mut self, grant: Grant, now: Instant) {
        match &mut self.phase {
            Phase::Asking(asking) if asking.lease == grant.lease => {
                let step = asking.told(grant, &mut self.caller, &mut self.counts, now);
                return self.go_on(step, now);
            }
            Phase::Holding(holding) if holding.lease == grant.lease => {
                // A later question was answered first: it is the same grant.
                if holding.token == grant.first {
                    return;
                }
                // It had ended in the store, and a question that came late has revived its id.
                holding.machine.lose(Cause::Deleted);
            }
            _ => {}
        }
        self.counts.strays += 1;
        if self.broken != Some(Broken::KeepsStrays) {
            self.release(grant.lease, false, now);
        }
    }

    fn answered(&mut self, number: u64, answer: (Outcome, StoreTime), now: Instant) {
        self.farewells
            .retain_mut(|farewell| farewell.answer(number));
        match &mut self.phase {
            Phase::Idle => {}
            Phase::Asking(asking) => {
                let (caller, counts) = (&mut self.caller, &mut self.counts);
                let step = asking.answered(number, answer, caller, counts, now);
                self.go_on(step, now);
            }
            Phase::Holding(holding) => holding.answered(number, answer.0, now),
        }
    }

    fn go_on(&mut self, step: Step, now: Instant) {
        let Phase::Asking(asking) = &self.phase else {
            return;
        };
        match step {
            Step::Wait => {}
            Step::Granted(machine, token) => {
                self.phase = Phase::Holding(Box::new(Holding {
                    lease: asking.lease,
                    token,
                    machine: *machine,
                    renewal: None,
                    until: now.after(asking.hold_for),
                    unsure: asking.is_unsure(),
                }));
                self.wake(now);
            }
            Step::Dead => {
                let wants = (asking.gives_up, asking.hold_for);
                let (lease, unsure) = (asking.lease, asking.is_unsure());
                self.release(lease, unsure, now);
                self.begin(now, wants);
            }
        }
    }

    fn begin(&mut self, now: Instant, wants: (Instant, Duration)) {
        self.leases += 1;
        let lease = LeaseId {
            client: self.id,
            number: self.leases,
        };
        let asking = Asking::new(lease, self.ttl, self.broken, now, wants);
        self.phase = Phase::Asking(Box::new(asking));
        self.wake(now);
    }

    fn release(&mut self, lease: LeaseId, unsure: bool, now: Instant) {
        let farewell = Farewell::say(&mut self.caller, lease, self.ttl, unsure, now);
        self.farewells.push(farewell);
    }
}

impl Holding {
    fn next_wake(&self, now: Instant) -> Instant {
        let event = self.machine.next_event(now);
        let answer = self.renewal.map(|call| call.gives_up);
        let next = event.into_iter().chain(answer).min();
        next.map_or(self.until, |next| next.min(self.until))
    }

    /// Tells it the time. `true`: the lease is over or no longer wanted.
    fn wake(&mut self, caller: &mut Caller, now: Instant) -> bool {
        if self.renewal.is_some_and(|call| now >= call.gives_up) {
            self.renewal = None;
            self.machine.renewal_failed(now, Cause::Unreachable);
        }
        if now >= self.until || self.machine.state(now).is_lost() {
            return true;
        }
        if let Action::Renew(ttl) = self.machine.poll(now) {
            let lease = self.lease;
            self.renewal = Some(caller.call(Op::Renew { lease, ttl }, ttl, now));
        }
        false
    }

    fn answered(&mut self, number: u64, outcome: Outcome, now: Instant) {
        let Some(call) = self.renewal.filter(|call| call.number == number) else {
            return;
        };
        self.renewal = None;
        match outcome {
            Outcome::Renewed => self.machine.renewed(call.sent, call.ttl, now),
            lost => self.machine.lose(Cause::of(&lost)),
        }
    }
}
