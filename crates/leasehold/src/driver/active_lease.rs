//! One lease that this process holds.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::acquisition::{GrantedLease, Numbering};
use leasehold_core::{
    Action, Cause, Chain, DueTime, Grant, Handoff, HoldId, Instant, Lease, LeaseId, MinHold,
    NewNote, Op, Outcome, Scheduled, State, StateKind, Term, Token, Ttl,
};
use tokio::sync::Notify;

use super::LeaseQueues;
use super::local_queue::Head;
use super::primitives::{Mutex, MutexGuard, lock, report};
use super::release::Release;
use crate::clock::Clock;
use crate::store::{Key, Reply, Request};
use crate::{Durability, ErrorKind};

pub(crate) struct ActiveLease {
    pub(crate) key: Key,
    pub(crate) id: LeaseId,
    /// The first of the tokens reserved for it.
    pub(crate) first: Token,
    /// What its grant says beside its tokens, if others may hold the lock at the same time. The store does not count
    /// its holds then.
    pub(crate) share: Option<Box<Numbering>>,
    /// When the renewer polls it.
    due_time: DueTime,
    /// The replicas that must acknowledge its renewals. Locked by itself, and inside of `inner`.
    durability: Mutex<Durability>,
    inner: Mutex<Inner>,
    changed: Notify,
    lost: Arc<LostLeases>,
}

/// The leases of a client that were at the head of a queue when they were lost, with their first tokens, as long as the
/// store may have them. Their holders may still end their work.
#[derive(Debug, Default)]
pub(crate) struct LostLeases(Mutex<VecDeque<(LeaseId, Token, Instant)>>);

impl LostLeases {
    fn add(&self, lease: &ActiveLease, expires: Instant, now: Instant) {
        let mut lost = lock(&self.0);
        while lost.front().is_some_and(|(.., until)| *until <= now) {
            lost.pop_front();
        }
        lost.push_back((lease.id, lease.first, expires));
    }

    /// Whether this is the grant of a lease that was lost a short time ago.
    pub(crate) fn has(&self, grant: &Grant) -> bool {
        let lost = lock(&self.0);
        let mut lost = lost.iter().filter(|(id, ..)| *id == grant.lease);
        lost.any(|(_, first, _)| !grant.is_after(*first))
    }
}

/// What changes while the lease is held.
pub(crate) struct Inner {
    pub(crate) lease: Lease,
    pub(crate) chain: Chain,
    /// Until when a request of this id without a reply can still be applied.
    late_release: Option<Instant>,
    /// The minimum hold, of the hold whose one ends last. Most leases have none.
    pub(super) min_hold: Option<Box<MinHold>>,
    /// The head of the queue of the lock. It passes on to the next task when the lease is released or lost.
    pub(crate) head: Option<Head<LeaseQueues>>,
    /// Whether a renewal is in flight.
    renewing: bool,
    /// How many nodes of the watchdog have the lease registered.
    #[cfg(feature = "watchdog")]
    watchdogs: u16,
    /// The state that was reported last.
    reported: StateKind,
    /// The first task in the local queue at the last renewals. Most leases have none.
    first_task: Option<Box<FirstTask>>,
}

/// The first task that waits in this process while the lease is held.
struct FirstTask {
    ticket: u64,
    since: Instant,
    reported: bool,
}

impl Inner {
    /// The state, if it is of another kind than the one that was reported last.
    fn change_of_state(&mut self, now: Instant) -> Option<StateKind> {
        let kind = self.lease.state(now).kind();
        let changed = kind != self.reported;
        self.reported = kind;
        changed.then_some(kind)
    }

    /// How long the first task in the local queue has waited, if it has been the first for a ttl: until then it
    /// was not served, so one hold has lasted as long. Returns it once for a task.
    fn long_wait(&mut self, ttl: Duration, now: Instant) -> Option<Duration> {
        let first = self.head.as_ref().and_then(Head::first_ticket);
        let known = self.first_task.take_if(|task| Some(task.ticket) == first);
        let new = |ticket| FirstTask {
            ticket,
            since: now,
            reported: false,
        };
        self.first_task = known.or_else(|| first.map(new).map(Box::new));
        let task = self.first_task.as_mut()?;
        let waited = now.since(task.since);
        let is_due = waited >= ttl && !task.reported;
        task.reported |= is_due;
        is_due.then_some(waited)
    }

    /// Makes the minimum hold at least as long as this one.
    pub(super) fn require_min_hold(&mut self, min_hold: MinHold, now: Instant) {
        let earlier = self.min_hold.as_deref();
        let later = earlier.map_or(min_hold, |earlier| earlier.or_later(min_hold, now));
        self.min_hold = Some(Box::new(later));
    }

    /// When the lease has expired in the store at the latest. A hold that has left may have needed it for longer.
    pub(super) fn expires(&self, now: Instant) -> Instant {
        let expires = now.after(self.lease.ttl(now).as_duration());
        expires.max(self.lease.deadline())
    }

    /// Whether the lock stays taken for a while if it is released now.
    pub(super) fn has_min_hold(&self, now: Instant) -> bool {
        let min_hold = self.min_hold.as_deref();
        min_hold.is_some_and(|min_hold| min_hold.remaining(now).is_some())
    }
}

impl Scheduled for ActiveLease {
    fn number(&self) -> u64 {
        self.id.number
    }

    fn due_time(&self) -> &DueTime {
        &self.due_time
    }
}

impl ActiveLease {
    /// A lease that was granted at `now`.
    pub(crate) fn new(
        key: Key,
        granted: GrantedLease,
        durability: Durability,
        handoff: Handoff,
        lost: Arc<LostLeases>,
        now: Instant,
    ) -> Self {
        let chain = Chain::new(handoff, granted.first, granted.tokens, now);
        Self {
            key,
            id: granted.id,
            first: granted.first,
            share: None,
            due_time: DueTime::default(),
            durability: Mutex::new(durability),
            inner: Mutex::new(Inner {
                lease: granted.lease,
                chain,
                late_release: granted.late_release,
                min_hold: None,
                head: None,
                renewing: false,
                #[cfg(feature = "watchdog")]
                watchdogs: 0,
                reported: StateKind::Held,
                first_task: None,
            }),
            changed: Notify::new(),
            lost,
        }
    }

    /// Whether others may hold the lock at the same time.
    pub(crate) const fn is_shared(&self) -> bool {
        self.share.is_some()
    }

    /// The replicas that must acknowledge its renewals.
    pub(crate) fn durability(&self) -> Durability {
        *lock(&self.durability)
    }

    /// Makes the durability at least as strict as this one.
    pub(crate) fn strengthen(&self, durability: Durability) {
        let mut own = lock(&self.durability);
        *own = own.or_stricter(durability);
    }

    /// Until when a request of this id without a reply can still be applied.
    pub(crate) fn late_release(&self) -> Option<Instant> {
        self.lock().late_release
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Changes the lease, wakes the tasks that wait for a change, and reports a change of state.
    pub(super) fn change<T>(&self, now: Instant, change: impl FnOnce(&mut Inner) -> T) -> T {
        let (result, changed) = self.change_unreported(now, change);
        if let Some(kind) = changed {
            self.report(kind);
        }
        result
    }

    /// Changes the lease, and wakes the tasks that wait for a change. Once it is lost, the next task in the queue
    /// contends anew, whether the holder has noticed or not. Also returns the change of state to be reported.
    fn change_unreported<T>(
        &self,
        now: Instant,
        change: impl FnOnce(&mut Inner) -> T,
    ) -> (T, Option<StateKind>) {
        let mut inner = self.lock();
        let result = change(&mut inner);
        let changed = inner.change_of_state(now);
        let lost = matches!(inner.reported, StateKind::Lost(_));
        let head = if lost { inner.head.take() } else { None };
        // The leases that a shutdown releases are not noted: there may be a million.
        if head.is_some() && inner.reported != StateKind::Lost(Cause::Released) {
            // Before the head passes on: a late notice of the grant finds the lease at the head, or here.
            self.lost.add(self, inner.expires(now), now);
        }
        drop(inner);
        self.changed.notify_waiters();
        drop(head);
        (result, changed)
    }

    /// Logs and counts a change of state.
    pub(super) fn report(&self, kind: StateKind) {
        report(|| {
            let (lock, lease) = (self.key.name.as_str(), self.id);
            match kind {
                StateKind::Held => tracing::info!(lock, %lease, "lease held again"),
                StateKind::Jeopardy(cause) => {
                    metrics::counter!("leasehold_jeopardy_total", "cause" => cause.name())
                        .increment(1);
                    tracing::warn!(lock, %lease, %cause, "lease in jeopardy");
                }
                StateKind::Lost(Cause::Released) => tracing::debug!(lock, %lease, "lease released"),
                StateKind::Lost(cause) => {
                    metrics::counter!("leasehold_lost_total", "cause" => cause.name()).increment(1);
                    tracing::error!(lock, %lease, %cause, "lease lost");
                }
            }
        });
    }

    /// Logs that a task may wait for itself.
    fn report_long_wait(&self, waited: Duration) {
        report(|| {
            let (lock, lease) = (self.key.name.as_str(), self.id);
            tracing::warn!(
                lock,
                %lease,
                ?waited,
                "a task waits for a lock that its own client holds, for longer than a ttl; a task that enters \
                 its lock again needs an Owner"
            );
        });
    }

    pub(crate) fn state(&self, hold: HoldId, now: Instant) -> State {
        self.lock().lease.hold_state(hold, now)
    }

    /// Waits until the state of a hold differs from `last`, in kind or in cause, and returns it.
    pub(crate) async fn state_after(
        &self,
        hold: HoldId,
        last: Option<State>,
        clock: &dyn Clock,
    ) -> State {
        loop {
            // Subscribed before the state is read: no change falls between.
            let changed = self.changed.notified();
            let now = clock.now();
            let (state, next) = {
                let lease = &self.lock().lease;
                (
                    lease.hold_state(hold, now),
                    lease.next_hold_change(hold, now),
                )
            };
            if last.is_none_or(|last| last.kind() != state.kind()) {
                return state;
            }
            match next {
                // Each waiter has a timer of its own, which does not depend on the renewer.
                Some(next) => tokio::select! {
                    () = changed => {}
                    () = clock.sleep_until(next) => {}
                },
                // Only a reply changes the state, or nothing does.
                None => changed.await,
            }
        }
    }

    /// Polls the lease, which was due at `due`. Returns the action, when to poll next, and the change of
    /// state to be reported.
    pub(super) fn poll(
        &self,
        due: Instant,
        now: Instant,
    ) -> (Action, Option<Instant>, Option<StateKind>) {
        let ((action, next), changed) = self.change_unreported(now, |inner| {
            if now.since(due) >= inner.lease.late() {
                inner.lease.wake(now);
            }
            let action = inner.lease.poll(now);
            (action, inner.lease.next_event(now))
        });
        (action, next, changed)
    }

    /// When to poll the lease next, and the change of state to be reported. `None`: never, it is lost.
    pub(super) fn next_event(&self, now: Instant) -> (Option<Instant>, Option<StateKind>) {
        self.change_unreported(now, |inner| inner.lease.next_event(now))
    }

    pub(crate) fn lose(&self, cause: Cause, now: Instant) {
        self.change(now, |inner| inner.lease.lose(cause));
    }

    /// A node of the watchdog has registered the lease, or no longer has.
    #[cfg(feature = "watchdog")]
    pub(super) fn set_watched(&self, more: bool, now: Instant) {
        self.change(now, |inner| {
            inner.watchdogs = match more {
                true => inner.watchdogs.saturating_add(1),
                false => inner.watchdogs.saturating_sub(1),
            };
            let watched = inner.watchdogs > 0;
            inner.lease.watch(watched, now);
        });
    }

    /// The renewal to send now, and until when its reply is of use. `None`: the lease was released or lost
    /// meanwhile.
    pub(super) fn begin_renewal(&self, now: Instant) -> Option<(Request, Instant)> {
        let mut inner = self.lock();
        let lease = &inner.lease;
        if lease.holds().count() == 0 || lease.state(now).is_lost() {
            return None;
        }
        let (ttl, end) = (lease.ttl(now), lease.reply_deadline(now));
        inner.renewing = true;
        let waited = inner.long_wait(ttl.as_duration(), now);
        drop(inner);
        if let Some(waited) = waited {
            self.report_long_wait(waited);
        }
        Some((self.renewal(ttl), end))
    }

    /// Processes the reply to a renewal.
    pub(super) fn handle_renewal(&self, reply: &Reply, sent: Instant, ttl: Ttl, now: Instant) {
        self.change(now, |inner| {
            inner.renewing = false;
            match reply.outcome() {
                Ok(Outcome::Kept) => inner.lease.renewed(sent, ttl, now),
                Ok(outcome) => inner.lease.lose(Cause::of(outcome)),
                Err(error) => {
                    let cause = match error.kind() {
                        ErrorKind::Lost => return inner.lease.lose(Cause::Deleted),
                        ErrorKind::NotReplicated => Cause::NotReplicated,
                        _ => Cause::Unreachable,
                    };
                    inner.lease.renewal_failed(now, cause);
                }
            }
        });
    }

    /// A renewal was given up.
    pub(super) fn renewal_given_up(&self, now: Instant) {
        self.change(now, |inner| {
            inner.renewing = false;
            inner.lease.renewal_failed(now, Cause::Unreachable);
        });
    }

    /// Waits until no renewal is in flight.
    pub(super) async fn no_renewal(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.lock().renewing {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn renewal(&self, ttl: Ttl) -> Request {
        self.request(Op::Renew {
            lease: self.id,
            ttl,
            count: None,
        })
    }

    /// The release after which `count` holds remain. The last one takes a note along.
    pub(super) fn release(
        &self,
        inner: &Inner,
        count: u32,
        note: Option<&NewNote>,
        now: Instant,
    ) -> Release {
        let (lease, ttl) = (self.id, inner.lease.ttl(now));
        let op = match NonZeroU32::new(count) {
            None => Op::Release {
                lease,
                rest: None,
                note: note.cloned(),
            },
            count => Op::Renew { lease, ttl, count },
        };
        Release::new(self.request(op), inner.min_hold.as_deref().copied())
    }

    /// A second release, of a lease whose first one was applied.
    pub(super) fn second_release(&self) -> Release {
        Release::new(self.request(Op::release(self.id)), None)
    }

    pub(crate) fn request(&self, op: Op) -> Request {
        Request::new(self.key.clone(), op).durability(self.durability())
    }

    /// When a hold ends by itself. `None`: it is renewed.
    pub(crate) fn fixed_end(&self, hold: HoldId) -> Option<Instant> {
        match self.lock().lease.holds().term(hold) {
            Some(Term::Fixed(end)) => Some(end),
            _ => None,
        }
    }
}
