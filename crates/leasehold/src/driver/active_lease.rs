//! One lease that this process holds.

use std::sync::atomic::AtomicU64;

use leasehold_core::{
    Action, Cause, Chain, HoldId, Instant, Lease, LeaseId, Op, Outcome, State, StateKind, Term,
    Token, Ttl,
};
use tokio::sync::Notify;

use super::clock::Clock;
use super::contender::MutexQueues;
use super::local_queue::Head;
use super::sync::{Mutex, MutexGuard, lock, report};
use crate::store::{Key, Reply, Request};
use crate::{Durability, ErrorKind};

#[derive(Debug)]
pub(crate) struct ActiveLease {
    pub(crate) key: Key,
    pub(crate) id: LeaseId,
    /// The first of the tokens reserved for it.
    pub(crate) first: Token,
    /// The instant at which the renewer looks at it; 0: it does not. Changed by the renewer only.
    pub(super) scheduled: AtomicU64,
    /// Who must have its renewals before they count. Locked by itself, and inside of `inner`.
    durability: Mutex<Durability>,
    inner: Mutex<Inner>,
    changed: Notify,
}

/// What changes while it is held.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) lease: Lease,
    pub(crate) chain: Chain,
    /// Until when a request of this id that was never answered could still run.
    late_release: Option<Instant>,
    /// The head of the line of its name. It goes on to the next when the lease is released or lost.
    pub(crate) head: Option<Head<MutexQueues>>,
    /// Whether a renewal is on its way to the store or back.
    renewing: bool,
    /// How many nodes of the watchdog look after it.
    #[cfg(feature = "watchdog")]
    watchers: u16,
    /// The state that was last reported.
    seen: StateKind,
}

impl Inner {
    /// The state if it is of another kind than before.
    fn look(&mut self, now: Instant) -> Option<StateKind> {
        let kind = self.lease.state(now).kind();
        let new = kind != self.seen;
        self.seen = kind;
        new.then_some(kind)
    }
}

impl ActiveLease {
    pub(crate) fn new(
        key: Key,
        id: LeaseId,
        late_release: Option<Instant>,
        lease: Lease,
        chain: Chain,
    ) -> Self {
        Self {
            key,
            id,
            first: chain.token(),
            scheduled: AtomicU64::new(0),
            durability: Mutex::new(Durability::None),
            inner: Mutex::new(Inner {
                lease,
                chain,
                late_release,
                head: None,
                renewing: false,
                #[cfg(feature = "watchdog")]
                watchers: 0,
                seen: StateKind::Held,
            }),
            changed: Notify::new(),
        }
    }

    /// Who must have its renewals before they count.
    pub(crate) fn durability(&self) -> Durability {
        *lock(&self.durability)
    }

    /// From now on at least these must.
    pub(crate) fn strengthen(&self, durability: Durability) {
        let mut own = lock(&self.durability);
        *own = own.or_stricter(durability);
    }

    /// Until when a request of this id that was never answered could still run.
    pub(crate) fn late_release(&self) -> Option<Instant> {
        self.lock().late_release
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Changes the lease, tells those who watch it, and reports what must be known.
    fn change<T>(&self, now: Instant, change: impl FnOnce(&mut Inner) -> T) -> T {
        let (answer, news) = self.change_quietly(now, change);
        if let Some(kind) = news {
            self.report(kind);
        }
        answer
    }

    /// Changes the lease and tells those who watch it. Once it is lost, the next in line contends
    /// anew, whether the holder has noticed or not. Answers what is to be reported, too.
    fn change_quietly<T>(
        &self,
        now: Instant,
        change: impl FnOnce(&mut Inner) -> T,
    ) -> (T, Option<StateKind>) {
        let mut inner = self.lock();
        let answer = change(&mut inner);
        let news = inner.look(now);
        let lost = matches!(inner.seen, StateKind::Lost(_));
        let head = if lost { inner.head.take() } else { None };
        drop(inner);
        self.changed.notify_waiters();
        drop(head);
        (answer, news)
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

    pub(crate) fn state(&self, hold: HoldId, now: Instant) -> State {
        self.lock().lease.hold_state(hold, now)
    }

    /// Waits until the state of a hold is another than `last`, in kind or in cause, and answers it.
    pub(crate) async fn state_after(
        &self,
        hold: HoldId,
        last: Option<State>,
        clock: &dyn Clock,
    ) -> State {
        loop {
            // Listen first, look second: no change can fall between.
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
                // The timer is this waiter's own: it is told in time even if nothing else runs.
                Some(next) => tokio::select! {
                    () = changed => {}
                    () = clock.sleep_until(next) => {}
                },
                // For an answer, or for nothing any more.
                None => changed.await,
            }
        }
    }

    /// Tells the lease the time, that wanted to be told at `due`. Answers what to do, when to look again,
    /// and what to report.
    pub(super) fn poll(
        &self,
        due: Instant,
        now: Instant,
    ) -> (Action, Option<Instant>, Option<StateKind>) {
        let ((action, next), news) = self.change_quietly(now, |inner| {
            if now.since(due) >= inner.lease.late() {
                inner.lease.wake(now);
            }
            let action = inner.lease.poll(now);
            (action, inner.lease.next_event(now))
        });
        (action, next, news)
    }

    /// When to look at the lease next, and what to report. `None`: never, it is lost.
    pub(super) fn next_event(&self, now: Instant) -> (Option<Instant>, Option<StateKind>) {
        self.change_quietly(now, |inner| inner.lease.next_event(now))
    }

    pub(crate) fn lose(&self, cause: Cause, now: Instant) {
        self.change(now, |inner| inner.lease.lose(cause));
    }

    /// A node of the watchdog looks after the lease from now on, or does not any more.
    #[cfg(feature = "watchdog")]
    pub(super) fn watched_by(&self, more: bool, now: Instant) {
        self.change(now, |inner| {
            inner.watchers = match more {
                true => inner.watchers.saturating_add(1),
                false => inner.watchers.saturating_sub(1),
            };
            let watched = inner.watchers > 0;
            inner.lease.watch(watched, now);
        });
    }

    /// The store hinted that the lease may be over.
    pub(crate) fn check(&self, now: Instant) {
        self.change(now, |inner| inner.lease.check(now));
    }

    /// The connection to the store was interrupted.
    pub(crate) fn interrupted(&self, now: Instant) {
        self.change(now, |inner| inner.lease.interrupted(now));
    }

    /// The renewal that is to be sent now, and when it is of no use any more. `None`: it was released
    /// or lost in the meantime, and nothing is sent for it.
    pub(super) fn begin_renewal(&self, now: Instant) -> Option<(Request, Instant)> {
        let mut inner = self.lock();
        let lease = &inner.lease;
        if lease.holds().count() == 0 || lease.state(now).is_lost() {
            return None;
        }
        let (ttl, end) = (lease.ttl(now), lease.answer_by(now));
        inner.renewing = true;
        drop(inner);
        Some((self.renewal(ttl), end))
    }

    /// Takes in the reply to a renewal.
    pub(super) fn renewal_answered(&self, reply: &Reply, sent: Instant, ttl: Ttl, now: Instant) {
        self.change(now, |inner| {
            inner.renewing = false;
            match reply {
                Reply::Applied {
                    outcome: Outcome::Renewed,
                    ..
                } => inner.lease.renewed(sent, ttl, now),
                Reply::Applied { outcome, .. } => inner.lease.lose(Cause::of(outcome)),
                Reply::Rejected(error) | Reply::Unknown(error) => {
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

    /// Waits until no renewal is on its way.
    pub(super) async fn no_renewal(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.lock().renewing {
                return;
            }
            changed.await;
        }
    }

    /// The store confirmed an operation of a hold.
    pub(crate) fn confirmed(&self, sent: Instant, ttl: Ttl, now: Instant) {
        self.change(now, |inner| inner.lease.confirmed(sent, ttl, now));
    }

    /// The store confirmed that a hold has entered.
    pub(crate) fn entered(&self, hold: (HoldId, Term), sent: Instant, ttl: Ttl, now: Instant) {
        self.change(now, |inner| {
            inner.lease.confirmed(sent, ttl, now);
            inner.lease.holds_mut().set_term(hold.0, hold.1);
        });
    }

    pub(crate) fn renewal(&self, ttl: Ttl) -> Request {
        self.request(Op::Renew {
            lease: self.id,
            ttl,
        })
    }

    pub(crate) fn release(&self, count: u32, ttl: Ttl) -> Request {
        self.request(Op::Release {
            lease: self.id,
            count,
            ttl,
        })
    }

    pub(crate) fn request(&self, op: Op) -> Request {
        Request {
            key: self.key.clone(),
            op,
            durability: self.durability(),
        }
    }

    /// The term of a hold, for those that end by themselves.
    pub(crate) fn fixed_end(&self, hold: HoldId) -> Option<Instant> {
        match self.lock().lease.holds().term(hold) {
            Some(Term::Fixed(end)) => Some(end),
            _ => None,
        }
    }
}
