//! A simulation of contenders for one lock over many masters, which is the same again for the same seed.
//!
//! Masters apply the rule that ships. Contenders count votes and back off by the rules that ship, as the driver
//! does. Messages take a random time and stay in order between a client and a master. Nothing fails
//! here: the result is how often each client gets the lock.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::contention::Backoff;
use leasehold_core::quorum::{Defeat, Masters, Round, Size, Step};
use leasehold_core::{ClientId, Instant, LeaseId, Op, Outcome, Record, StoreTime, Ttl, mutex};

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

#[derive(Clone, Copy, Debug)]
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
    Fence,
    Release,
    /// The release of a lease that was not won. Its reply is ignored.
    Abandon,
}

struct Master {
    record: Record,
    /// The clients that have read the record since its last change. They are notified of the next one.
    readers: BTreeSet<usize>,
    busy_until: Instant,
    scripts: u32,
}

struct Client {
    backoff: Backoff,
    lease: LeaseId,
    state: State,
    /// The masters that have notified it of a change.
    changed_at: Masters,
    timer: u64,
    grants: u32,
}

enum State {
    /// It is about to want the lock.
    Idle,
    Acquiring(Acquiring),
    /// It was refused. `woken`: its next request is scheduled.
    Waiting {
        woken: bool,
    },
    Holding,
    Releasing {
        replies: usize,
    },
}

struct Acquiring {
    round: Round,
    begun: Instant,
    refused_at: Masters,
    changed: bool,
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
            record: Record::default(),
            readers: BTreeSet::new(),
            busy_until: now,
            scripts: 0,
        };
        let client = |nth: usize| Client {
            backoff: Backoff::default(),
            lease: LeaseId {
                client: ClientId::from_random((nth as u128).to_be_bytes()),
                number: 0,
            },
            state: State::Idle,
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
            simulation.wake_after(client, delay);
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
        match it.state {
            State::Idle => {
                let pause = it.backoff.pause(self.now);
                it.state = State::Waiting { woken: true };
                self.wake_after(client, pause);
            }
            State::Waiting { .. } => self.acquire(client),
            State::Holding => {
                it.backoff.released(self.now);
                it.state = State::Releasing { replies: 0 };
                self.release(client, self.setup.masters.all(), Kind::Release);
            }
            State::Acquiring(_) | State::Releasing { .. } => {}
        }
    }

    fn acquire(&mut self, client: usize) {
        let it = &mut self.clients[client];
        it.lease.number += 1;
        it.state = State::Acquiring(Acquiring {
            round: Round::new(self.setup.masters, NonZeroU32::MIN),
            begun: self.now,
            refused_at: Masters::default(),
            changed: false,
        });
        let op = Op::Acquire {
            lease: it.lease,
            count: NonZeroU32::MIN,
            ttl: Ttl::MAX,
            tokens: NonZeroU32::MIN,
            wait: false,
        };
        self.send(client, self.setup.masters.all(), Kind::Acquire, op);
    }

    fn handle_request(&mut self, message: Message, op: &Op) {
        let Message { client, master, .. } = message;
        let it = &mut self.masters[master];
        let done = self.now.max(it.busy_until).after(self.setup.script);
        it.busy_until = done;
        it.scripts += 1;
        let before = it.record.clone();
        let now = StoreTime::from_micros(1_000_000 + done.as_nanos() / 1_000);
        let outcome = mutex::apply(&mut it.record, op, now, |_| false);
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
        let step = match (&mut it.state, message.kind) {
            (State::Acquiring(acquiring), Kind::Acquire) => {
                if matches!(outcome, Outcome::Refused { .. }) {
                    acquiring.refused_at.insert(master);
                }
                acquiring.round.handle_reply(master, Some(outcome))
            }
            (State::Acquiring(acquiring), Kind::Fence) => {
                acquiring.round.handle_token_reply(master, Some(outcome))
            }
            (State::Releasing { replies }, Kind::Release) => {
                *replies += 1;
                if *replies == self.setup.masters.majority() {
                    it.state = State::Idle;
                    self.wake_after(client, IDLE);
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
                    tokens: NonZeroU32::MIN,
                };
                self.send(client, to, Kind::Fence, op);
            }
            Step::Won { .. } => {
                it.backoff.won(self.now);
                it.grants += 1;
                it.state = State::Holding;
                self.wake_after(client, self.setup.hold);
            }
            Step::Lost(defeat) => self.handle_defeat(client, defeat),
        }
    }

    /// Abandons a lease that was not won, and backs off.
    fn handle_defeat(&mut self, client: usize, defeat: Defeat) {
        let it = &mut self.clients[client];
        let State::Acquiring(acquiring) = &it.state else {
            return;
        };
        let (round, changed) = (self.now.since(acquiring.begun), acquiring.changed);
        let granted = self.setup.masters.all().without(acquiring.refused_at);
        let split = !matches!(defeat, Defeat::Held { split: false, .. });
        it.state = State::Waiting {
            woken: split || changed,
        };
        it.timer += 1;
        if split {
            it.backoff.split(round, self.now);
            let window = it.backoff.window();
            self.wake_within(client, window);
        } else {
            it.backoff.refused(round, self.now);
            if changed {
                let window = it.backoff.window_after_change(self.now);
                self.wake_within(client, window);
            }
        }
        self.release(client, granted, Kind::Abandon);
    }

    fn handle_change(&mut self, client: usize, master: usize) {
        let it = &mut self.clients[client];
        it.changed_at.insert(master);
        if it.changed_at.len() < self.setup.masters.majority() {
            return;
        }
        it.changed_at = Masters::default();
        match &mut it.state {
            State::Acquiring(acquiring) => acquiring.changed = true,
            State::Waiting { woken } if !*woken => {
                *woken = true;
                let window = it.backoff.window_after_change(self.now);
                self.wake_within(client, window);
            }
            _ => {}
        }
    }

    /// Releases the lease of a client at some masters.
    fn release(&mut self, client: usize, at: Masters, kind: Kind) {
        let op = Op::Release {
            lease: self.clients[client].lease,
            count: 0,
            ttl: Ttl::MAX,
        };
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
            self.deliver(self.now, path, Event::Request(message, op));
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

    fn wake_within(&mut self, client: usize, window: Duration) {
        let delay = window.mul_f64(self.rng.f64());
        self.wake_after(client, delay);
    }

    fn wake_after(&mut self, client: usize, delay: Duration) {
        let it = &mut self.clients[client];
        it.timer += 1;
        let timer = it.timer;
        self.schedule(self.now.after(delay), Event::Wake { client, timer });
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.scheduled += 1;
        self.events.insert((at, self.scheduled), event);
    }
}

#[cfg(test)]
mod tests;
