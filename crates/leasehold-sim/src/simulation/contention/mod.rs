//! Contenders for one lock over many masters. The report has how often each of them was granted the lock.
//!
//! Masters apply the rule that ships, and contenders host the acquisition and the rounds that ship. Messages take a
//! random time and stay in order between a contender and a master. Nothing fails here.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use leasehold_core::acquisition::{AcquireAction, AcquireNotice, AcquireReply, AcquisitionOptions};
use leasehold_core::contention::Backoff;
use leasehold_core::quorum::{Addressed, Leftover, Masters, Reply, Size, Tally};
use leasehold_core::{
    Acquisition, Claim, ClientId, Environment, Instant, LeaseId, Op, Outcome, Policy,
    RenewalOptions, Rows, StoreTime, Token, TokenCount, Ttl,
};

use super::{Event, LeaseToken, Occurrence, Simulation, Violation};

/// Leases that last longer than the simulation, at a store that needs a new lease id for each request.
fn options() -> AcquisitionOptions {
    let (policy, fixed) = (Policy::of(Ttl::MAX), None);
    AcquisitionOptions {
        lease: RenewalOptions { policy, fixed },
        claim: Claim::Mutex,
        run: None,
        wait: true,
        replicated: false,
        idempotent: false,
        longest_poll: leasehold_core::acquisition::POLL_MAX,
    }
}

/// The latency of a message, in microseconds.
const LATENCY: Range<u64> = 80..220;

/// How long a contender is idle between a release and the next acquisition.
const IDLE: Duration = Duration::from_micros(20);

/// All contenders want the lock within this time after the start.
const START: Duration = Duration::from_millis(5);

/// The contenders and the masters of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contention {
    /// How many contenders want the lock, again and again.
    pub contenders: usize,
    /// How many masters there are.
    pub masters: Size,
    /// How long each contender holds the lock.
    pub hold: Duration,
    /// How much longer the notice of a change takes than a reply.
    pub notification: Duration,
    /// How long a script takes on a master.
    pub script: Duration,
    /// How long the simulation runs.
    pub runtime: Duration,
}

/// What happens to a contender or a master.
#[derive(Clone, Debug)]
pub(super) enum ContentionEvent {
    /// A request reaches a master.
    Request(Message),
    /// Its reply reaches the contender.
    Reply(Message, Outcome),
    /// A contender is notified by a master that the record was changed.
    Changed(usize, usize),
    /// The timer of a contender with this number expires.
    Wake(usize, u64),
}

#[derive(Clone, Debug)]
pub(super) struct Message {
    contender: usize,
    master: usize,
    op: Op,
}

#[derive(Default)]
struct Master {
    record: Rows,
    /// The contenders that have read the record since its last change. They are notified of the next one.
    readers: BTreeSet<usize>,
    busy_until: Instant,
}

struct Contender {
    acquisition: Acquisition,
    backoff: Backoff,
    lease: LeaseId,
    phase: ContenderPhase,
    /// The masters that have notified it of a change.
    changed_at: Masters,
    timer: u64,
}

enum ContenderPhase {
    Idle,
    /// With the replies to its last request.
    Acquiring(Option<Box<Tally>>),
    Holding(Token),
    /// So many masters have replied.
    Releasing(usize),
}

/// The contenders of a simulation, and the masters.
pub(super) struct Contenders {
    setup: Contention,
    masters: Vec<Master>,
    contenders: Vec<Contender>,
    /// When the last message from a contender to a master arrives, and the last one back.
    last: BTreeMap<(usize, usize, bool), Instant>,
}

impl Contenders {
    fn new(setup: Contention) -> Self {
        let contender = |nth: usize| Contender {
            acquisition: Acquisition::new(options(), Backoff::default(), Instant::default()),
            backoff: Backoff::default(),
            lease: LeaseId {
                client: ClientId::from_random((nth as u128).to_be_bytes()),
                number: 0,
            },
            phase: ContenderPhase::Idle,
            changed_at: Masters::default(),
            timer: 0,
        };
        let masters = 0..setup.masters.masters();
        Self {
            setup,
            masters: masters.map(|_| Master::default()).collect(),
            contenders: (0..setup.contenders).map(contender).collect(),
            last: BTreeMap::new(),
        }
    }

    /// What the contenders rely on.
    pub(super) fn holds(&self) -> impl Iterator<Item = LeaseToken> {
        self.contenders.iter().filter_map(|it| match it.phase {
            ContenderPhase::Holding(token) => Some((it.lease, token)),
            _ => None,
        })
    }
}

impl Simulation {
    /// Lets the contenders acquire the lock again and again.
    pub(super) fn play_contention(&mut self, setup: Contention) -> Result<(), Violation> {
        self.contenders = Some(Contenders::new(setup));
        self.report.grants = vec![0; setup.contenders];
        for contender in 0..setup.contenders {
            let delay = self.part(START);
            let wake = ContentionEvent::Wake(contender, 0);
            self.schedule(delay, Event::Contention(wake));
        }
        self.pass(setup.runtime)
    }

    /// Lets a contender or a master act.
    pub(super) fn contend(&mut self, event: ContentionEvent) {
        if let Some(mut contenders) = self.contenders.take() {
            contenders.process(event, self);
            self.contenders = Some(contenders);
        }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.time)
    }
}

impl Contenders {
    fn process(&mut self, event: ContentionEvent, cx: &mut Simulation) {
        match event {
            ContentionEvent::Request(message) => self.handle_request(message, cx),
            ContentionEvent::Reply(message, outcome) => self.handle_reply(message, outcome, cx),
            ContentionEvent::Changed(contender, master) => {
                self.handle_change(contender, master, cx);
            }
            ContentionEvent::Wake(contender, timer) => {
                if timer == self.contenders[contender].timer {
                    self.wake(contender, cx);
                }
            }
        }
    }

    fn wake(&mut self, contender: usize, cx: &mut Simulation) {
        let it = &mut self.contenders[contender];
        match it.phase {
            ContenderPhase::Idle => {
                it.acquisition = Acquisition::new(options(), it.backoff, cx.now());
                it.phase = ContenderPhase::Acquiring(None);
                self.poll(contender, cx);
            }
            ContenderPhase::Acquiring(..) => self.poll(contender, cx),
            ContenderPhase::Holding(_) => {
                it.backoff.released(cx.now());
                it.phase = ContenderPhase::Releasing(0);
                self.release(contender, self.setup.masters.all(), cx);
            }
            ContenderPhase::Releasing(_) => {}
        }
    }

    /// Does what the acquisition of a contender returns, until it waits.
    fn poll(&mut self, contender: usize, cx: &mut Simulation) {
        let all = self.setup.masters.all();
        loop {
            let it = &mut self.contenders[contender];
            let ContenderPhase::Acquiring(tally) = &mut it.phase else {
                return;
            };
            match it.acquisition.poll(cx.now(), 0) {
                AcquireAction::NewLease => {
                    it.lease.number += 1;
                    it.acquisition.start(it.lease, TokenCount::MIN);
                }
                AcquireAction::Acquire(mut op) => {
                    // A majority of queues would not have an order.
                    let proposal = Token::at(store_time(cx.now()));
                    if let Op::Acquire(request) = &mut op {
                        (request.wait, request.proposal) = (false, proposal);
                    }
                    let new = Tally::new(self.setup.masters, op.clone(), proposal, None);
                    *tally = Some(Box::new(new));
                    return self.send(contender, all, &op, cx);
                }
                AcquireAction::Release(_) => {
                    let leftover = tally.as_deref().and_then(Tally::leftover);
                    if let Some((_, Some(Leftover { clear, .. }))) = leftover {
                        self.release(contender, all.without(clear), cx);
                    }
                }
                AcquireAction::Granted(granted) => {
                    it.backoff = it.acquisition.backoff();
                    it.phase = ContenderPhase::Holding(granted.first);
                    cx.report.grants[contender] += 1;
                    return self.wake_at(contender, cx.now().after(self.setup.hold), cx);
                }
                AcquireAction::Wait => {
                    if let Some(timeout) = it.acquisition.next_timeout() {
                        self.wake_at(contender, timeout, cx);
                    }
                    return;
                }
                other => unreachable!("nothing fails, but {other:?}"),
            }
        }
    }

    fn handle_request(&mut self, message: Message, cx: &mut Simulation) {
        let (contender, master) = (message.contender, message.master);
        if master == 0 {
            cx.count(Occurrence::Script);
        }
        let it = &mut self.masters[master];
        let done = cx.now().max(it.busy_until).after(self.setup.script);
        it.busy_until = done;
        let before = it.record.clone();
        let now = store_time(done);
        let outcome = it
            .record
            .apply(&message.op, &Environment::at(now), |_| false)
            .outcome;
        let mut readers = BTreeSet::new();
        if it.record != before {
            readers = std::mem::take(&mut it.readers);
        }
        it.readers.insert(contender);
        for reader in readers.into_iter().filter(|reader| *reader != contender) {
            let at = done.after(self.setup.notification);
            let changed = ContentionEvent::Changed(reader, master);
            self.deliver(at, (reader, master, true), changed, cx);
        }
        let reply = ContentionEvent::Reply(message, outcome);
        self.deliver(done, (contender, master, true), reply, cx);
    }

    fn handle_reply(&mut self, message: Message, outcome: Outcome, cx: &mut Simulation) {
        let Message {
            contender,
            master,
            op,
        } = message;
        let it = &mut self.contenders[contender];
        if op.lease() != Some(it.lease) {
            return;
        }
        let is_release = matches!(op, Op::Release { .. });
        match &mut it.phase {
            ContenderPhase::Acquiring(Some(tally)) if !is_release && !tally.is_done() => {
                let second = matches!(op, Op::SetToken { .. });
                let reply = Reply::Applied { outcome, now: None };
                let next = tally.handle_reply(master, second, reply);
                // A wait for other masters would be short.
                let next = next.or_else(|| tally.end_proposal_wait());
                if let Some(Addressed { op, to }) = next {
                    self.send(contender, to, &op, cx);
                } else if tally.is_done() {
                    let Reply::Applied { outcome, .. } = tally.reply() else {
                        unreachable!("nothing fails, but {tally:?}")
                    };
                    let reply = AcquireReply::Applied {
                        outcome,
                        now: StoreTime::default(),
                        shard: None,
                        notifies_changes: true,
                    };
                    it.acquisition.handle_reply(reply, cx.now(), cx.rng.f64());
                    self.poll(contender, cx);
                }
            }
            ContenderPhase::Releasing(replies) if is_release => {
                *replies += 1;
                if *replies == self.setup.masters.majority() {
                    it.phase = ContenderPhase::Idle;
                    self.wake_at(contender, cx.now().after(IDLE), cx);
                }
            }
            _ => {}
        }
    }

    fn handle_change(&mut self, contender: usize, master: usize, cx: &mut Simulation) {
        let it = &mut self.contenders[contender];
        it.changed_at.insert(master);
        if it.changed_at.len() < self.setup.masters.majority() {
            return;
        }
        it.changed_at = Masters::default();
        let (now, spread) = (cx.now(), cx.rng.f64());
        let acquisition = &mut it.acquisition;
        if acquisition.handle_notice(AcquireNotice::Changed, now, spread) {
            self.poll(contender, cx);
        }
    }

    /// Releases the lease of a contender at some masters. If it was not won, the replies are ignored: the next request has
    /// another lease.
    fn release(&mut self, contender: usize, at: Masters, cx: &mut Simulation) {
        let op = Op::release(self.contenders[contender].lease);
        self.send(contender, at, &op, cx);
    }

    fn send(&mut self, contender: usize, to: Masters, op: &Op, cx: &mut Simulation) {
        for master in to.iter() {
            let op = op.clone();
            let message = Message {
                contender,
                master,
                op,
            };
            let request = ContentionEvent::Request(message);
            self.deliver(cx.now(), (contender, master, false), request, cx);
        }
    }

    /// Delivers a message that is sent at an instant, behind the earlier ones of its path.
    fn deliver(
        &mut self,
        sent: Instant,
        path: (usize, usize, bool),
        event: ContentionEvent,
        cx: &mut Simulation,
    ) {
        let latency = Duration::from_micros(cx.rng.u64(LATENCY));
        let last = self.last.entry(path).or_insert(cx.now());
        *last = sent.after(latency).max(*last);
        cx.schedule_at(last.as_nanos(), Event::Contention(event));
    }

    fn wake_at(&mut self, contender: usize, at: Instant, cx: &mut Simulation) {
        let it = &mut self.contenders[contender];
        it.timer += 1;
        let wake = ContentionEvent::Wake(contender, it.timer);
        cx.schedule_at(at.as_nanos(), Event::Contention(wake));
    }
}

/// The time of a master. The masters' clocks agree.
fn store_time(now: Instant) -> StoreTime {
    StoreTime::from_micros(1_000_000 + now.as_nanos() / 1_000)
}
