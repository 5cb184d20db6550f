//! A client: it asks for the lock, believes what its lease says, and cleans up behind itself.
//!
//! It has the manners of the real driver and none of its means: it is told the time and the
//! answers, and leaves what it wants to send in an outbox.

use std::num::NonZeroU32;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{
    ClientId, Instant, LeaseId, Op, Outcome, Policy, Term, Token, TokenCount, Ttl,
};

use super::belief::Belief;
use super::farewell::Farewell;
use super::holding::{Grant, Holding};
use super::setup::{Broken, Leases, Setup};

/// How many tokens a grant reserves.
pub(super) const TOKENS: TokenCount = NonZeroU32::MIN.saturating_add(7);

/// A request that was sent and is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) number: u64,
    pub(crate) sent: Instant,
    pub(crate) ttl: Ttl,
    pub(crate) gives_up: Instant,
}

/// Sends requests and numbers them.
#[derive(Debug)]
pub(crate) struct Caller {
    calls: u64,
    timeout: Duration,
    pub(crate) outbox: Vec<(u64, Op)>,
}

impl Caller {
    /// Waits for each answer for as long.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            calls: 0,
            timeout,
            outbox: Vec::new(),
        }
    }

    /// Sends an operation. `ttl` is what it asks for.
    pub(crate) fn call(&mut self, op: Op, ttl: Ttl, now: Instant) -> Call {
        self.calls += 1;
        self.outbox.push((self.calls, op));
        Call {
            number: self.calls,
            sent: now,
            ttl,
            gives_up: now.after(self.timeout),
        }
    }
}

#[derive(Debug)]
pub(super) struct Client {
    id: ClientId,
    setup: Setup,
    policy: Policy,
    leases: u64,
    caller: Caller,
    phase: Phase,
    farewells: Vec<Farewell>,
}

#[derive(Debug)]
enum Phase {
    Idle { until: Instant },
    Asking(Asking),
    Holding(Box<Holding>),
}

/// An acquisition under way: one lease id, sent again and again while it could still run.
#[derive(Clone, Copy, Debug)]
struct Asking {
    lease: LeaseId,
    ttl: Ttl,
    fixed: bool,
    call: Call,
    /// When the first request was sent whose outcome is not known.
    unknown_since: Option<Instant>,
}

impl Client {
    pub(super) fn new(setup: &Setup, ttl: Ttl, now: Instant, rng: &mut Rng) -> Self {
        Self {
            id: ClientId::from_random(rng.u128(..).to_be_bytes()),
            setup: *setup,
            policy: Policy::of(ttl),
            leases: 0,
            caller: Caller::new(ttl.as_duration() / 8),
            phase: Phase::Idle {
                until: now.after(part(rng, ttl, 4)),
            },
            farewells: Vec::new(),
        }
    }

    /// What it relies on at this instant of its clock.
    pub(super) fn belief(&self, now: Instant) -> Option<Belief> {
        match &self.phase {
            Phase::Holding(holding) => holding.belief(now),
            _ => None,
        }
    }

    /// What it wants to send.
    pub(super) fn outbox(&mut self) -> Vec<(u64, Op)> {
        std::mem::take(&mut self.caller.outbox)
    }

    /// When it must be woken next.
    pub(super) fn next_wake(&self, now: Instant) -> Instant {
        let phase = match &self.phase {
            Phase::Idle { until } => *until,
            Phase::Asking(asking) => asking.call.gives_up,
            Phase::Holding(holding) => holding.next_wake(now),
        };
        let farewells = self.farewells.iter().map(Farewell::next_wake);
        farewells.fold(phase, Instant::min)
    }

    /// Its timer rang.
    pub(super) fn wake(&mut self, now: Instant, rng: &mut Rng) {
        let caller = &mut self.caller;
        self.farewells
            .retain_mut(|farewell| farewell.wake(caller, now));
        match &mut self.phase {
            Phase::Idle { until } if now >= *until => self.ask(now, rng),
            Phase::Idle { .. } => {}
            Phase::Asking(asking) if now >= asking.call.gives_up => {
                let asking = *asking;
                self.ask_again(asking, now, rng);
            }
            Phase::Asking(_) => {}
            Phase::Holding(holding) => {
                if holding.wake(&mut self.caller, now, rng) {
                    let (lease, ttl, unsure) = holding.leave(now);
                    self.drop_lease(lease, ttl, unsure, now, rng);
                }
            }
        }
    }

    /// The store answered a request.
    pub(super) fn answer(&mut self, number: u64, outcome: Outcome, now: Instant, rng: &mut Rng) {
        self.farewells
            .retain_mut(|farewell| farewell.answer(number));
        match &mut self.phase {
            Phase::Asking(asking) if asking.call.number == number => {
                let asking = *asking;
                match outcome {
                    Outcome::Granted { first } => self.granted(asking, first, now, rng),
                    _ if asking.unknown_since.is_some() => {
                        self.drop_lease(asking.lease, asking.ttl, true, now, rng);
                    }
                    Outcome::Refused {
                        time_left: left, ..
                    } if rng.bool() => {
                        // As real clients do: ask again when the lock may be free.
                        self.phase = Phase::Idle {
                            until: now.after(left),
                        };
                    }
                    _ => self.phase = self.pause(now, rng),
                }
            }
            Phase::Holding(holding) => holding.answer(number, outcome, now),
            _ => {}
        }
    }

    fn ask(&mut self, now: Instant, rng: &mut Rng) {
        if self.setup.broken != Some(Broken::ReusedLeaseId) {
            self.leases += 1;
        }
        let fixed = self.setup.leases == Leases::Fixed || rng.u8(0..4) == 0;
        let ttl = if fixed {
            Ttl::remainder(part(rng, self.policy.ttl, 1) + self.policy.retry())
        } else {
            self.policy.ttl
        };
        let lease = LeaseId {
            client: self.id,
            number: self.leases,
        };
        self.phase = Phase::Asking(Asking {
            lease,
            ttl,
            fixed,
            call: self.caller.call(acquire(lease, ttl), ttl, now),
            unknown_since: None,
        });
    }

    /// No answer came. The same id may be sent again while the first request could still have been
    /// granted in time; after that the id is dead.
    fn ask_again(&mut self, asking: Asking, now: Instant, rng: &mut Rng) {
        let since = asking.unknown_since.unwrap_or(asking.call.sent);
        if now < since.after(asking.ttl.as_duration()) {
            let op = acquire(asking.lease, asking.ttl);
            self.phase = Phase::Asking(Asking {
                call: self.caller.call(op, asking.ttl, now),
                unknown_since: Some(since),
                ..asking
            });
        } else {
            self.drop_lease(asking.lease, asking.ttl, true, now, rng);
        }
    }

    fn granted(&mut self, asking: Asking, token: Token, now: Instant, rng: &mut Rng) {
        let sent = match self.setup.broken {
            Some(Broken::DeadlineFromReply) => now,
            _ => asking.call.sent,
        };
        let term = if asking.fixed {
            Term::Fixed(leasehold_core::time::deadline(sent, asking.ttl))
        } else {
            Term::Renewed
        };
        let work = part(rng, self.policy.ttl, 1) * u32::from(rng.u8(0..4));
        let grant = Grant {
            lease: asking.lease,
            token,
            sent,
            ttl: asking.ttl,
            term,
            unsure: asking.unknown_since.is_some(),
        };
        let holding = Holding::new(grant, self.policy, now.after(work), self.setup.broken);
        self.phase = Phase::Holding(Box::new(holding));
    }

    /// Gives a lease back, whether it is held or not, and rests.
    fn drop_lease(&mut self, lease: LeaseId, ttl: Ttl, unsure: bool, now: Instant, rng: &mut Rng) {
        let farewell = Farewell::say(&mut self.caller, lease, ttl, unsure, now);
        self.farewells.push(farewell);
        self.phase = self.pause(now, rng);
    }

    fn pause(&self, now: Instant, rng: &mut Rng) -> Phase {
        Phase::Idle {
            until: now.after(part(rng, self.policy.ttl, 2)),
        }
    }
}

fn acquire(lease: LeaseId, ttl: Ttl) -> Op {
    Op::Acquire {
        lease,
        count: NonZeroU32::MIN,
        ttl,
        tokens: TOKENS,
        wait: false,
    }
}

/// A random time of at most a part of a ttl.
pub(super) fn part(rng: &mut Rng, ttl: Ttl, divisor: u32) -> Duration {
    (ttl.as_duration() / divisor).mul_f64(rng.f64())
}
