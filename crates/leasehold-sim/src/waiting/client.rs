//! A client that waits for its grant: the manners of the real driver, and none of its means.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{
    Action, Cause, ClientId, Grant, Instant, Lease, LeaseId, Notice, Op, Outcome, Policy,
    StoreTime, Term, Token, TokenCount, Ttl, contention, queue, time,
};

use super::setup::Broken;
use crate::world::belief::Belief;

/// A request that is waited for.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: u64,
    sent: Instant,
    ttl: Ttl,
}

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

/// How often something happened that a run must show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Grants that were told and taken.
    pub accepted: u64,
    /// Grants that were told and came too late to be of use.
    pub too_late: u64,
    /// Grants for which nobody waited any more.
    pub strays: u64,
    /// Questions because a timer rang.
    pub timers: u64,
    /// Questions on a new connection.
    pub asked_again: u64,
    /// Waiters that gave up.
    pub gave_up: u64,
}

impl Counts {
    pub(super) const fn plus(self, other: &Self) -> Self {
        Self {
            accepted: self.accepted + other.accepted,
            too_late: self.too_late + other.too_late,
            strays: self.strays + other.strays,
            timers: self.timers + other.timers,
            asked_again: self.asked_again + other.asked_again,
            gave_up: self.gave_up + other.gave_up,
        }
    }
}

#[derive(Debug)]
pub(super) struct Client {
    id: ClientId,
    ttl: Ttl,
    broken: Option<Broken>,
    leases: u64,
    calls: u64,
    pub(super) outbox: Vec<(u64, Op)>,
    pub(super) counts: Counts,
    phase: Phase,
    /// Leases to be released: until an answer comes, and once more after their ttl.
    farewells: Vec<Farewell>,
}

#[derive(Debug)]
enum Phase {
    Idle,
    Asking(Asking),
    Holding(Holding),
}

#[derive(Debug)]
struct Asking {
    lease: LeaseId,
    call: Option<Call>,
    /// The question that was answered last: before it was sent, and the store's time then.
    queued: Option<(Instant, StoreTime)>,
    told: Option<(Grant, Instant)>,
    ask_at: Option<Instant>,
    gives_up: Instant,
    hold_for: Duration,
}

#[derive(Debug)]
struct Holding {
    lease: LeaseId,
    token: Token,
    machine: Lease,
    renewal: Option<Call>,
    until: Instant,
}

#[derive(Debug)]
struct Farewell {
    lease: LeaseId,
    call: Option<u64>,
    again_at: Instant,
}

impl Client {
    pub(super) fn new(id: ClientId, ttl: Ttl, broken: Option<Broken>) -> Self {
        Self {
            id,
            ttl,
            broken,
            leases: 0,
            calls: 0,
            outbox: Vec::new(),
            counts: Counts::default(),
            phase: Phase::Idle,
            farewells: Vec::new(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
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
        matches!(&self.phase, Phase::Asking(asking) if asking.call.is_some())
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

    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Idle => None,
            Phase::Asking(asking) => {
                let ask_at = asking.ask_at.filter(|_| asking.call.is_none());
                Some(ask_at.map_or(asking.gives_up, |at| at.min(asking.gives_up)))
            }
            Phase::Holding(holding) => {
                let event = holding.machine.next_event(now);
                Some(event.map_or(holding.until, |event| event.min(holding.until)))
            }
        };
        let farewells = self.farewells.iter().map(|farewell| farewell.again_at);
        farewells.chain(phase).min()
    }

    /// Begins to want the lock.
    pub(super) fn want(&mut self, now: Instant, patience: Duration, hold_for: Duration) {
        self.leases += 1;
        let lease = LeaseId {
            client: self.id,
            number: self.leases,
        };
        self.phase = Phase::Asking(Asking {
            lease,
            call: None,
            queued: None,
            told: None,
            ask_at: Some(now),
            gives_up: now.after(patience),
            hold_for,
        });
        self.wake(now);
    }

    /// Gives up what it waits for, or back what it holds.
    pub(super) fn leave(&mut self, now: Instant) {
        let lease = match &self.phase {
            Phase::Idle => return,
            Phase::Asking(asking) => {
                self.counts.gave_up += 1;
                asking.lease
            }
            Phase::Holding(holding) => holding.lease,
        };
        self.phase = Phase::Idle;
        self.release(lease, now);
    }

    /// Its timer rang.
    pub(super) fn wake(&mut self, now: Instant) {
        let again: Vec<_> = self
            .farewells
            .iter()
            .filter(|farewell| now >= farewell.again_at)
            .map(|farewell| farewell.lease)
            .collect();
        self.farewells.retain(|farewell| now < farewell.again_at);
        for lease in again {
            self.send(release(lease, self.ttl), now);
        }
        match &mut self.phase {
            Phase::Idle => {}
            Phase::Asking(asking) if now >= asking.gives_up => self.leave(now),
            Phase::Asking(asking) => {
                if asking.call.is_none() && asking.ask_at.is_some_and(|at| now >= at) {
                    self.counts.timers += u64::from(asking.queued.is_some());
                    self.ask(now);
                }
            }
            Phase::Holding(holding) => {
                let action = holding.machine.poll(now);
                let lease = holding.lease;
                if now >= holding.until || holding.machine.state(now).is_lost() {
                    self.leave(now);
                } else if let Action::Renew(ttl) = action {
                    let call = self.send(Op::Renew { lease, ttl }, now);
                    if let Phase::Holding(holding) = &mut self.phase {
                        holding.renewal = Some(call);
                    }
                }
            }
        }
    }

    /// Its connection broke, and it has a new one: what was under way is not answered any more.
    pub(super) fn interrupted(&mut self, now: Instant) {
        // Releases without an answer are sent again.
        for nth in 0..self.farewells.len() {
            let Farewell { lease, call, .. } = self.farewells[nth];
            if call.is_some() {
                let call = self.send(release(lease, self.ttl), now);
                self.farewells[nth].call = Some(call.number);
            }
        }
        match &mut self.phase {
            Phase::Idle => {}
            Phase::Asking(asking) => {
                let asked = asking.call.take().is_some();
                if let Some(told) = asking.told.take() {
                    self.accept(told, now);
                } else if self.broken != Some(Broken::NoQuestionAfterReconnect) {
                    self.counts.asked_again += 1;
                    self.ask(now);
                } else if asked {
                    // As a request that timed out.
                    self.ask(now);
                }
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
            Letter::Notice(Notice::Next { lease, ttl }) => {
                if let Phase::Asking(asking) = &mut self.phase
                    && asking.lease == lease
                    && self.broken != Some(Broken::NoNext)
                {
                    let span = ttl.as_duration();
                    let at = now.after(span + time::drift(span));
                    asking.ask_at = Some(asking.ask_at.map_or(at, |before| before.min(at)));
                }
            }
            Letter::Answer {
                number,
                outcome,
                now: at,
            } => self.answered(number, outcome, at, now),
        }
    }

    fn granted(&mut self, grant: Grant, now: Instant) {
        match &mut self.phase {
            Phase::Asking(asking) if asking.lease == grant.lease => {
                if asking.call.is_some() {
                    asking.told = Some((grant, now));
                } else {
                    self.accept((grant, now), now);
                }
            }
            Phase::Holding(holding) if holding.lease == grant.lease => {}
            _ => {
                self.counts.strays += 1;
                self.release(grant.lease, now);
            }
        }
    }

    fn answered(&mut self, number: u64, outcome: Outcome, at: StoreTime, now: Instant) {
        for farewell in &mut self.farewells {
            farewell.call = farewell.call.filter(|call| *call != number);
        }
        match &mut self.phase {
            Phase::Asking(asking) => {
                let Some(call) = asking.call.filter(|call| call.number == number) else {
                    return;
                };
                asking.call = None;
                match outcome {
                    Outcome::Granted { first } => {
                        let policy = Policy::of(call.ttl);
                        let (machine, _) =
                            Lease::granted(policy, call.ttl, Term::Renewed, call.sent);
                        self.hold(machine, first, now);
                    }
                    Outcome::Refused { left, place } => {
                        asking.queued = Some((call.sent, at));
                        let place = place.unwrap_or_default();
                        let span = contention::ask_again_after(left, place, call.ttl);
                        asking.ask_at =
                            (self.broken != Some(Broken::NoTimer)).then(|| now.after(span));
                        if let Some(told) = asking.told.take() {
                            self.accept(told, now);
                        }
                    }
                    _ => asking.ask_at = Some(now.after(self.ttl.as_duration())),
                }
            }
            Phase::Holding(holding) => {
                let Some(call) = holding.renewal.filter(|call| call.number == number) else {
                    return;
                };
                holding.renewal = None;
                match outcome {
                    Outcome::Renewed => holding.machine.renewed(call.sent, call.ttl, now),
                    _ => holding.machine.lose(Cause::NotHeld),
                }
            }
            Phase::Idle => {}
        }
    }

    /// Takes a grant that was told, if it is still of use.
    fn accept(&mut self, (grant, heard): (Grant, Instant), now: Instant) {
        let Phase::Asking(asking) = &self.phase else {
            return;
        };
        let Some((asked, answered)) = asking.queued else {
            return self.ask(now);
        };
        if grant.now < answered && self.broken != Some(Broken::TakesOldGrants) {
            // Refused since: it is long over.
            self.counts.too_late += 1;
            return;
        }
        let ttl = queue::acceptance(self.ttl).min(grant.ttl);
        let waited = answered.until(grant.now);
        let times = match self.broken {
            Some(Broken::DeadlineFromMessage) => (heard, time::deadline(heard, ttl)),
            _ => time::granted(asked, waited, heard, ttl),
        };
        let policy = Policy::of(self.ttl);
        let (machine, _) = Lease::accepted(policy, ttl, Term::Renewed, times);
        if machine.state(now).is_lost() {
            self.counts.too_late += 1;
            return self.ask(now);
        }
        self.counts.accepted += 1;
        self.hold(machine, grant.first, now);
    }

    fn hold(&mut self, machine: Lease, token: Token, now: Instant) {
        let Phase::Asking(asking) = &self.phase else {
            return;
        };
        if machine.state(now).is_lost() {
            return self.leave(now);
        }
        self.phase = Phase::Holding(Holding {
            lease: asking.lease,
            token,
            machine,
            renewal: None,
            until: now.after(asking.hold_for),
        });
        self.wake(now);
    }

    fn ask(&mut self, now: Instant) {
        let Phase::Asking(asking) = &self.phase else {
            return;
        };
        let op = Op::Acquire {
            lease: asking.lease,
            count: NonZeroU32::MIN,
            ttl: self.ttl,
            tokens: TokenCount::MIN,
            wait: true,
        };
        let call = self.send(op, now);
        if let Phase::Asking(asking) = &mut self.phase {
            asking.call = Some(call);
            asking.ask_at = None;
        }
    }

    fn release(&mut self, lease: LeaseId, now: Instant) {
        let call = self.send(release(lease, self.ttl), now);
        self.farewells.push(Farewell {
            lease,
            call: Some(call.number),
            again_at: now.after(self.ttl.as_duration()),
        });
    }

    fn send(&mut self, op: Op, now: Instant) -> Call {
        self.calls += 1;
        self.outbox.push((self.calls, op));
        Call {
            number: self.calls,
            sent: now,
            ttl: self.ttl,
        }
    }
}

fn release(lease: LeaseId, ttl: Ttl) -> Op {
    Op::Release {
        lease,
        count: 0,
        ttl,
    }
}
