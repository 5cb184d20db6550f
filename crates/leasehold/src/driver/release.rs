//! Releases that nobody waits for: of dropped guards, cancelled and abandoned acquisitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::{Cause, Instant, LeaseId, Op, Outcome, Ttl};
use tokio::sync::{Notify, oneshot};

use super::{Driver, submitter};
use crate::store::{Key, Reply, Request};

/// The pause between two tries to tell the store.
const RETRY: Duration = Duration::from_millis(200);

/// A request that was never answered may still run, late and with a full ttl. So its lease id is
/// released once more after that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echo {
    /// When to release again.
    pub(crate) at: Instant,
    /// Whether there was one such request only: if a release found its grant, it has run.
    pub(crate) single: bool,
}

/// How many releases are still to be told to the store.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    count: AtomicUsize,
    none: Notify,
}

impl Driver {
    /// Gives up a lease id whose acquisition was not finished.
    pub(crate) fn abandon(
        self: &Arc<Self>,
        key: Key,
        lease: LeaseId,
        ttl: Ttl,
        echo: Option<Echo>,
    ) {
        let over = self.clock.now().after(ttl.as_duration());
        let request = Request {
            key,
            op: Op::Release {
                lease,
                count: 0,
                ttl,
            },
        };
        let reply = self.submitter.post(request.clone());
        self.finish_release(request, reply, over, echo);
    }

    /// Sees a posted release through: repeats it until it is answered, or until the lease is
    /// `over` in the store by itself.
    pub(crate) fn finish_release(
        self: &Arc<Self>,
        request: Request,
        reply: oneshot::Receiver<Reply>,
        over: Instant,
        echo: Option<Echo>,
    ) {
        let ticket = Ticket::new(self);
        self.runtime.spawn(async move {
            let driver = Arc::clone(&ticket.0);
            let mut answer = submitter::answer(reply).await;
            while !matches!(answer, Reply::Applied { .. }) && driver.clock.now() < over {
                driver.pause(RETRY).await;
                answer = driver.submitter.submit(request.clone()).await;
            }
            drop(ticket);
            if let Reply::Rejected(error) | Reply::Unknown(error) = &answer {
                tracing::warn!(%error, "a lock could not be released; its lease ends it");
            }
            if let Some(echo) = echo.filter(|echo| !(echo.single && was_held(&answer))) {
                let clock = Arc::clone(&driver.clock);
                let driver = Arc::downgrade(&{ driver });
                clock.sleep_until(echo.at).await;
                if let Some(driver) = driver.upgrade() {
                    driver.submitter.submit(request).await;
                }
            }
        });
    }

    /// Releases every lease that is looked after.
    pub(crate) fn release_all(self: &Arc<Self>) {
        for held in self.renewer.leases() {
            let now = self.clock.now();
            held.lose(Cause::Released, now);
            self.renewer.remove(&held);
            let ttl = held.lock().lease.ttl(now);
            let over = now.after(ttl.as_duration());
            let request = held.release(0, ttl);
            let reply = self.submitter.post(request.clone());
            self.finish_release(request, reply, over, None);
        }
    }

    /// Waits until every release that was begun is told to the store, or given up.
    pub(crate) async fn released(&self) {
        loop {
            let none = self.pending.none.notified();
            if self.pending.count.load(Ordering::SeqCst) == 0 {
                return;
            }
            none.await;
        }
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

/// One release still to be told.
struct Ticket(Arc<Driver>);

impl Ticket {
    fn new(driver: &Arc<Driver>) -> Self {
        driver.pending.count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(driver))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.0.pending.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.pending.none.notify_waiters();
        }
    }
}
