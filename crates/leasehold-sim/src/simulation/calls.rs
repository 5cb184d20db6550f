//! The requests of a client, and its environment.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::record::Unless;
use leasehold_core::{CompletionKey, Instant, LeaseId, Op, Ttl};

use super::frames::ToNode;
use super::report::Report;
use super::setup::Setup;
use super::values::Values;

/// How long a client waits for a reply at most: the library's default for longer ttls.
const TIMEOUT_MAX: Duration = Duration::from_secs(2);

/// How long a client or a node waits for a reply.
pub(super) fn timeout(ttl: Ttl) -> Duration {
    TIMEOUT_MAX.min(ttl.as_duration() / 6)
}

/// The environment of a client.
pub(super) struct Context<'a> {
    pub(super) now: Instant,
    /// The time of the simulation.
    pub(super) time: u64,
    pub(super) setup: &'a Setup,
    pub(super) rng: &'a mut Rng,
    pub(super) report: &'a mut Report,
    /// The condition of the run that is asked for.
    pub(super) unless: Option<Unless>,
    /// The leases that have completed the run for each key.
    pub(super) completed: &'a BTreeMap<CompletionKey, LeaseId>,
    pub(super) values: &'a mut Values,
    /// The requests to send, with their numbers.
    pub(super) outbox: &'a mut Vec<(u64, Payload)>,
    /// The messages to its node of the watchdog.
    pub(super) to_node: &'a mut Vec<ToNode>,
}

impl Context<'_> {
    /// A random part of a duration.
    pub(super) fn part(&mut self, duration: Duration) -> Duration {
        duration.mul_f64(self.rng.f64())
    }

    /// A random number from 0 to 1.
    pub(super) fn spread(&mut self) -> f64 {
        self.rng.f64()
    }
}

/// What is requested of the store.
#[derive(Clone, Debug)]
pub(super) enum Payload {
    Apply(Op),
    /// The state of the lock.
    Read,
}

/// A request without a reply so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<P = Purpose> {
    pub(super) purpose: P,
    pub(super) sent: Instant,
    pub(super) ttl: Ttl,
    pub(super) timeout: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Acquire,
    Renew,
    /// Reports the number of holds.
    Count,
    /// The release with this number.
    Release(u64),
    /// Writes the value of a leader, or the completion of a run.
    Write,
    /// Reads the state of the lock.
    Read,
}

/// The requests of a client or a node.
#[derive(Debug)]
pub(super) struct Calls<P = Purpose> {
    sent: u64,
    open: BTreeMap<u64, Call<P>>,
    timeout: Duration,
}

impl<P> Calls<P> {
    /// Every request waits for its reply for `timeout`.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            sent: 0,
            open: BTreeMap::new(),
            timeout,
        }
    }

    /// Adds a request that is sent now. Returns its number.
    pub(super) fn begin(&mut self, purpose: P, ttl: Ttl, now: Instant) -> u64 {
        self.sent += 1;
        let call = Call {
            purpose,
            sent: now,
            ttl,
            timeout: now.after(self.timeout),
        };
        self.open.insert(self.sent, call);
        self.sent
    }

    /// The request to which a reply belongs.
    pub(super) fn take(&mut self, number: u64) -> Option<Call<P>> {
        self.open.remove(&number)
    }

    /// Whether all have replies.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// When the first of them has waited for too long.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.open.values().map(|call| call.timeout).min()
    }

    /// Removes the requests for which this is true.
    pub(super) fn take_if(&mut self, is_over: impl Fn(&Call<P>) -> bool) -> Vec<Call<P>> {
        let over = self.open.iter().filter(|(_, call)| is_over(call));
        let over: Vec<_> = over.map(|(number, _)| *number).collect();
        let over = over.iter().filter_map(|number| self.open.remove(number));
        over.collect()
    }
}

impl Calls {
    pub(super) fn send(&mut self, purpose: Purpose, op: Op, cx: &mut Context<'_>) {
        let ttl = op.ttl().unwrap_or(Ttl::MAX);
        self.request(purpose, ttl, Payload::Apply(op), cx);
    }

    pub(super) fn read(&mut self, cx: &mut Context<'_>) {
        self.request(Purpose::Read, Ttl::MAX, Payload::Read, cx);
    }

    fn request(&mut self, purpose: Purpose, ttl: Ttl, payload: Payload, cx: &mut Context<'_>) {
        let number = self.begin(purpose, ttl, cx.now);
        cx.outbox.push((number, payload));
    }

    /// Sends an operation whose reply is ignored.
    pub(super) fn send_without_reply(op: Op, cx: &mut Context<'_>) {
        cx.outbox.push((0, Payload::Apply(op)));
    }

    pub(super) fn is_open(&self, purpose: Purpose) -> bool {
        self.open.values().any(|call| call.purpose == purpose)
    }

    /// Drops the requests of an acquisition or a hold that is over. Their replies are ignored.
    pub(super) fn drop_phase(&mut self) {
        let is_kept = |call: &Call| matches!(call.purpose, Purpose::Release(_) | Purpose::Read);
        self.open.retain(|_, call| is_kept(call));
    }
}
