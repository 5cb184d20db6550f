//! A client: the host of the state machines that ship.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::acquisition::{
    AcquireAction, AcquireNotice, AcquisitionOptions, GrantedLease, RunRequest,
};
use leasehold_core::record::Unless;
use leasehold_core::release::{AbandonedLease, ReleaseReply};
use leasehold_core::{
    Cause, Claim, ClientId, Grant, Instant, LateRelease, LeaseId, Notice, Op, Outcome,
    PendingReleases, Policy, RenewalOptions, StoreTime, Ttl,
};

use super::acquiring::{Acquiring, SHARD, TOKENS};
use super::calls::{Call, Calls, Context, Purpose, timeout};
use super::frames::FromNode;
use super::holder::{Holder, Leading};
use super::observing::Observing;
use super::report::Occurrence;
use super::runs::{self, Run};
use super::setup::{Leases, Mutation, Setup};
use super::values::{Observed, Value};
use super::watching::Watching;

/// A message to a client.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// The reply to a request, and the store's time.
    Reply(u64, Outcome, StoreTime),
    Notice(Notice),
    /// The state of the lock, which a request has read.
    State(u64, Observed),
    /// The state that this request has read was changed.
    Changed(u64),
}

#[derive(Debug)]
pub(super) struct SimulatedClient {
    id: ClientId,
    policy: Policy,
    leases: u64,
    calls: Calls,
    releases: PendingReleases<Op, ()>,
    phase: ClientPhase,
    /// Its observers, from its first connection on.
    observing: Option<Observing>,
    /// Its session with a node of the watchdog.
    pub(super) watching: Option<Watching>,
    /// When the lease of another client expires, by the last refusal.
    pub(super) expiry: Option<Instant>,
    /// Whether its run succeeds. `None`: by chance.
    pub(super) succeeds: Option<bool>,
}

#[derive(Debug)]
enum ClientPhase {
    Idle,
    Acquiring(Box<Acquiring>),
    Holding(Box<Holder>),
}

impl SimulatedClient {
    pub(super) fn new(id: ClientId, ttl: Ttl) -> Self {
        Self {
            id,
            policy: Policy::of(ttl),
            leases: 0,
            calls: Calls::new(timeout(ttl)),
            releases: PendingReleases::default(),
            phase: ClientPhase::Idle,
            observing: None,
            watching: None,
            expiry: None,
            succeeds: None,
        }
    }

    pub(super) const fn is_idle(&self) -> bool {
        matches!(self.phase, ClientPhase::Idle)
    }

    /// Whether it is idle, and the store has replied to all that it has sent.
    pub(super) fn has_ended(&self) -> bool {
        self.is_idle() && self.calls.is_empty()
    }

    /// The lease id with which it waits.
    pub(super) fn waiting_lease(&self) -> Option<LeaseId> {
        match &self.phase {
            ClientPhase::Acquiring(acquiring) => acquiring.acquisition.lease(),
            _ => None,
        }
    }

    /// Whether an acquire is in flight.
    pub(super) fn is_requesting(&self) -> bool {
        self.calls.is_open(Purpose::Acquire)
    }

    /// The run for which it holds the lock.
    pub(super) fn run(&self, now: Instant) -> Option<&Unless> {
        let holder = self.holder()?;
        holder.hold(now)?;
        Some(&holder.run.as_ref()?.request.unless)
    }

    pub(super) fn holder(&self) -> Option<&Holder> {
        match &self.phase {
            ClientPhase::Holding(holder) => Some(holder),
            _ => None,
        }
    }

    /// Acquires the lock if it is idle, and holds it for as long as it can.
    pub(super) fn lead(&mut self, cx: &mut Context<'_>) {
        let forever = self.policy.ttl.as_duration() * 100;
        match &mut self.phase {
            ClientPhase::Idle => self.acquire(forever, forever, cx),
            ClientPhase::Acquiring(acquiring) => acquiring.hold_for = forever,
            ClientPhase::Holding(holder) if holder.hold(cx.now).is_some() => {
                holder.until = cx.now.after(forever);
            }
            ClientPhase::Holding(_) => {}
        }
    }

    /// Keeps the value of the leader from now on, and returns it.
    pub(super) fn keep_value(&mut self, now: Instant) -> Option<Value> {
        let ClientPhase::Holding(holder) = &mut self.phase else {
            return None;
        };
        let (_, token) = holder.hold(now)?;
        Some((token, holder.leading.as_mut().map(Leading::keep)?))
    }

    /// Whether its observers report this value, or that there is none.
    pub(super) fn reports(&self, value: Option<Value>) -> bool {
        let observing = self.observing.as_ref();
        observing.is_some_and(|observing| observing.reports(value))
    }

    pub(super) fn next_timeout(&self, now: Instant, setup: &Setup) -> Option<Instant> {
        let phase = match &self.phase {
            ClientPhase::Idle => None,
            ClientPhase::Acquiring(acquiring) => {
                let next = acquiring.next_timeout(setup);
                Some(next.map_or(acquiring.gives_up, |next| next.min(acquiring.gives_up)))
            }
            ClientPhase::Holding(holder) => holder.next_timeout(now),
        };
        let observing = self.observing.as_ref().map(Observing::next_timeout);
        let watching = self.watching.as_ref().and_then(Watching::next_timeout);
        let calls = self.calls.next_timeout().into_iter();
        let calls = calls.chain(self.releases.next_timeout());
        calls.chain(phase).chain(observing).chain(watching).min()
    }

    /// Acquires the lock: gives up after `wait_for`, and holds it for `hold_for`.
    pub(super) fn acquire(&mut self, wait_for: Duration, hold_for: Duration, cx: &mut Context<'_>) {
        let fixed = match cx.setup.leases {
            Leases::Renewed => false,
            Leases::Fixed => true,
            Leases::Mixed => cx.rng.u8(0..4) == 0,
        };
        let ttl = self.policy.ttl.as_duration();
        let fixed = fixed.then(|| Ttl::remainder(cx.part(ttl) + self.policy.retry()));
        let options = AcquisitionOptions {
            lease: RenewalOptions {
                policy: self.policy,
                fixed,
            },
            claim: Claim::Mutex,
            run: cx.unless.clone().map(|unless| {
                let since = cx.now;
                Arc::new(RunRequest { unless, since })
            }),
            wait: cx.setup.has_queue() || cx.rng.u8(0..4) == 0,
            replicated: false,
            idempotent: true,
            longest_poll: leasehold_core::acquisition::POLL_MAX,
        };
        let acquiring = Acquiring::new(options, cx.now.after(wait_for), hold_for, cx);
        self.phase = ClientPhase::Acquiring(Box::new(acquiring));
        self.poll_acquisition(cx);
    }

    /// Gives up what it waits for, or releases what it holds.
    pub(super) fn leave(&mut self, cx: &mut Context<'_>) {
        self.calls.drop_phase();
        match std::mem::replace(&mut self.phase, ClientPhase::Idle) {
            ClientPhase::Idle => {}
            ClientPhase::Acquiring(mut acquiring) => {
                cx.report.count(Occurrence::GaveUp);
                if let Some(abandoned) = acquiring.acquisition.abandon()
                    && !cx.setup.has(Mutation::NoRelease)
                {
                    self.abandon(abandoned, cx);
                }
            }
            ClientPhase::Holding(holder) => {
                let is_held = holder.hold(cx.now).is_some();
                let succeeds = self.succeeds;
                let mut succeeds = || succeeds.unwrap_or_else(|| cx.rng.u8(0..4) > 0);
                let run = holder.run.as_ref().filter(|_| is_held && succeeds());
                let (lease, ttl, late) = holder.end(cx.now);
                let release = Op::Release {
                    lease,
                    rest: None,
                    note: run.map(|run| run.completion(cx.now)),
                };
                self.release(release, ttl, late, cx);
            }
        }
    }

    /// Completes its run, and holds the lock on until that is written.
    pub(super) fn complete(&mut self, cx: &mut Context<'_>) {
        if let ClientPhase::Holding(holder) = &mut self.phase {
            holder.complete(cx.now);
        }
        self.poll_holder(cx);
    }

    pub(super) fn handle_timer(&mut self, cx: &mut Context<'_>) {
        for call in self.calls.take_if(|call| call.timeout <= cx.now) {
            cx.report.count(Occurrence::NoReply);
            self.handle_reply(call, None, cx);
        }
        for (number, release) in self.releases.poll(cx.now) {
            cx.report.count(Occurrence::RepeatedRelease);
            match number {
                Some(number) => self.calls.send(Purpose::Release(number), release, cx),
                None => Calls::send_without_reply(runs::without_note(release), cx),
            }
        }
        if let Some(observing) = &mut self.observing {
            observing.handle_timer(&mut self.calls, cx);
        }
        match &self.phase {
            ClientPhase::Idle => {}
            ClientPhase::Acquiring(acquiring) if acquiring.gives_up <= cx.now => self.leave(cx),
            ClientPhase::Acquiring(acquiring) => {
                let next = acquiring.next_timeout(cx.setup);
                if next.is_some_and(|at| at <= cx.now) {
                    acquiring.count_timer(cx);
                    self.poll_acquisition(cx);
                }
            }
            ClientPhase::Holding(_) => self.poll_holder(cx),
        }
    }

    /// The connection broke, and there is a new one: the requests in flight have no reply, and notices
    /// may have been lost.
    pub(super) fn handle_interruption(&mut self, cx: &mut Context<'_>) {
        if cx.setup.has(Mutation::NoRequestAfterReconnect) {
            return;
        }
        for call in self.calls.take_if(|_| true) {
            self.handle_reply(call, None, cx);
        }
        if cx.setup.elects {
            let interval = self.policy.ttl.as_duration();
            let observing = &mut self.observing;
            let observing = observing.get_or_insert_with(|| Observing::new(interval, cx));
            observing.interrupted(&mut self.calls, cx);
        }
        match &mut self.phase {
            ClientPhase::Idle => {}
            ClientPhase::Acquiring(acquiring) => {
                if acquiring.queued {
                    cx.report.count(Occurrence::RequestAfterReconnect);
                }
                acquiring.handle_notice(AcquireNotice::Interrupted, cx);
                self.poll_acquisition(cx);
            }
            ClientPhase::Holding(holder) => {
                holder.interrupted(cx.now);
                self.poll_holder(cx);
            }
        }
    }

    pub(super) fn handle_message(&mut self, message: Message, cx: &mut Context<'_>) {
        match message {
            Message::Notice(Notice::Granted(grant)) => self.handle_grant(grant, cx),
            Message::Notice(Notice::Next { lease, ttl }) => {
                if let ClientPhase::Acquiring(acquiring) = &mut self.phase
                    && acquiring.acquisition.lease() == Some(lease)
                    && !cx.setup.has(Mutation::IgnoresNext)
                {
                    acquiring.handle_notice(AcquireNotice::Next(ttl), cx);
                }
            }
            Message::State(number, observed) => {
                if let (Some(_), Some(observing)) = (self.calls.take(number), &mut self.observing) {
                    observing.handle_reply(number, observed, &mut self.calls, cx);
                }
            }
            Message::Changed(number) => {
                if let Some(observing) = &mut self.observing {
                    observing.handle_push(number, &mut self.calls, cx);
                }
            }
            Message::Notice(Notice::Complete { lease, note }) => {
                if let ClientPhase::Acquiring(acquiring) = &mut self.phase {
                    cx.report.count(Occurrence::ToldComplete);
                    acquiring.handle_notice(AcquireNotice::Complete(lease, note), cx);
                    self.poll_acquisition(cx);
                }
            }
            // No operator revokes leases here.
            Message::Notice(Notice::Revoked { .. }) => {}
            Message::Reply(number, outcome, now) => {
                if let Some(call) = self.calls.take(number) {
                    self.handle_reply(call, Some((outcome, now)), cx);
                }
            }
        }
    }

    /// Processes a notified grant as the driver does.
    fn handle_grant(&mut self, grant: Grant, cx: &mut Context<'_>) {
        match &mut self.phase {
            ClientPhase::Acquiring(acquiring)
                if acquiring.acquisition.lease() == Some(grant.lease) =>
            {
                acquiring.handle_grant(grant, cx);
                return self.poll_acquisition(cx);
            }
            ClientPhase::Holding(holder) if holder.id == grant.lease => {
                let is_after = match cx.setup.has(Mutation::TakesOldGrantForNew) {
                    true => holder.token != grant.first,
                    false => grant.is_after(holder.token),
                };
                // The reply to a later request was read first.
                if !is_after {
                    return;
                }
                // The lease had ended in the store, and a late request has acquired the lock again for its id.
                holder.lose(Cause::Deleted);
            }
            _ => {}
        }
        cx.report.count(Occurrence::Orphan);
        if !cx.setup.has(Mutation::KeepsOrphans) {
            self.release(Op::release(grant.lease), grant.ttl, None, cx);
        }
    }

    /// Processes the reply to a request, with the store's time. `None`: it has none.
    fn handle_reply(
        &mut self,
        call: Call,
        reply: Option<(Outcome, StoreTime)>,
        cx: &mut Context<'_>,
    ) {
        match (call.purpose, &mut self.phase) {
            (Purpose::Release(number), _) => {
                let reply = match reply {
                    Some((outcome, _)) => ReleaseReply::Applied {
                        held: outcome == Outcome::Released,
                    },
                    None => ReleaseReply::Failed(()),
                };
                let spread = cx.spread();
                self.releases.handle_reply(number, reply, cx.now, spread);
            }
            (Purpose::Read, _) => {
                if let Some(observing) = &mut self.observing {
                    observing.handle_no_reply(&mut self.calls, cx);
                }
            }
            (Purpose::Acquire, ClientPhase::Acquiring(acquiring)) => {
                if let Some((Outcome::Refused { time_left, .. }, _)) = reply {
                    self.expiry = time_left.map(|time_left| cx.now.after(time_left));
                }
                acquiring.handle_reply(reply, cx);
                self.poll_acquisition(cx);
            }
            (purpose, ClientPhase::Holding(holder)) => {
                let outcome = reply.map(|(outcome, _)| outcome);
                let writes = purpose == Purpose::Write && outcome.is_some();
                holder.handle_reply(call, outcome, &mut self.calls, cx);
                if writes {
                    self.poll_holder(cx);
                }
            }
            _ => {}
        }
    }

    /// Does what the acquisition returns, until it waits.
    fn poll_acquisition(&mut self, cx: &mut Context<'_>) {
        while let ClientPhase::Acquiring(acquiring) = &mut self.phase {
            match acquiring.acquisition.poll(cx.now, SHARD) {
                AcquireAction::Wait => return,
                AcquireAction::NewLease => {
                    if self.leases == 0 || !cx.setup.has(Mutation::ReusedLeaseId) {
                        self.leases += 1;
                    }
                    let (client, number) = (self.id, self.leases);
                    acquiring.queued = false;
                    let lease = LeaseId { client, number };
                    acquiring.acquisition.start(lease, TOKENS);
                }
                AcquireAction::Acquire(op) => {
                    if let Some(grant) = acquiring.notice.take() {
                        cx.report.count(Occurrence::Outdated);
                        if cx.setup.has(Mutation::AcceptsLate) {
                            let granted = acquiring.accepted_late(&grant, cx);
                            return self.hold(granted, cx);
                        }
                    }
                    return self.calls.send(Purpose::Acquire, op, cx);
                }
                AcquireAction::Release(abandoned) => {
                    cx.report.count(Occurrence::Abandoned);
                    self.abandon(abandoned, cx);
                }
                AcquireAction::GrantExpired => cx.report.count(Occurrence::GrantExpired),
                AcquireAction::Granted(granted) => {
                    let granted = acquiring.mutated(granted, cx);
                    self.hold(granted, cx);
                }
                AcquireAction::Refused | AcquireAction::Failed | AcquireAction::Complete(_) => {
                    self.leave(cx);
                }
            }
        }
    }

    /// Holds a lease that it has acquired.
    fn hold(&mut self, granted: GrantedLease, cx: &mut Context<'_>) {
        let ClientPhase::Acquiring(acquiring) = &self.phase else {
            return;
        };
        let until = cx.now.after(acquiring.hold_for);
        let request = acquiring.acquisition.options().run.clone();
        let run = request.map(|request| Run {
            request,
            granted: granted.run.clone(),
            begun: cx.now,
        });
        let holder = Holder::new(granted, self.policy, until, run, cx);
        self.phase = ClientPhase::Holding(Box::new(holder));
        self.poll_holder(cx);
    }

    /// Registers what it holds with its node, and lets the session with the node act.
    pub(super) fn watch(&mut self, cx: &mut Context<'_>) {
        let Some(watching) = &mut self.watching else {
            return;
        };
        let lease = match &mut self.phase {
            ClientPhase::Holding(holder) => holder.registration(cx.now),
            _ => None,
        };
        watching.register(lease, cx);
        watching.poll(cx);
    }

    /// Processes a message of its node.
    pub(super) fn handle_node(&mut self, message: FromNode, cx: &mut Context<'_>) {
        let Some(watching) = &mut self.watching else {
            return;
        };
        let (leases, watched) = watching.handle_message(message, cx);
        if let ClientPhase::Holding(holder) = &mut self.phase
            && leases.contains(&holder.id.number)
        {
            holder.watch(watched, cx.now);
        }
    }

    fn poll_holder(&mut self, cx: &mut Context<'_>) {
        if let ClientPhase::Holding(holder) = &mut self.phase
            && holder.poll(&mut self.calls, cx)
        {
            self.leave(cx);
        }
    }

    fn abandon(&mut self, abandoned: AbandonedLease, cx: &mut Context<'_>) {
        let AbandonedLease {
            lease, ttl, late, ..
        } = abandoned;
        self.release(Op::release(lease), ttl, late, cx);
    }

    fn release(&mut self, release: Op, ttl: Ttl, late: Option<LateRelease>, cx: &mut Context<'_>) {
        let expires = cx.now.after(ttl.as_duration());
        let number = self.releases.begin(release.clone(), expires, late);
        self.calls.send(Purpose::Release(number), release, cx);
    }
}
