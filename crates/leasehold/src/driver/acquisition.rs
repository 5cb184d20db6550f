//! One lease id on its way to a grant.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Chain, HoldId, Instant, Lease, LeaseId, Op, Outcome, Policy, StoreTime, Term, Token,
    TokenCount, Ttl, queue, time,
};
use tokio::sync::oneshot;

use super::Driver;
use super::active_lease::ActiveLease;
use super::release::{LateRelease, ReleaseOrder};
use super::wakeup::{PushedGrant, Wakeup};
use super::{batcher, shard_of};
use crate::store::{Key, Leftover, Reply, Request, Shard};
use crate::{Durability, Error, ErrorKind};

/// How a lease is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// How it is renewed, if it is.
    pub(crate) policy: Policy,
    /// The ttl of a fixed lease. `None`: renewed.
    pub(crate) fixed: Option<Ttl>,
    /// Who must have its grant and its renewals before they count.
    pub(crate) durability: Durability,
}

impl Terms {
    pub(crate) fn ttl(&self) -> Ttl {
        self.fixed.unwrap_or(self.policy.ttl)
    }

    /// The term of a hold whose request is sent at `sent`.
    pub(crate) fn term(&self, sent: Instant) -> Term {
        match self.fixed {
            Some(ttl) => Term::Fixed(time::deadline(sent, ttl)),
            None => Term::Renewed,
        }
    }
}

/// What the store answered.
pub(crate) enum AcquireReply {
    Granted { sent: Instant, first: Token },
    Refused { left: Duration, place: Option<u32> },
    Failed { sent: Instant, error: Error },
}

/// A question that was sent, and what was in doubt before it.
#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    sent: Instant,
    before: Option<(Instant, Instant)>,
    shard: Shard,
}

/// A question that put the lease into the queue.
#[derive(Clone, Copy, Debug)]
struct Queued {
    sent: Instant,
    /// The store's time of the answer.
    answered: StoreTime,
    /// The shard whose time that is, if it is known.
    shard: Option<Shard>,
}

/// One lease id on its way to a grant.
///
/// The same question may be sent again as long as the lease it asked for could still run. After that
/// the id is dead: a request that was delayed may come alive with a full ttl, so the id is released
/// once more after that time.
///
/// Dropped, it leaves the queue of the store and gives back what it may have been granted.
#[derive(Debug)]
pub(crate) struct Acquisition {
    driver: Arc<Driver>,
    key: Key,
    pub(crate) terms: Terms,
    id: LeaseId,
    tokens: TokenCount,
    pub(crate) wakeup: Arc<Wakeup>,
    /// A question that is under way already.
    posted: Option<(PendingRequest, oneshot::Receiver<Reply>)>,
    /// The last question that was answered with a place in the queue.
    queued: Option<Queued>,
    /// The first request whose effect is not known, and the last one.
    doubtful: Option<(Instant, Instant)>,
    /// Whether the store may know the id.
    open: bool,
}

impl Acquisition {
    pub(crate) fn new(driver: &Arc<Driver>, key: &Key, terms: Terms) -> Self {
        let id = driver.next_lease();
        Self {
            driver: Arc::clone(driver),
            key: key.clone(),
            terms,
            id,
            tokens: TokenCount::MIN,
            wakeup: Arc::new(Wakeup::new(id)),
            posted: None,
            queued: None,
            doubtful: None,
            open: false,
        }
    }

    /// Others of this process wait behind it: its lease shall be handed off. To be said before the
    /// first question.
    pub(crate) fn reserve_tokens(&mut self) {
        self.tokens = self.driver.handoff.tokens();
    }

    /// Hands in the question right behind another operation: both travel together.
    pub(crate) fn post_after(&mut self, first: Request) -> oneshot::Receiver<Reply> {
        let question = self.begin();
        let request = self.request(true);
        let [first, reply] = self.driver.batcher.post_both([first, request]);
        self.posted = Some((question, reply));
        first
    }

    /// Asks the store, or waits for the answer to the question that is under way.
    pub(crate) async fn ask(&mut self, wait: bool) -> AcquireReply {
        if let Some((question, reply)) = &mut self.posted {
            let (question, reply) = (*question, batcher::answer(reply).await);
            self.posted = None;
            return self.answered(question, reply);
        }
        let question = self.begin();
        let reply = self.driver.batcher.submit(self.request(wait)).await;
        self.answered(question, reply)
    }

    fn begin(&mut self) -> PendingRequest {
        let sent = self.driver.clock.now();
        let before = self.doubtful;
        let first = before.map_or(sent, |(first, _)| first);
        self.doubtful = Some((first, sent));
        self.open = true;
        self.wakeup.asking();
        let shard = self.shard();
        PendingRequest {
            sent,
            before,
            shard,
        }
    }

    fn shard(&self) -> Shard {
        shard_of(&self.driver.store, &self.key)
    }

    fn request(&self, wait: bool) -> Request {
        Request {
            key: self.key.clone(),
            op: Op::Acquire {
                lease: self.id,
                count: NonZeroU32::MIN,
                ttl: self.terms.ttl(),
                tokens: self.tokens,
                wait,
            },
            durability: self.terms.durability,
        }
    }

    fn answered(&mut self, question: PendingRequest, reply: Reply) -> AcquireReply {
        let PendingRequest {
            sent,
            before,
            shard,
        } = question;
        let failed = |error| AcquireReply::Failed { sent, error };
        let (outcome, now) = match reply {
            Reply::Applied { outcome, now } => (outcome, now),
            Reply::Unknown(error) => {
                self.start_over();
                return failed(self.error(error));
            }
            Reply::Rejected(error) => {
                self.doubtful = before;
                self.open = before.is_some() || self.queued.is_some();
                if !self.driver.store.capabilities().idempotent_acquire {
                    self.id = self.driver.next_lease();
                }
                return failed(self.error(error));
            }
        };
        // This question is answered; earlier ones may still be on their way.
        self.doubtful = before;
        match outcome {
            Outcome::Granted { first } => AcquireReply::Granted { sent, first },
            Outcome::Refused { left, place } => {
                // Who has asked before may have been granted the lock before.
                if self.queued.is_some() || before.is_some() {
                    self.wakeup.refused();
                }
                // If the record moved meanwhile, nobody knows whose time that is.
                let shard = Some(shard).filter(|shard| *shard == self.shard());
                let answered = now;
                self.queued = place.map(|_| Queued {
                    sent,
                    answered,
                    shard,
                });
                self.open = before.is_some() || place.is_some();
                self.start_over();
                AcquireReply::Refused { left, place }
            }
            Outcome::Exhausted => failed(self.error(Error::new(
                ErrorKind::Store,
                "its token counter is used up: something else has written it; \
                 delete the counter to start anew from the clock",
            ))),
            other => failed(self.error(Error::new(
                ErrorKind::Store,
                format!("the store answered an acquire with {other:?}"),
            ))),
        }
    }

    /// Gives up the id and takes another, if the store does not want to be asked for the same again.
    fn start_over(&mut self) {
        if self.driver.store.capabilities().idempotent_acquire {
            return;
        }
        self.open = false;
        let late_release = self.late_release();
        self.doubtful = None;
        let lost = std::mem::replace(&mut self.id, self.driver.next_lease());
        let late_release = match self.driver.store.leftover(lost) {
            Leftover::None => return,
            Leftover::Granted => None,
            Leftover::Unknown => late_release,
        };
        let ttl = self.terms.ttl();
        let durability = self.terms.durability;
        let key = self.key.clone();
        let past = ReleaseOrder::Nothing;
        self.driver
            .abandon(key, lost, ttl, durability, late_release, past);
    }

    /// The lease of a grant that was the answer to a question. `None`: it came too late to be of use.
    pub(crate) fn accept(
        &mut self,
        sent: Instant,
        first: Token,
    ) -> Option<(Arc<ActiveLease>, HoldId)> {
        let terms = self.terms;
        let (lease, hold) = Lease::granted(terms.policy, terms.ttl(), terms.term(sent), sent);
        self.hold(lease, hold, first)
    }

    /// The lease of a grant that was told. `None`: it must be asked for, or given up.
    pub(crate) fn accept_told(&mut self, told: PushedGrant) -> Option<(Arc<ActiveLease>, HoldId)> {
        let Queued {
            sent: asked,
            answered,
            shard,
        } = self.queued?;
        // Another shard granted it, by another clock.
        if shard != Some(self.shard()) {
            return None;
        }
        // The answer to a question covers it, and nobody knows of a message what the replicas have.
        if self.terms.durability.is_replicated() {
            return None;
        }
        let PushedGrant { grant, heard } = told;
        // Refused since: this process was stopped, and the grant is long over.
        if grant.now < answered {
            return None;
        }
        // A fixed lease has a ttl to begin with, not one to live by until the renewal.
        if self.terms.fixed.is_some_and(|ttl| ttl > grant.ttl) {
            return None;
        }
        let ttl = queue::acceptance(self.terms.ttl()).min(grant.ttl);
        let waited = answered.until(grant.now);
        let times = time::granted(asked, waited, heard, ttl);
        let term = match self.terms.fixed {
            Some(_) => Term::Fixed(times.1),
            None => Term::Renewed,
        };
        let (lease, hold) = Lease::accepted(self.terms.policy, ttl, term, times);
        self.hold(lease, hold, grant.first)
    }

    fn hold(
        &mut self,
        lease: Lease,
        hold: HoldId,
        first: Token,
    ) -> Option<(Arc<ActiveLease>, HoldId)> {
        let now = self.driver.clock.now();
        if lease.state(now).is_lost() {
            return None;
        }
        self.open = false;
        let late_release = self.late_release().map(|late_release| late_release.at);
        let chain = Chain::new(self.driver.handoff, first, self.tokens, now);
        let held = ActiveLease::new(self.key.clone(), self.id, late_release, lease, chain);
        held.strengthen(self.terms.durability);
        Some((Arc::new(held), hold))
    }

    /// Whether it stands in the queue with nothing under way, so that another task can go on with it.
    pub(crate) fn is_waiting(&self) -> bool {
        self.queued.is_some() && self.doubtful.is_none()
    }

    /// Whether the lease that it first asked for is over in any case.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.doubtful
            .is_some_and(|(first, _)| now >= time::deadline(first, self.terms.ttl()))
    }

    fn late_release(&self) -> Option<LateRelease> {
        self.doubtful.map(|(first, last)| LateRelease {
            at: last.after(self.terms.ttl().as_duration()),
            single: first == last,
        })
    }

    fn error(&self, error: Error) -> Error {
        self.driver.name_error(error, &self.key)
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        if self.open {
            let ttl = self.terms.ttl();
            let key = self.key.clone();
            let durability = self.terms.durability;
            // Its question may still be in the queue.
            let behind = ReleaseOrder::Everything;
            self.driver
                .abandon(key, self.id, ttl, durability, self.late_release(), behind);
        }
    }
}
