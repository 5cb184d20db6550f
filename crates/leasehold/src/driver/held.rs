//! One lease that this process holds.

use leasehold_core::{
    Action, Cause, Chain, HoldId, Instant, Lease, LeaseId, Op, Outcome, State, Term, Token,
    TokenCount, Ttl,
};
use tokio::sync::Notify;

use super::clock::Clock;
use super::contender::Mutexes;
use super::lines::Front;
use super::primitives::{Mutex, MutexGuard, lock};
use crate::store::{Key, Reply, Request};

#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) key: Key,
    pub(crate) id: LeaseId,
    /// The first of the tokens reserved for it, and how many they are.
    pub(crate) first: Token,
    pub(crate) tokens: TokenCount,
    /// Until when an earlier request of this id that was never answered could still run.
    pub(crate) echo: Option<Instant>,
    inner: Mutex<Inner>,
    changed: Notify,
}

/// What changes while it is held.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) lease: Lease,
    pub(crate) chain: Chain,
    /// The front of the line of its name. It goes on to the next when the lease is released or lost.
    pub(crate) front: Option<Front<Mutexes>>,
}

impl Held {
    pub(crate) fn new(
        key: Key,
        id: LeaseId,
        tokens: TokenCount,
        echo: Option<Instant>,
        lease: Lease,
        chain: Chain,
    ) -> Self {
        Self {
            key,
            id,
            first: chain.token(),
            tokens,
            echo,
            inner: Mutex::new(Inner {
                lease,
                chain,
                front: None,
            }),
            changed: Notify::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Changes the lease and tells those who watch it. Once it is lost, the next in line contends
    /// anew, whether the holder has noticed or not.
    fn change<T>(&self, now: Instant, change: impl FnOnce(&mut Lease) -> T) -> T {
        let mut inner = self.lock();
        let answer = change(&mut inner.lease);
        let lost = inner.lease.state(now).is_lost();
        let front = if lost { inner.front.take() } else { None };
        drop(inner);
        self.changed.notify_waiters();
        drop(front);
        answer
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
            if !last.is_some_and(|last| same_kind(last, state)) {
                return state;
            }
            match next {
                // The timer is this waiter's own: it is told in time even if nothing else runs.
                Some(next) => tokio::select! {
                    () = changed => {}
                    () = clock.sleep_until(next) => {}
                },
                None => std::future::pending().await,
            }
        }
    }

    pub(crate) fn poll(&self, now: Instant) -> (Action, Option<Instant>) {
        self.change(now, |lease| (lease.poll(now), lease.next_event(now)))
    }

    /// When to look at the lease next. `None`: never, it is lost.
    pub(crate) fn next_event(&self, now: Instant) -> Option<Instant> {
        self.change(now, |lease| lease.next_event(now))
    }

    pub(crate) fn lose(&self, cause: Cause, now: Instant) {
        self.change(now, |lease| lease.lose(cause));
    }

    /// The store hinted that the lease may be over. Answers when to look at it.
    pub(crate) fn check(&self, now: Instant) -> Option<Instant> {
        self.change(now, |lease| {
            lease.check(now);
            lease.next_event(now)
        })
    }

    /// The connection to the store was interrupted. Answers when to look at the lease.
    pub(crate) fn interrupted(&self, now: Instant) -> Option<Instant> {
        self.change(now, |lease| {
            lease.interrupted(now);
            lease.next_event(now)
        })
    }

    /// Takes in the reply to a renewal, and answers when to look at the lease again.
    pub(crate) fn renewal_answered(
        &self,
        reply: &Reply,
        sent: Instant,
        ttl: Ttl,
        now: Instant,
    ) -> Option<Instant> {
        self.change(now, |lease| {
            match reply {
                Reply::Applied {
                    outcome: Outcome::Renewed,
                    ..
                } => lease.renewed(sent, ttl, now),
                Reply::Applied { outcome, .. } => lease.lose(Cause::of(outcome)),
                Reply::Rejected(_) | Reply::Unknown(_) => {
                    lease.renewal_failed(now, Cause::Unreachable);
                }
            }
            lease.next_event(now)
        })
    }

    /// The store confirmed an operation of a hold.
    pub(crate) fn confirmed(&self, sent: Instant, ttl: Ttl, now: Instant) {
        self.change(now, |lease| lease.confirmed(sent, ttl, now));
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

fn same_kind(a: State, b: State) -> bool {
    match (a, b) {
        (State::Held { .. }, State::Held { .. }) => true,
        (State::Jeopardy { cause: a, .. }, State::Jeopardy { cause: b, .. }) => a == b,
        (State::Lost(a), State::Lost(b)) => a == b,
        _ => false,
    }
}
