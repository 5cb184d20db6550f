//! Releases that nobody waits for: of dropped guards, cancelled and abandoned acquisitions, and of a
//! client that is shut down.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_core::{Cause, Instant, LeaseId, Op, Outcome, Ttl};
use tokio::sync::{Notify, oneshot};

use super::Driver;
use super::contender::Busy;
use super::held::Held;
use super::primitives::{Mutex, lock, tell};
use super::submitter::{self, BATCH_MAX};
use crate::store::{Key, Reply, Request};
use crate::{Durability, Error};

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

/// What a release is sent behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// All that was handed in before it: the acquisition may be among that.
    Everything,
    /// Nothing: all that was asked of the lease is answered.
    Nothing,
}

/// The releases that are still to be told to the store, in the order in which they were begun.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    left: Mutex<Left>,
    none: Notify,
}

#[derive(Debug, Default)]
struct Left {
    tickets: u64,
    releases: BTreeMap<u64, (Request, Option<Error>)>,
}

impl Pending {
    /// What is still to be told, and why it could not be, as far as somebody has tried.
    pub(crate) fn left(&self) -> Vec<(Request, Option<Error>)> {
        lock(&self.left).releases.values().cloned().collect()
    }

    /// Waits until all is told, or given up.
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
        echo: Option<Echo>,
        behind: Behind,
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
            Behind::Everything => self.submitter.post(request.clone()),
            Behind::Nothing => self.submitter.give_back(request.clone()),
        };
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
        let mut ticket = Ticket::new(self, request.clone());
        self.runtime.spawn(async move {
            let driver = Arc::clone(&ticket.driver);
            let mut answer = submitter::answer(reply).await;
            while let Reply::Rejected(error) | Reply::Unknown(error) = &answer {
                if driver.clock.now() >= over {
                    tell(|| tracing::warn!(%error, "a lock could not be released; its lease ends it"));
                    break;
                }
                ticket.failed(error);
                driver.pause(RETRY).await;
                answer = driver.release_again(request.clone()).await;
            }
            ticket.told();
            if let Some(echo) = echo.filter(|echo| !(echo.single && was_held(&answer))) {
                let clock = Arc::clone(&driver.clock);
                let driver = Arc::downgrade(&{ driver });
                clock.sleep_until(echo.at).await;
                if let Some(driver) = driver.upgrade() {
                    driver.release_again(request).await;
                }
            }
        });
    }

    /// Releases once more. If nothing is left of the lease, nothing that is under way concerns it.
    async fn release_again(&self, request: Request) -> Reply {
        match request.op {
            Op::Release { count: 0, .. } => {
                submitter::answer(self.submitter.give_back(request)).await
            }
            _ => self.submitter.submit(request).await,
        }
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
    fn release_batch(self: &Arc<Self>, leases: &[Arc<Held>], now: Instant) {
        let post = |held: &Arc<Held>| {
            held.lose(Cause::Released, now);
            self.renewer.remove(held);
            let ttl = held.lock().lease.ttl(now);
            let request = held.release(0, ttl);
            let reply = self.submitter.post(request.clone());
            let over = now.after(ttl.as_duration());
            if let Some(at) = held.echo() {
                self.finish_release(request, reply, over, Some(Echo { at, single: false }));
                return None;
            }
            Some((Ticket::new(self, request.clone()), request, reply, over))
        };
        let posted: Vec<_> = leases.iter().filter_map(post).collect();
        self.runtime.spawn(async move {
            for (ticket, request, reply, over) in posted {
                if !matches!(submitter::answer(reply).await, Reply::Applied { .. }) {
                    let driver = &ticket.driver;
                    let reply = driver.submitter.post(request.clone());
                    driver.finish_release(request, reply, over, None);
                }
                ticket.told();
            }
        });
    }

    /// Lets nobody begin anything, ends all waiting, and answers the leases.
    fn close(&self) -> Vec<Arc<Held>> {
        self.closed.store(true, Ordering::SeqCst);
        self.lines.close();
        for busy in self.lines.all_busy(|_| true) {
            if let Busy::Asking(slot) = busy {
                slot.ask_again();
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

/// One release still to be told. If it is dropped before, because the runtime ends, the release stays
/// among those that are left, for the farewell of the driver.
struct Ticket {
    driver: Arc<Driver>,
    number: u64,
}

impl Ticket {
    fn new(driver: &Arc<Driver>, request: Request) -> Self {
        let mut left = lock(&driver.pending.left);
        let number = left.tickets;
        left.tickets += 1;
        left.releases.insert(number, (request, None));
        Self {
            driver: Arc::clone(driver),
            number,
        }
    }

    fn failed(&mut self, error: &Error) {
        let mut left = lock(&self.driver.pending.left);
        if let Some((_, last)) = left.releases.get_mut(&self.number) {
            *last = Some(error.clone());
        }
    }

    fn told(self) {
        let pending = &self.driver.pending;
        let mut left = lock(&pending.left);
        left.releases.remove(&self.number);
        if left.releases.is_empty() {
            pending.none.notify_waiters();
        }
    }
}
