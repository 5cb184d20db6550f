//! Leases that are renewed together.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Instant, Op, Ttl};

use super::super::active_lease::ActiveLease;
use super::super::context::Context;
use super::super::sync::report;
use super::Shared;
use super::shard_limiter::ShardLimiter;
use crate::store::{Reply, Request};

/// Leases that are due. When it is dropped at any point, also by a panic of the store, the renewals without
/// a reply have failed, and are retried.
pub(super) struct Batch {
    shared: Arc<Shared>,
    leases: Vec<Arc<ActiveLease>>,
    due: Instant,
}

impl Batch {
    /// An empty batch.
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            leases: Vec::new(),
            due: Instant::from_nanos(u64::MAX),
        }
    }

    /// Adds a lease that was due at `due`.
    pub(super) fn push(&mut self, lease: Arc<ActiveLease>, due: Instant) {
        self.leases.push(lease);
        self.due = self.due.min(due);
    }

    /// Splits off the first leases, at most so many.
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

    /// Sends the renewals when the limiter permits, and processes the replies.
    pub(super) async fn renew(mut self, limiter: Arc<ShardLimiter>) {
        let permit = limiter.acquire().await;
        let (requests, end) = self.begin();
        if requests.is_empty() {
            return;
        }
        let ttls: Vec<_> = requests.iter().map(ttl).collect();
        let Context { store, clock, .. } = &Arc::clone(&self.shared).context;
        let sent = clock.now();
        // A store that never answers must not keep the permit, nor a release that waits for this renewal.
        let replies = tokio::select! {
            biased;
            replies = store.apply(requests) => replies,
            () = clock.sleep_until(end) => Vec::new(),
        };
        let now = clock.now();
        limiter.answered(ttls.len(), now.since(sent));
        drop(permit);
        self.handle_replies(&ttls, &replies, sent, now);
        report(|| count(ttls.len(), &replies, sent.since(self.due)));
    }

    /// The requests, without those of leases that were released or lost while they waited, and until when a
    /// reply is of use.
    fn begin(&mut self) -> (Vec<Request>, Instant) {
        let now = self.shared.context.clock.now();
        let mut requests = Vec::with_capacity(self.leases.len());
        let mut last = now;
        self.leases.retain(|lease| {
            let Some((request, end)) = lease.begin_renewal(now) else {
                return false;
            };
            requests.push(request);
            last = last.max(end);
            true
        });
        (requests, last)
    }

    fn handle_replies(&mut self, ttls: &[Ttl], replies: &[Reply], sent: Instant, now: Instant) {
        let answered = self.leases.len().min(replies.len());
        let replies = ttls.iter().zip(replies);
        for (lease, (ttl, reply)) in self.leases.drain(..answered).zip(replies) {
            lease.handle_renewal(reply, sent, *ttl, now);
            self.shared.reschedule(&lease, now);
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        // A second panic here would end the process.
        let clock = AssertUnwindSafe(&self.shared.context.clock);
        let now = catch_unwind(|| clock.now()).unwrap_or(self.due);
        let given_up = catch_unwind(AssertUnwindSafe(|| {
            for lease in self.leases.drain(..) {
                lease.renewal_given_up(now);
                self.shared.reschedule(&lease, now);
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
