//! A simulation of contenders for one lock over many masters, which is the same again for the same seed.
//!
//! Masters apply the rule that ships, and contenders host the acquisition and the rounds that ship. Messages take a random time and stay in order between a client and a master. Nothing fails
//! here: the result is how often each client gets the lock.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::acquisition::{AcquireAction, AcquireNotice, AcquireOptions, AcquireReply};
use leasehold_core::contention::Backoff;
use leasehold_core::quorum::{Defeat, Masters, Round, Size, Step};
use leasehold_core::{
    Acquisition, ClientId, Environment, Instant, LeaseId, Op, Outcome, Policy, RenewalOptions,
    Rows, StoreTime, Token, TokenCount, Ttl,
};

/// Leases that last longer than the simulation, at a store that needs a new lease id for each request.
fn options() -> AcquireOptions {
    AcquireOptions {
        lease: RenewalOptions {
            policy: Policy::of(Ttl::MAX),
            fixed: None,
        },
        run: None,
        wait: true,
        replicated: false,
        idempotent: false,
    }
}

/// The latency of a message, in microseconds.
const LATENCY: Range<u64> = 80..220;

/// How long a client is idle between a release and the next acquisition.
const IDLE: Duration = Duration::from_micros(20);

/// All clients want the lock within this time after the start.
const START: Duration = Duration::from_millis(5);

/// A simulation to run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How many clients want the lock, again and again.
    pub clients: usize,
    /// How many masters there are.
    pub masters: Size,
    /// How long each client holds the lock.
    pub hold: Duration,
    /// How much longer the notice of a change takes than a reply.
    pub notification: Duration,
    /// How long a script takes on a master.
    pub script: Duration,
    /// How long the simulation runs.
    pub runtime: Duration,
}

/// What happened in a simulation.
#[derive(Clone, Debug)]
pub struct Report {
    /// How often each client was granted the lock.
    pub grants: Vec<u32>,
    /// How many scripts the first master ran.
    pub scripts: u32,
}

impl Report {
    /// How often the lock was granted.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.grants.iter().sum()
    }

    /// The smallest share of a client, as a part of an equal share.
    #[must_use]
    pub fn smallest_share(&self) -> f64 {
        let least = self.grants.iter().min().copied().unwrap_or_default();
        let clients = u32::try_from(self.grants.len()).unwrap_or(u32::MAX);
        f64::from(least * clients) / f64::from(self.total().max(1))
    }
}

/// Runs the simulation of a seed.
#[must_use]
pub fn run(seed: u64, setup: &Setup) -> Report {
    let mut simulation = Simulation::new(seed, setup);
    let end = Instant::from_nanos(0).after(setup.runtime);
    while let Some(((at, _), event)) = simulation.events.pop_first() {
        if at > end {
            break;
        }
        simulation.now = at;
        simulation.process(event);
    }
    Report {
        grants: simulation
            .clients
            .iter()
            .map(|client| client.grants)
            .collect(),
        scripts: simulation.masters[0].scripts,
    }
}

#[derive(Clone, Debug)]
enum Event {
    /// A request reaches a master.
    Request(Message, Op),
    /// Its reply reaches the client.
    Reply(Message, Outcome),
    /// A client is notified by a master that the record was changed.
    Changed { client: usize, master: usize },
    /// A timer of a client expires.
    Wake { client: usize, timer: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Message {
    client: usize,
    master: usize,
    lease: LeaseId,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Acquire,
    SetToken,
    Release,
    /// The release of a lease that was not won. Its reply is ignored.
    Abandon,
}

struct Master {
    record: Rows,
    /// The clients that have read the record since its last change. They are notified of the next one.
    readers: BTreeSet<usize>,
    busy_until: Instant,
    scripts: u32,
}

struct Client {
    acquisition: Acquisition,
    backoff: Backoff,
    lease: LeaseId,
    phase: Phase,
    /// The masters that have notified it of a change.
    changed_at: Masters,
    timer: u64,
    grants: u32,
}

enum Phase {
    Idle,
    /// `round` is that of the request in flight.
    Acquiring {
        round: Option<Round>,
        refused_at: Masters,
    },
    Holding,
    Releasing {
        replies: usize,
    },
}

struct Simulation {
    setup: Setup,
    rng: Rng,
    now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    scheduled: u64,
    /// When the last message from a client to a master arrives, and the last one back.
    last: BTreeMap<(usize, usize, bool), Instant>,
    masters: Vec<Master>,
    clients: Vec<Client>,
}

impl Simulation {
    fn new(seed: u64, setup: &Setup) -> Self {
        let now = Instant::from_nanos(0);
        let master = |_| Master {
            record: Rows::default(),
            readers: BTreeSet::new(),
            busy_until: now,
            scripts: 0,
        };
        let client = |nth: usize| Client {
            acquisition: Acquisition::new(options(), Backoff::default(), now),
            backoff: Backoff::default(),
            lease: LeaseId {
                client: ClientId::from_random((nth as u128).to_be_bytes()),
                number: 0,
            },
            phase: Phase::Idle,
            changed_at: Masters::default(),
            timer: 0,
            grants: 0,
        };
        let mut simulation = Self {
            setup: *setup,
            rng: Rng::with_seed(seed),
            now,
            events: BTreeMap::new(),
            scheduled: 0,
            last: BTreeMap::new(),
            masters: (0..setup.masters.masters()).map(master).collect(),
            clients: (0..setup.clients).map(client).collect(),
        };
        for client in 0..setup.clients {
            let delay = START.mul_f64(simulation.rng.f64());
            simulation.wake_at(client, now.after(delay));
        }
        simulation
    }

    fn process(&mut self, event: Event) {
        match event {
            Event::Request(message, op) => self.handle_request(message, &op),
            Event::Reply(message, outcome) => self.handle_reply(message, outcome),
            Event::Changed { client, master } => self.handle_change(client, master),
            Event::Wake { client, timer } if timer == self.clients[client].timer => {
                self.wake(client);
            }
            Event::Wake { .. } => {}
        }
    }

    fn wake(&mut self, client: usize) {
        let it = &mut self.clients[client];
        match it.phase {
            Phase::Idle => {
                it.acquisition = Acquisition::new(options(), it.backoff, self.now);
                it.phase = Phase::Acquiring {
                    round: None,
                    refused_at: Masters::default(),
                };
                self.poll(client);
            }
            Phase::Acquiring { .. } => self.poll(client),
            Phase::Holding => {
                it.backoff.released(self.now);
                it.phase = Phase::Releasing { replies: 0 };
                self.release(client, self.setup.masters.all(), Kind::Release);
            }
            Phase::Releasing { .. } => {}
        }
    }

    /// Does what the acquisition of a client returns, until it waits.
    fn poll(&mut self, client: usize) {
        loop {
            let it = &mut self.clients[client];
            let Phase::Acquiring { round, refused_at } = &mut it.phase else {
                return;
            };
            match it.acquisition.poll(self.now, 0) {
                AcquireAction::NewLease => {
                    it.lease.number += 1;
                    it.acquisition.start(it.lease, TokenCount::MIN);
                }
                AcquireAction::Acquire(mut op) => {
                    // A majority of queues would not have an order.
                    let proposal = Token::at(store_time(self.now));
                    if let Op::Acquire(request) = &mut op {
                        (request.wait, request.proposal) = (false, proposal);
                    }
                    *round = Some(Round::new(self.setup.masters, TokenCount::MIN, proposal));
                    *refused_at = Masters::default();
                    return self.send(client, self.setup.masters.all(), Kind::Acquire, op);
                }
                AcquireAction::Release(_) => {
                    let granted = self.setup.masters.all().without(*refused_at);
                    self.release(client, granted, Kind::Abandon);
                }
                AcquireAction::Granted(_) => {
                    it.backoff = it.acquisition.backoff();
                    it.grants += 1;
                    it.phase = Phase::Holding;
                    return self.wake_at(client, self.now.after(self.setup.hold));
                }
                AcquireAction::Wait => {
                    if let Some(timeout) = it.acquisition.next_timeout() {
                        self.wake_at(client, timeout);
                    }
                    return;
                }
                other => unreachable!("nothing fails, but {other:?}"),
            }
        }
    }

    fn handle_request(&mut self, message: Message, op: &Op) {
        let Message { client, master, .. } = message;
        let it = &mut self.masters[master];
        let done = self.now.max(it.busy_until).after(self.setup.script);
        it.busy_until = done;
        it.scripts += 1;
        let before = it.record.clone();
        let now = store_time(done);
        let outcome = it.record.apply(op, &Environment { now }, |_| false).outcome;
        if it.record != before {
            for reader in std::mem::take(&mut self.masters[master].readers) {
                if reader != client {
                    let event = Event::Changed {
                        client: reader,
                        master,
                    };
                    let at = done.after(self.setup.notification);
                    self.deliver(at, (reader, master, true), event);
                }
            }
        }
        self.masters[master].readers.insert(client);
        self.deliver(done, (client, master, true), Event::Reply(message, outcome));
    }

    fn handle_reply(&mut self, message: Message, outcome: Outcome) {
        let Message { client, master, .. } = message;
        let it = &mut self.clients[client];
        if message.lease != it.lease {
            return;
        }
        let step = match (&mut it.phase, message.kind) {
            (Phase::Acquiring { round, refused_at }, Kind::Acquire | Kind::SetToken) => {
                let Some(round) = round else { return };
                if matches!(outcome, Outcome::Refused { .. }) {
                    refused_at.insert(master);
                }
                match message.kind {
                    Kind::Acquire => match round.handle_reply(master, Some(&outcome)) {
                        // A wait for other masters would be short.
                        Step::Wait => round.end_proposal_wait(),
                        step => step,
                    },
                    _ => round.handle_token_reply(master, Some(&outcome)),
                }
            }
            (Phase::Releasing { replies }, Kind::Release) => {
                *replies += 1;
                if *replies == self.setup.masters.majority() {
                    it.phase = Phase::Idle;
                    self.wake_at(client, self.now.after(IDLE));
                }
                return;
            }
            _ => return,
        };
        match step {
            Step::Wait => {}
            Step::Write { first, to } => {
                let op = Op::SetToken {
                    lease: it.lease,
                    first,
                    tokens: TokenCount::MIN,
                };
                self.send(client, to, Kind::SetToken, op);
            }
            Step::Won { first } => {
                self.finish_round(client, Outcome::Granted { first, run: None });
            }
            Step::Lost(Defeat::Held { left, split }) => {
                let time_left = Some(if split { Duration::ZERO } else { left });
                let Phase::Acquiring { refused_at, .. } = &it.phase else {
                    return;
                };
                let outcome = match *refused_at == self.setup.masters.all() {
                    true => Outcome::Refused {
                        time_left,
                        queue_position: None,
                    },
                    false => Outcome::GrantedInPart { time_left },
                };
                self.finish_round(client, outcome);
            }
            Step::Lost(defeat) => unreachable!("nothing fails, but {defeat:?}"),
        }
    }

    fn finish_round(&mut self, client: usize, outcome: Outcome) {
        let it = &mut self.clients[client];
        if let Phase::Acquiring { round, .. } = &mut it.phase {
            *round = None;
        }
        let reply = AcquireReply::Applied {
            outcome,
            now: StoreTime::default(),
            shard: None,
            notifies_changes: true,
        };
        it.acquisition.handle_reply(reply, self.now, self.rng.f64());
        self.poll(client);
    }

    fn handle_change(&mut self, client: usize, master: usize) {
        let it = &mut self.clients[client];
        it.changed_at.insert(master);
        if it.changed_at.len() < self.setup.masters.majority() {
            return;
        }
        it.changed_at = Masters::default();
        let (now, spread) = (self.now, self.rng.f64());
        if it
            .acquisition
            .handle_notice(AcquireNotice::Changed, now, spread)
        {
            self.poll(client);
        }
    }

    /// Releases the lease of a client at some masters.
    fn release(&mut self, client: usize, at: Masters, kind: Kind) {
        let op = Op::release(self.clients[client].lease);
        self.send(client, at, kind, op);
    }

    fn send(&mut self, client: usize, to: Masters, kind: Kind, op: Op) {
        let lease = self.clients[client].lease;
        for master in to.iter() {
            let message = Message {
                client,
                master,
                lease,
                kind,
            };
            let path = (client, master, false);
            self.deliver(self.now, path, Event::Request(message, op.clone()));
        }
    }

    /// Delivers a message that is sent at an instant, behind the earlier ones of its path.
    fn deliver(&mut self, sent: Instant, path: (usize, usize, bool), event: Event) {
        let latency = Duration::from_micros(self.rng.u64(LATENCY));
        let last = self.last.entry(path).or_insert(self.now);
        *last = sent.after(latency).max(*last);
        let at = *last;
        self.schedule(at, event);
    }

    fn wake_at(&mut self, client: usize, at: Instant) {
        let it = &mut self.clients[client];
        it.timer += 1;
        let timer = it.timer;
        self.schedule(at, Event::Wake { client, timer });
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.scheduled += 1;
        self.events.insert((at, self.scheduled), event);
    }
}

/// The time of a master. The masters' clocks agree.
fn store_time(now: Instant) -> StoreTime {
    StoreTime::from_micros(1_000_000 + now.as_nanos() / 1_000)
}

#[cfg(test)]
mod tests;
