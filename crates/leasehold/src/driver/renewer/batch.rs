//! Leases that are renewed together.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Instant, Op, Ttl};

use super::super::active_lease::ActiveLease;
use super::super::sync::report;
use super::Shared;
use super::shard_limiter::ShardLimiter;
use crate::store::{Reply, Request};

/// Leases that are due. Dropped at any point, also by a panic of the store's, the renewals that have
/// no answer have failed, and are tried again.
pub(super) struct Batch {
    shared: Arc<Shared>,
    leases: Vec<Arc<ActiveLease>>,
    due: Instant,
}

impl Batch {
    /// An empty one.
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            leases: Vec::new(),
            due: Instant::from_nanos(u64::MAX),
        }
    }

    /// Takes in a lease that was due at `due`.
    pub(super) fn push(&mut self, held: Arc<ActiveLease>, due: Instant) {
        self.leases.push(held);
        self.due = self.due.min(due);
    }

    /// Takes out the first leases, at most so many.
    pub(super) fn split_off_front(&mut self, max: usize) -> Self {
        let rest = self.leases.split_off(max.min(self.leases.len()));
        Self {
            shared: Arc::clone(&self.shared),
            leases: std::mem::replace(&mut self.leases, rest),
            due: self.due,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.leases.len()
    }

    /// Sends the renewals when it is their turn, and takes in what is answered.
    pub(super) async fn renew(mut self, limiter: Arc<ShardLimiter>) {
        let turn = limiter.turn().await;
        let (requests, end) = self.begin();
        if requests.is_empty() {
            return;
        }
        let ttls: Vec<_> = requests.iter().map(ttl).collect();
        let Shared { store, clock, .. } = &*Arc::clone(&self.shared);
        let sent = clock.now();
        // A store that never answers must not keep its limiter, nor a release that waits for this.
        let replies = tokio::select! {
            biased;
            replies = store.apply(requests) => replies,
            () = clock.sleep_until(end) => Vec::new(),
        };
        let now = clock.now();
        limiter.answered(ttls.len(), now.since(sent));
        drop(turn);
        self.answered(&ttls, &replies, sent, now);
        report(|| count(ttls.len(), &replies, sent.since(self.due)));
    }

    /// The requests, without those of leases that were released or lost while they waited, and when
    /// none of them is of use any more.
    fn begin(&mut self) -> (Vec<Request>, Instant) {
        let now = self.shared.clock.now();
        let mut requests = Vec::with_capacity(self.leases.len());
        let mut last = now;
        self.leases.retain(|held| {
            let Some((request, end)) = held.begin_renewal(now) else {
                return false;
            };
            requests.push(request);
            last = last.max(end);
            true
        });
        (requests, last)
    }

    fn answered(&mut self, ttls: &[Ttl], replies: &[Reply], sent: Instant, now: Instant) {
        let answered = self.leases.len().min(replies.len());
        let answers = ttls.iter().zip(replies);
        for (held, (ttl, reply)) in self.leases.drain(..answered).zip(answers) {
            held.renewal_answered(reply, sent, *ttl, now);
            self.shared.revisit(&held, now);
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        // A second panic here would end the process.
        let clock = AssertUnwindSafe(&self.shared.clock);
        let now = catch_unwind(|| clock.now()).unwrap_or(self.due);
        let given_up = catch_unwind(AssertUnwindSafe(|| {
            for held in self.leases.drain(..) {
                held.renewal_given_up(now);
                self.shared.revisit(&held, now);
            }
        }));
        drop(given_up);
    }
}

fn ttl(request: &Request) -> Ttl {
    match request.op {
        Op::Renew { ttl, .. } => ttl,
        _ => Ttl::USER_MIN,
    }
}

fn count(sent: usize, replies: &[Reply], lag: Duration) {
    let answered = replies
        .iter()
        .filter(|reply| matches!(reply, Reply::Applied { .. }))
        .count();
    let failed = sent.saturating_sub(answered);
    metrics::counter!("leasehold_round_trips_total").increment(1);
    metrics::counter!("leasehold_renewal_batches_total").increment(1);
    metrics::counter!("leasehold_renewals_total").increment(answered as u64);
    metrics::counter!("leasehold_renewal_failures_total").increment(failed as u64);
    metrics::histogram!("leasehold_renewal_lag_seconds").record(lag);
}
