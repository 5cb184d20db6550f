//! Leases that are renewed together.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Instant, Op, Ttl};

use super::super::active_lease::ActiveLease;
use super::super::context::{Context, Route};
use super::super::primitives::{lock, report};
use super::Shared;
use crate::store::{Reply, Request};

/// A lease whose renewal is due.
pub(super) struct DueLease {
    pub(super) lease: Arc<ActiveLease>,
    pub(super) due: Instant,
}

/// Leases that are due. When it is dropped at any point, also by a panic of the store, the renewals without
/// a reply have failed, and are retried.
pub(super) struct Batch {
    shared: Arc<Shared>,
    /// The route on which it is in flight.
    route: Option<Route>,
    leases: Vec<DueLease>,
}

impl Batch {
    /// A batch that is in flight on a route, or is still collected.
    pub(super) fn new(shared: &Arc<Shared>, route: Option<Route>, leases: Vec<DueLease>) -> Self {
        Self {
            shared: Arc::clone(shared),
            route,
            leases,
        }
    }

    pub(super) fn push(&mut self, lease: Arc<ActiveLease>, due: Instant) {
        self.leases.push(DueLease { lease, due });
    }

    /// Adds the leases to the queues of their routes.
    pub(super) fn queue(mut self) {
        let context = &self.shared.context;
        let route = |due: &DueLease| context.renewal_route(&due.lease.key, due.lease.durability());
        let routes: Vec<_> = self.leases.iter().map(route).collect();
        let mut limiter = lock(&self.shared.limiter);
        for (route, due) in routes.into_iter().zip(self.leases.drain(..)) {
            limiter.push(route, due);
        }
    }

    /// Sends the renewals, and processes the replies.
    pub(super) async fn renew(mut self) {
        let first_due = self.leases.iter().map(|due| due.due).min();
        let (requests, end) = self.begin();
        if requests.is_empty() {
            return;
        }
        let ttls: Vec<_> = requests.iter().map(ttl).collect();
        let Context { store, clock, .. } = &Arc::clone(&self.shared).context;
        let sent = clock.now();
        // A store that never replies must not keep the limiter, nor a release that waits for this renewal.
        let replies = tokio::select! {
            biased;
            replies = store.apply(requests) => replies,
            () = clock.sleep_until(end) => Vec::new(),
        };
        let now = clock.now();
        self.finish(Some((ttls.len(), now.since(sent))));
        self.shared.send_batches();
        self.handle_replies(&ttls, &replies, sent, now);
        let lag = sent.since(first_due.unwrap_or(sent));
        report(|| count(ttls.len(), &replies, lag));
    }

    /// The requests, without those of leases that were released or lost while they waited, and until when a
    /// reply is of use.
    fn begin(&mut self) -> (Vec<Request>, Instant) {
        let now = self.shared.context.clock.now();
        let mut requests = Vec::with_capacity(self.leases.len());
        let mut last = now;
        self.leases.retain(|due| {
            let Some((request, end)) = due.lease.begin_renewal(now) else {
                return false;
            };
            requests.push(request);
            last = last.max(end);
            true
        });
        (requests, last)
    }

    /// Allows the next batch on the route.
    fn finish(&mut self, round_trip: Option<(usize, Duration)>) {
        if let Some(route) = self.route.take() {
            lock(&self.shared.limiter).finished(route, round_trip);
        }
    }

    fn handle_replies(&mut self, ttls: &[Ttl], replies: &[Reply], sent: Instant, now: Instant) {
        let replied = self.leases.len().min(replies.len());
        let replies = ttls.iter().zip(replies);
        for (due, (ttl, reply)) in self.leases.drain(..replied).zip(replies) {
            due.lease.handle_renewal(reply, sent, *ttl, now);
            self.shared.reschedule(&due.lease, now);
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.route.is_some() {
            self.finish(None);
            // The task of the renewer sends the next batch: this one may be dropped by a runtime that ends.
            self.shared.earlier.notify_one();
        }
        let Some(first) = self.leases.first() else {
            return;
        };
        // A second panic here would end the process.
        let clock = AssertUnwindSafe(&self.shared.context.clock);
        let now = catch_unwind(|| clock.now()).unwrap_or(first.due);
        let given_up = catch_unwind(AssertUnwindSafe(|| {
            for due in self.leases.drain(..) {
                due.lease.renewal_given_up(now);
                self.shared.reschedule(&due.lease, now);
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
    let replied = replies
        .iter()
        .filter(|reply| matches!(reply, Reply::Applied { .. }))
        .count();
    let failed = sent.saturating_sub(replied);
    metrics::counter!("leasehold_round_trips_total").increment(1);
    metrics::counter!("leasehold_renewal_batches_total").increment(1);
    metrics::counter!("leasehold_renewals_total").increment(replied as u64);
    metrics::counter!("leasehold_renewal_failures_total").increment(failed as u64);
    metrics::histogram!("leasehold_renewal_lag_seconds").record(lag);
}
