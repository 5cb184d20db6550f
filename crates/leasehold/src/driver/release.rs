//! Releases in the background: of dropped guards, of cancelled acquisitions, and of a client that is shut
//! down.
//!
//! The protocol is [`leasehold_core::release`]. Here is its host: a task for each release that waits for the
//! reply, and one task for all that are to be sent again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::record::queue;
use leasehold_core::release::{ReleaseProgress, ReleaseReply};
use leasehold_core::{
    AbandonedLease, Instant, LateRelease, MinHold, Op, Outcome, PendingReleases, ReleaseOrder,
};
use tokio::sync::{Notify, oneshot};

use super::Driver;
use super::batcher;
use super::context::Route;
use super::primitives::{Mutex, lock, report};
use crate::store::{Key, Reply, Request};
use crate::{Durability, Error};

/// How much longer a lease is released in a store that counts leases from sight: after an outage, whoever sees it first
/// waits for another ttl.
const OUTAGE_MAX: Duration = Duration::from_secs(60);

/// The releases that the store has not confirmed.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    state: Mutex<ReleasesState>,
    /// How many calls are under way that may begin one.
    calls: AtomicUsize,
    /// Whether a shutdown waits for their ends.
    awaited: AtomicBool,
    /// Notified when every release is confirmed or given up, and when no call is under way.
    idle: Notify,
    /// Notified when a release is to be sent again earlier than the others.
    earlier: Arc<Notify>,
}

#[derive(Debug, Default)]
struct ReleasesState {
    pending: PendingReleases<Release, Route>,
    /// The callers that wait until their release is confirmed or given up, by its number.
    callers: HashMap<u64, oneshot::Sender<Reply>>,
    /// Whether there is a task that sends releases again.
    repeating: bool,
}

/// A release, and the error of its last attempt.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    /// The request without a minimum hold.
    plain: Request,
    min_hold: Option<MinHold>,
    pub(crate) error: Option<Error>,
}

impl Release {
    pub(crate) fn new(plain: Request, min_hold: Option<MinHold>) -> Self {
        Self {
            plain,
            min_hold,
            error: None,
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.plain.key
    }

    /// Whether it leaves no hold.
    pub(crate) fn is_last(&self) -> bool {
        matches!(self.plain.op, Op::Release { .. })
    }

    /// Removes its note. Returns whether it had one.
    fn remove_note(&mut self) -> bool {
        match &mut self.plain.op {
            Op::Release { note, .. } => note.take().is_some(),
            _ => false,
        }
    }

    /// The request to send at `now`. The last release keeps the lock taken for the rest of the minimum hold.
    pub(crate) fn request(&self, now: Instant) -> Request {
        let mut request = self.plain.clone();
        if let Op::Release { rest, .. } = &mut request.op {
            *rest = self.min_hold.and_then(|min_hold| min_hold.remaining(now));
        }
        request
    }
}

impl Releases {
    /// The releases that are not confirmed.
    pub(crate) fn unconfirmed(&self) -> Vec<Release> {
        lock(&self.state).pending.unconfirmed().cloned().collect()
    }

    /// Waits until every release is confirmed or given up, also those of the calls that are under way.
    pub(crate) async fn idle(&self) {
        self.awaited.store(true, Ordering::SeqCst);
        loop {
            let idle = self.idle.notified();
            // In this order: a call begins its release before it ends.
            let calls = self.calls();
            if calls == 0 && lock(&self.state).pending.unconfirmed().len() == 0 {
                return;
            }
            idle.await;
        }
    }

    /// How many calls are under way that may begin a release.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Begins a call that may begin a release: a shutdown waits for its end.
    pub(crate) fn call(&self) -> Call<'_> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Call(self)
    }

    /// Adds a release that was posted, and returns its number.
    pub(crate) fn begin(
        &self,
        release: Release,
        expires: Instant,
        late: Option<LateRelease>,
    ) -> u64 {
        lock(&self.state).pending.begin(release, expires, late)
    }
}

/// A call that may begin a release.
pub(crate) struct Call<'a>(&'a Releases);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let is_last = self.0.calls.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && self.0.awaited.load(Ordering::SeqCst) {
            self.0.idle.notify_waiters();
        }
    }
}

/// Releases an abandoned lease id. Does nothing in a fork of the process: the process still uses the id.
pub(crate) fn abandon(
    driver: &Arc<Driver>,
    key: Key,
    abandoned: AbandonedLease,
    durability: Durability,
) {
    let context = &driver.context;
    if !context.process.is_current() {
        return;
    }
    let (lease, ttl) = (abandoned.lease, abandoned.ttl);
    let request = Request::new(key, Op::release(lease)).durability(durability);
    let reply = match abandoned.order {
        ReleaseOrder::Behind => driver.batcher.post(request.clone()),
        ReleaseOrder::Any => driver.batcher.post_unordered(request.clone()),
    };
    // It may wait in the queue.
    let expires = context.clock.now().after(queue::retention(ttl));
    finish(
        driver,
        Release::new(request, None),
        reply,
        expires,
        abandoned.late,
    );
}

/// Waits for the reply to a posted release, and repeats it until it is confirmed, or until the lease
/// `expires` in the store.
pub(crate) fn finish(
    driver: &Arc<Driver>,
    release: Release,
    reply: oneshot::Receiver<Reply>,
    expires: Instant,
    late: Option<LateRelease>,
) {
    let expires = forgotten(driver, expires);
    let number = driver.releases.begin(release, expires, late);
    await_replies(driver, [(number, reply)]);
}

/// When the store has forgotten a lease by itself that `expires` then.
pub(super) fn forgotten(driver: &Driver, expires: Instant) -> Instant {
    match driver.context.store.capabilities().kind.counts_from_sight() {
        true => expires.after(OUTAGE_MAX),
        false => expires,
    }
}

/// The same for a caller that waits for the last reply, or for the failure of its note. Without the caller, it goes on.
pub(crate) async fn confirmed(
    driver: &Arc<Driver>,
    release: Release,
    reply: oneshot::Receiver<Reply>,
    expires: Instant,
    late: Option<LateRelease>,
) -> Reply {
    let number = driver.releases.begin(release, expires, late);
    let (caller, last) = oneshot::channel();
    lock(&driver.releases.state).callers.insert(number, caller);
    await_replies(driver, [(number, reply)]);
    batcher::reply_to(last).await
}

/// Waits for the replies to releases in one task.
///
/// If the runtime ends before, the releases stay unconfirmed, and the end of the driver flushes them.
pub(crate) fn await_replies<P>(driver: &Arc<Driver>, posted: P)
where
    P: IntoIterator<Item = (u64, oneshot::Receiver<Reply>), IntoIter: Send> + Send + 'static,
{
    let task = Arc::clone(driver);
    driver.context.runtime.spawn(async move {
        for (number, reply) in posted {
            let reply = batcher::reply_to(reply).await;
            handle_reply(&task, number, reply);
        }
    });
}

fn handle_reply(driver: &Arc<Driver>, number: u64, reply: Reply) {
    let now = driver.context.clock.now();
    let mut given_up = None;
    let mut state = lock(&driver.releases.state);
    let before = state.pending.next_timeout();
    let mut is_decided = true;
    let release_reply = match reply.outcome() {
        Ok(outcome) => ReleaseReply::Applied {
            held: matches!(outcome, Outcome::Released | Outcome::Kept),
        },
        Err(error) => {
            let Some(release) = state.pending.release_mut(number) else {
                return;
            };
            let route = driver.context.route(&release.plain);
            release.error = Some(error.clone());
            // The lock must not stay taken for a note that the store does not take.
            is_decided = !error.is_transient() && release.remove_note();
            given_up = Some(error.clone());
            ReleaseReply::Failed(route)
        }
    };
    let progress = state
        .pending
        .handle_reply(number, release_reply, now, fastrand::f64());
    is_decided |= progress != ReleaseProgress::Repeated;
    let caller = match is_decided {
        true => state.callers.remove(&number),
        false => None,
    };
    let idle = state.pending.unconfirmed().len() == 0;
    let next = state.pending.next_timeout();
    let starts = next.is_some() && !state.repeating;
    state.repeating |= starts;
    drop(state);
    if let Some(caller) = caller {
        // It may have been dropped.
        let _ = caller.send(reply);
    }
    if starts {
        let (repeating, earlier) = (Arc::clone(driver), Arc::clone(&driver.releases.earlier));
        driver.context.runtime.spawn(repeat(repeating, earlier));
    } else if idle
        || progress == ReleaseProgress::Repeated
        || next.is_some_and(|next| Some(next) < before)
    {
        // The task has to be earlier, or must not keep the client alive any longer.
        driver.releases.earlier.notify_one();
    }
    if idle {
        driver.releases.idle.notify_waiters();
    }
    if let Some(error) = given_up.filter(|_| progress == ReleaseProgress::GivenUp) {
        report(|| {
            metrics::counter!("leasehold_release_failures_total").increment(1);
            tracing::warn!(%error, "a lock could not be released; it is free when its lease expires");
        });
    }
}

/// Sends failed and late releases again, until none remain.
async fn repeat(mut driver: Arc<Driver>, earlier: Arc<Notify>) {
    loop {
        send_due(&driver);
        let (next, unconfirmed) = {
            let mut state = lock(&driver.releases.state);
            let next = state.pending.next_timeout();
            state.repeating = next.is_some();
            (next, state.pending.unconfirmed().len() > 0)
        };
        let Some(next) = next else { return };
        let clock = Arc::clone(&driver.context.clock);
        // Late releases alone do not keep the client alive: what they would release has a ttl.
        let weak = Arc::downgrade(&driver);
        let strong = unconfirmed.then_some(driver);
        tokio::select! {
            () = clock.sleep_until(next) => {}
            () = earlier.notified() => {}
        }
        match strong.or_else(|| weak.upgrade()) {
            Some(upgraded) => driver = upgraded,
            None => return,
        }
    }
}

fn send_due(driver: &Arc<Driver>) {
    let now = driver.context.clock.now();
    let due = lock(&driver.releases.state).pending.poll(now);
    // A route without a reply delays only its own releases.
    let mut posted: BTreeMap<Route, Vec<_>> = BTreeMap::new();
    for (number, release) in due {
        let mut request = release.request(now);
        if let (None, Op::Release { note, .. }) = (number, &mut request.op) {
            // A late release ends a grant that nobody has, and completes nothing.
            *note = None;
        }
        let route = driver.context.route(&request);
        // After the last hold, no other request of the lease is in flight.
        let reply = match release.is_last() {
            true => driver.batcher.post_unordered(request),
            false => driver.batcher.post(request),
        };
        if let Some(number) = number {
            posted.entry(route).or_default().push((number, reply));
        }
    }
    for replies in posted.into_values() {
        await_replies(driver, replies);
    }
}
