//! Releases that nobody waits for: of dropped guards, cancelled and abandoned acquisitions, and of a
//! client that is shut down.
//!
//! A release that the store has not confirmed is repeated until the lease is over: all those of a shard
//! together, by one task.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_core::{Cause, Instant, LeaseId, Op, Outcome, Ttl, contention};
use tokio::sync::{Notify, oneshot};

use super::active_lease::ActiveLease;
use super::batcher::{self, BATCH_MAX};
use super::contender::HeadState;
use super::sync::{Mutex, lock, report};
use super::{Driver, Route};
use crate::store::{Key, Reply, Request};
use crate::{Durability, Error};

/// The shortest pause before a release is repeated. It grows as long as none of a shard is confirmed.
const REPEAT_MIN: Duration = Duration::from_millis(200);

/// A request that was never answered may still run, late and with a full ttl. So its lease id is
/// released once more after that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateRelease {
    /// When to release again.
    pub(crate) at: Instant,
    /// Whether there was one such request only: if a release found its grant, it has run.
    pub(crate) single: bool,
}

/// What a release is sent behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseOrder {
    /// All that was handed in before it: the acquisition may be among that.
    Everything,
    /// Nothing: all that was asked of the lease is answered.
    Nothing,
}

/// The releases that the store has not confirmed, in the order in which they were begun.
#[derive(Debug, Default)]
pub(crate) struct PendingReleases {
    left: Mutex<Outstanding>,
    none: Notify,
    /// An late_release is due earlier than the others.
    earlier: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Outstanding {
    tickets: u64,
    releases: BTreeMap<u64, Unconfirmed>,
    /// The shards whose releases are being repeated.
    repeating: HashSet<Route>,
    /// The releases to be repeated once more, by the instant at which they are due.
    echoes: BTreeMap<(Instant, u64), Request>,
}

/// A release that is not confirmed.
#[derive(Clone, Debug)]
struct Unconfirmed {
    request: Request,
    /// When the lease has ended by itself.
    over: Instant,
    late_release: Option<LateRelease>,
    /// Why it failed last. `None`: it is under way for the first time.
    error: Option<Error>,
}

impl PendingReleases {
    /// What is not confirmed, and why, as far as the store has answered.
    pub(crate) fn left(&self) -> Vec<(Request, Option<Error>)> {
        let left = lock(&self.left);
        let releases = left.releases.values().cloned();
        releases
            .map(|release| (release.request, release.error))
            .collect()
    }

    /// Waits until all is confirmed, or given up.
    async fn none_left(&self) {
        loop {
            let none = self.none.notified();
            if lock(&self.left).releases.is_empty() {
                return;
            }
            none.await;
        }
    }
}

impl Driver {
    /// Gives up a lease id whose acquisition was not finished. In a fork, the process goes on with it.
    pub(crate) fn abandon(
        self: &Arc<Self>,
        key: Key,
        lease: LeaseId,
        ttl: Ttl,
        durability: Durability,
        late_release: Option<LateRelease>,
        behind: ReleaseOrder,
    ) {
        if !self.process.is_current() {
            return;
        }
        let over = self.clock.now().after(ttl.as_duration());
        let request = Request {
            key,
            op: Op::Release {
                lease,
                count: 0,
                ttl,
            },
            durability,
        };
        let reply = match behind {
            ReleaseOrder::Everything => self.batcher.post(request.clone()),
            ReleaseOrder::Nothing => self.batcher.give_back(request.clone()),
        };
        self.finish_release(request, reply, over, late_release);
    }

    /// Sees a posted release through: repeats it until it is confirmed, or until the lease is
    /// `over` in the store by itself.
    pub(crate) fn finish_release(
        self: &Arc<Self>,
        request: Request,
        reply: oneshot::Receiver<Reply>,
        over: Instant,
        late_release: Option<LateRelease>,
    ) {
        let ticket = Ticket::new(self, request, over, late_release);
        self.runtime
            .spawn(async move { ticket.answered(&batcher::answer(reply).await) });
    }

    /// Releases once more. If nothing is left of the lease, nothing that is under way concerns it.
    fn release_again(&self, request: Request) -> oneshot::Receiver<Reply> {
        match request.op {
            Op::Release { count: 0, .. } => self.batcher.give_back(request),
            _ => self.batcher.post(request),
        }
    }

    /// Repeats the failed releases of a shard until none is left.
    async fn repeat_releases(self: Arc<Self>, route: Route) {
        let mut failing_since = self.clock.now();
        // Asked before each pause as well: a task without work must not keep the client alive.
        while self.has_failed_releases(route) {
            let failing = self.clock.now().since(failing_since);
            let pause = contention::retry_after(failing).max(REPEAT_MIN);
            let end = self.clock.now().after(self.part_of(pause));
            self.clock.sleep_until(end).await;
            let failed = self.failed_releases(route);
            let posted = failed.into_iter().map(|(ticket, request)| {
                let reply = self.release_again(request);
                (ticket, reply)
            });
            let posted: Vec<_> = posted.collect();
            for (ticket, reply) in posted {
                let reply = batcher::answer(reply).await;
                if matches!(reply, Reply::Applied { .. }) {
                    failing_since = self.clock.now();
                }
                ticket.answered(&reply);
            }
        }
    }

    /// Whether a shard has failed releases. If it has none, the task that repeats them ends.
    fn has_failed_releases(&self, route: Route) -> bool {
        let mut left = lock(&self.pending.left);
        let mut releases = left.releases.values();
        let found = releases.any(|release| self.has_failed(release, route));
        if !found {
            left.repeating.remove(&route);
        }
        found
    }

    fn has_failed(&self, release: &Unconfirmed, route: Route) -> bool {
        release.error.is_some() && self.batcher.route(&release.request) == route
    }

    fn failed_releases(self: &Arc<Self>, route: Route) -> Vec<(Ticket, Request)> {
        let left = lock(&self.pending.left);
        let releases = left.releases.iter();
        let failed = releases.filter(|(_, release)| self.has_failed(release, route));
        let failed = failed.map(|(number, release)| {
            let driver = Arc::clone(self);
            let number = *number;
            (Ticket { driver, number }, release.request.clone())
        });
        failed.collect()
    }

    /// Releases a lease id once more when a request that was never answered can have run.
    fn echo_later(self: &Arc<Self>, number: u64, request: Request, at: Instant) {
        let pending = &self.pending;
        let mut left = lock(&pending.left);
        let is_first = left.echoes.is_empty();
        left.echoes.insert((at, number), request);
        let is_next = left.echoes.keys().next() == Some(&(at, number));
        drop(left);
        if is_first {
            let (driver, clock) = (Arc::downgrade(self), Arc::clone(&self.clock));
            let earlier = Arc::clone(&pending.earlier);
            self.runtime.spawn(async move {
                // It keeps no client alive: what comes late is ended by its ttl.
                while let Some(next) = driver.upgrade().and_then(|driver| driver.echo_due()) {
                    tokio::select! {
                        () = clock.sleep_until(next) => {}
                        () = earlier.notified() => {}
                    }
                }
            });
        } else if is_next {
            pending.earlier.notify_one();
        }
    }

    /// Sends the echoes that are due. Answers when the next one is.
    fn echo_due(&self) -> Option<Instant> {
        let now = self.clock.now();
        let mut left = lock(&self.pending.left);
        while let Some(next) = left.echoes.first_entry() {
            let (at, _) = *next.key();
            if at > now {
                return Some(at);
            }
            drop(self.release_again(next.remove()));
        }
        None
    }

    /// Releases every lease that is looked after, ends all waiting, and waits until the store knows.
    /// Answers how many leases there were.
    pub(crate) async fn shut_down(self: &Arc<Self>) -> usize {
        if !self.process.is_current() {
            return 0;
        }
        let mut leases = self.close();
        let now = self.clock.now();
        leases.retain(|held| !held.lock().lease.state(now).is_lost());
        for part in leases.chunks(BATCH_MAX) {
            self.release_batch(part, now);
        }
        self.pending.none_left().await;
        for held in &leases {
            held.no_renewal().await;
        }
        leases.len()
    }

    /// Releases leases that were shut down, in one task: there may be a million.
    fn release_batch(self: &Arc<Self>, leases: &[Arc<ActiveLease>], now: Instant) {
        let post = |held: &Arc<ActiveLease>| {
            held.lose(Cause::Released, now);
            self.renewer.remove(held);
            let ttl = held.lock().lease.ttl(now);
            let request = held.release(0, ttl);
            let reply = self.batcher.post(request.clone());
            let over = now.after(ttl.as_duration());
            if let Some(at) = held.late_release() {
                self.finish_release(
                    request,
                    reply,
                    over,
                    Some(LateRelease { at, single: false }),
                );
                return None;
            }
            Some((Ticket::new(self, request, over, None), reply))
        };
        let posted: Vec<_> = leases.iter().filter_map(post).collect();
        self.runtime.spawn(async move {
            for (ticket, reply) in posted {
                ticket.answered(&batcher::answer(reply).await);
            }
        });
    }

    /// Lets nobody begin anything, ends all waiting, and answers the leases.
    fn close(&self) -> Vec<Arc<ActiveLease>> {
        self.closed.store(true, Ordering::SeqCst);
        self.queues.close();
        for busy in self.queues.all_busy(|_| true) {
            if let HeadState::Asking(wakeup) = busy {
                wakeup.ask_again();
            }
        }
        self.renewer.leases()
    }
}

fn was_held(answer: &Reply) -> bool {
    matches!(
        answer,
        Reply::Applied {
            outcome: Outcome::Released { .. },
            ..
        }
    )
}

/// One release that is not confirmed. If it is dropped before, because the runtime ends, the release
/// stays among those that are left, for the farewell of the driver.
struct Ticket {
    driver: Arc<Driver>,
    number: u64,
}

impl Ticket {
    fn new(
        driver: &Arc<Driver>,
        request: Request,
        over: Instant,
        late_release: Option<LateRelease>,
    ) -> Self {
        let mut left = lock(&driver.pending.left);
        let number = left.tickets;
        left.tickets += 1;
        let release = Unconfirmed {
            request,
            over,
            late_release,
            error: None,
        };
        left.releases.insert(number, release);
        Self {
            driver: Arc::clone(driver),
            number,
        }
    }

    /// The store confirmed the release, or it is to be repeated as long as the lease may live.
    fn answered(self, reply: &Reply) {
        let driver = &self.driver;
        let now = driver.clock.now();
        let mut left = lock(&driver.pending.left);
        let Some(release) = left.releases.get_mut(&self.number) else {
            return;
        };
        if let Reply::Rejected(error) | Reply::Unknown(error) = reply {
            if now < release.over {
                release.error = Some(error.clone());
                let route = driver.batcher.route(&release.request);
                let first = left.repeating.insert(route);
                drop(left);
                if first {
                    let driver = Arc::clone(driver);
                    let runtime = driver.runtime.clone();
                    runtime.spawn(driver.repeat_releases(route));
                }
                return;
            }
            report(|| tracing::warn!(%error, "a lock could not be released; its lease ends it"));
        }
        let release = left.releases.remove(&self.number);
        if left.releases.is_empty() {
            driver.pending.none.notify_waiters();
        }
        drop(left);
        if let Some(Unconfirmed {
            request,
            late_release,
            ..
        }) = release
            && let Some(late_release) =
                late_release.filter(|late_release| !(late_release.single && was_held(reply)))
        {
            driver.echo_later(self.number, request, late_release.at);
        }
    }
}
