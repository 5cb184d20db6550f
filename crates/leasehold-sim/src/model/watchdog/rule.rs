//! The rule that ships, at work in the store, and what a broken one would do instead.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::id::{ClientId, LeaseId};
use leasehold_core::mutex::{self, Op, Outcome, Record, RecordHolder};
use leasehold_core::time::{self, Instant, StoreTime, Ttl};
use leasehold_core::token::TokenCount;
use leasehold_core::watchdog::{ClientMonitor, Evidence, Terms};

use super::setup::{Guard, MAX_PAUSE, Renewal, Restart, Setup, Verdict};
use super::state::{EVER, HOST, Kind, NOBODY, RIVAL, State};

/// A tick.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// Now on the store's clock. Only spans make a difference.
const STORE_NOW: StoreTime = StoreTime::from_micros(1_000_000_000);

impl Setup {
    pub(super) fn ttl(self) -> Ttl {
        Ttl::remainder(TICK * u32::from(self.ttl))
    }

    /// Now on the clock of a node. What is older than anything that matters is at its beginning.
    pub(super) fn node_now(self) -> Instant {
        let ticks = u32::from(self.ttl.max(MAX_PAUSE));
        Instant::default().after(TICK * ticks)
    }

    /// Now on the clock of a client, which remembers only when it spoke.
    pub(super) fn client_now() -> Instant {
        Instant::default().after(TICK)
    }

    /// What a client registers of a lease that may be renewed for so many ticks, by a clock.
    pub(super) fn terms(self, keep: u8, now: Instant) -> Terms {
        let keep_until = match keep {
            EVER => Terms::NO_END,
            ticks => now.after(TICK * u32::from(ticks)),
        };
        let ttl = self.ttl();
        let interval = TICK * u32::from(self.interval);
        let mut terms = Terms::new(ttl, interval, ttl.as_duration() / 30, keep_until);
        if self.rules.patient {
            terms.silence_timeout = ttl.as_duration();
        }
        terms
    }

    /// Whether a lease survives a deed that failed.
    pub(super) fn has_slack(self) -> bool {
        let silence_timeout = self.terms(EVER, self.node_now()).silence_timeout;
        let ticks = silence_timeout.as_nanos().div_ceil(TICK.as_nanos()) as u8;
        self.interval + ticks + 1 < self.ttl
    }

    pub(super) fn charge(self, node: usize) -> ClientMonitor<()> {
        let evidence = match self.rules.verdict {
            Verdict::Connection => Evidence::Processes,
            _ if node == HOST => Evidence::Processes,
            _ => Evidence::Connection,
        };
        let max_pause = self.rules.max_pause;
        let max_pause = max_pause.map_or(Duration::MAX, |ticks| TICK * u32::from(ticks));
        ClientMonitor::new(evidence, max_pause, self.node_now())
    }

    /// Whether a lease is relied on whose last confirmed request was sent so many ticks ago.
    pub(super) fn is_relied_on(self, age: u8) -> bool {
        let now = Instant::default().after(TICK * u32::from(self.ttl) * 2);
        now < time::deadline(now.before(TICK * u32::from(age)), self.ttl())
    }

    /// The number that an acquisition has among those of its client.
    pub(super) fn number(self, state: &State, acquisition: u8) -> u64 {
        let life = state.lives[usize::from(acquisition)];
        let before = &state.lives[..usize::from(acquisition)];
        let alike = |other: &&u8| **other == life || self.restart == Restart::SameClient;
        1 + before.iter().filter(alike).count() as u64
    }

    /// The acquisition of a life that has a number.
    pub(super) fn numbered(self, state: &State, life: usize, number: u64) -> Option<u8> {
        let mut all = 0..state.acquired;
        all.find(|it| state.life_of(*it) == life && self.number(state, *it) == number)
    }

    fn lease(self, state: &State, holder: u8) -> LeaseId {
        if holder == RIVAL {
            let client = ClientId::from_random([9; 16]);
            return LeaseId { client, number: 1 };
        }
        let life = match self.restart {
            Restart::NewClient => state.lives[usize::from(holder)],
            Restart::SameClient | Restart::SameLease => 0,
        };
        LeaseId {
            client: ClientId::from_random([life; 16]),
            number: self.number(state, holder),
        }
    }

    /// Does an operation of somebody's lease.
    fn apply(self, state: &mut State, op: &Op, of: u8) -> Outcome {
        let hold = (state.holder != NOBODY).then(|| RecordHolder {
            lease: self.lease(state, state.holder),
            count: NonZeroU32::MIN,
            expires_at: STORE_NOW.after_span(TICK * u32::from(state.left)),
        });
        let mut record = Record {
            hold,
            ..Record::default()
        };
        let outcome = mutex::apply(&mut record, op, STORE_NOW, |_| false);
        match (hold, record.holder(STORE_NOW)) {
            (_, None) => (state.holder, state.left) = (NOBODY, 0),
            (before, Some(after)) => {
                if before.is_none_or(|before| before.lease != after.lease) {
                    state.holder = of;
                }
                let left = STORE_NOW.until(after.expires_at).as_nanos();
                state.left = left.div_ceil(TICK.as_nanos()) as u8;
            }
        }
        outcome
    }

    /// Whether a lease is granted.
    pub(super) fn acquire(self, state: &mut State, of: u8) -> bool {
        let op = Op::Acquire {
            lease: self.lease(state, of),
            count: NonZeroU32::MIN,
            ttl: self.ttl(),
            tokens: TokenCount::MIN,
            wait: false,
        };
        let granted = matches!(self.apply(state, &op, of), Outcome::Granted { .. });
        if granted {
            // An id that is used twice is granted what it has already.
            state.holder = of;
        }
        granted
    }

    /// Whether a lease still holds the lock, for a ttl from now.
    pub(super) fn renew(self, state: &mut State, of: u8) -> bool {
        let op = Op::Renew {
            lease: self.lease(state, of),
            ttl: self.ttl(),
        };
        self.apply(state, &op, of) == Outcome::Renewed
    }

    pub(super) fn release(self, state: &mut State, of: u8) {
        self.apply(state, &released(self.lease(state, of), self.ttl()), of);
    }

    /// What a node does to the store for an acquisition, by the rule or without it. Answers whether the
    /// lease is renewed.
    pub(super) fn deed(self, state: &mut State, of: u8, kind: Kind) -> bool {
        let own = self.lease(state, of);
        let held = (state.holder != NOBODY).then(|| self.lease(state, state.holder));
        match kind {
            Kind::Renew => {
                let lease = match (self.rules.renewal, held) {
                    (Renewal::Creates | Renewal::Anything, None) => {
                        return self.acquire(state, of);
                    }
                    (Renewal::Anything, Some(held)) => held,
                    _ => own,
                };
                let ttl = self.ttl();
                self.apply(state, &Op::Renew { lease, ttl }, of) == Outcome::Renewed
            }
            Kind::Release => {
                let lease = match (self.rules.release, held) {
                    (Guard::Client, Some(held)) if held.client == own.client => held,
                    (Guard::Nothing, Some(held)) => held,
                    _ => own,
                };
                self.apply(state, &released(lease, self.ttl()), of);
                false
            }
        }
    }
}

fn released(lease: LeaseId, ttl: Ttl) -> Op {
    Op::Release {
        lease,
        count: 0,
        ttl,
    }
}
