//! One lease that this process holds.

use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::{
    Action, Cause, HoldId, Instant, Lease, LeaseId, Op, Outcome, State, Term, Token, Ttl,
};
use tokio::sync::Notify;

use super::clock::Clock;
use crate::store::{Key, Reply, Request};

#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) key: Key,
    pub(crate) id: LeaseId,
    pub(crate) token: Token,
    /// Until when an earlier request of this id that was never answered could still run.
    pub(crate) echo: Option<Instant>,
    lease: Mutex<Lease>,
    changed: Notify,
}

impl Held {
    pub(crate) fn new(
        key: Key,
        id: LeaseId,
        token: Token,
        echo: Option<Instant>,
        lease: Lease,
    ) -> Self {
        Self {
            key,
            id,
            token,
            echo,
            lease: Mutex::new(lease),
            changed: Notify::new(),
        }
    }

    pub(crate) fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self, hold: HoldId, now: Instant) -> State {
        self.lease().hold_state(hold, now)
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
                let lease = self.lease();
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
        let polled = {
            let mut lease = self.lease();
            (lease.poll(now), lease.next_event(now))
        };
        self.changed.notify_waiters();
        polled
    }

    pub(crate) fn lose(&self, cause: Cause) {
        self.lease().lose(cause);
        self.changed.notify_waiters();
    }

    /// Takes in the reply to a renewal, and answers when to look at the lease again.
    pub(crate) fn renewal_answered(
        &self,
        reply: &Reply,
        sent: Instant,
        ttl: Ttl,
        now: Instant,
    ) -> Option<Instant> {
        let next = {
            let mut lease = self.lease();
            match reply {
                Reply::Applied {
                    outcome: Outcome::Renewed,
                    ..
                } => lease.renewed(sent, ttl, now),
                Reply::Applied { .. } => lease.lose(Cause::NotHeld),
                Reply::Rejected(_) | Reply::Unknown(_) => {
                    lease.renewal_failed(now, Cause::Unreachable);
                }
            }
            lease.next_event(now)
        };
        self.changed.notify_waiters();
        next
    }

    /// The store confirmed an operation of a hold.
    pub(crate) fn confirmed(&self, sent: Instant, ttl: Ttl, now: Instant) {
        self.lease().confirmed(sent, ttl, now);
        self.changed.notify_waiters();
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
        match self.lease().holds().term(hold) {
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
