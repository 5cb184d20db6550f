//! One hold on a lease: the state behind a guard.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::{
    Cause, HoldId, Instant, LateRelease, Lease, MinHold, NewNote, Op, Outcome, State, StateKind,
    Term, Token,
};
use tokio::sync::oneshot;

use super::active_lease::{ActiveLease, Inner};
use super::context::AcquireOptions;
use super::primitives::{MutexGuard, report};
use super::reentry::ReentrySlot;
use super::release::{self, Release};
use super::{Driver, Turn, batcher};
use crate::store::Reply;
use crate::{Error, ErrorKind, Result};

/// A hold is left by `release` or by drop, whichever comes first.
pub(crate) struct Hold {
    pub(crate) driver: Arc<Driver>,
    pub(crate) lease: Arc<ActiveLease>,
    pub(crate) id: HoldId,
    pub(crate) token: Token,
    /// The slot in which other tasks of the owner find the lease. It exists as long as a hold.
    pub(crate) slot: Option<Arc<ReentrySlot>>,
    begun: Instant,
    /// Whether the lease may be handed off to another task.
    handoff: bool,
    /// Whether its release frees the lock immediately, whatever is required later.
    min_hold_waived: AtomicBool,
    released: bool,
}

impl Hold {
    /// The first hold of a lease that was granted at `now`.
    pub(crate) fn begin(
        driver: &Arc<Driver>,
        lease: Arc<ActiveLease>,
        id: HoldId,
        now: Instant,
    ) -> Self {
        driver.renewer.insert(&lease, now);
        let ttl = lease.lock().lease.ttl(now);
        driver.presence.extend(&driver.context, ttl.as_duration());
        let token = lease.first;
        Self::new(driver, lease, id, token, now)
    }

    fn new(
        driver: &Arc<Driver>,
        lease: Arc<ActiveLease>,
        id: HoldId,
        token: Token,
        begun: Instant,
    ) -> Self {
        Self {
            driver: Arc::clone(driver),
            lease,
            id,
            token,
            slot: None,
            begun,
            handoff: true,
            min_hold_waived: AtomicBool::new(false),
            released: false,
        }
    }

    /// A further hold on a lease that others of this process hold. The store does not count them. `None`: it has ended,
    /// or is in jeopardy.
    pub(super) fn join(
        driver: &Arc<Driver>,
        lease: &Arc<ActiveLease>,
        now: Instant,
    ) -> Option<Self> {
        let id = {
            let state = &mut lease.lock().lease;
            if !state.state(now).is_held() || state.holds().count() == 0 {
                return None;
            }
            state.enter(Term::Renewed, now)
        };
        let lease = Arc::clone(lease);
        let token = lease.first;
        Some(Self::new(driver, lease, id, token, now))
    }

    /// Has the lease released at its end, even if a task of this process waits for it.
    pub(crate) const fn prevent_handoff(&mut self) {
        self.handoff = false;
    }

    /// Enters a lease again. `handoffs` is how often it had been handed off when its owner got it. `None`: it
    /// has ended, and the caller must acquire a new one.
    pub(crate) async fn enter(
        driver: &Arc<Driver>,
        (lease, handoffs): (&Arc<ActiveLease>, u32),
        slot: &Arc<ReentrySlot>,
        options: &AcquireOptions,
    ) -> Result<Option<Self>> {
        let sent = driver.context.clock.now();
        let term = options.lease.term(sent);
        let (hold, ttl, reply) = {
            let mut inner = lease.lock();
            // The lease may have been handed off to another owner.
            let own = inner.chain.passed() == handoffs;
            let state = &mut inner.lease;
            if !own || state.state(sent).is_lost() || state.holds().count() == 0 {
                return Ok(None);
            }
            lease.strengthen(options.durability);
            let id = state.enter(term, sent);
            let ttl = state.ttl(sent);
            // A renewed hold needs a margin, which a fixed lease may not have left. So the lease stays what
            // it was until the store has confirmed the longer ttl.
            let deadline = state.deadline();
            state.holds_mut().set_term(id, Term::Fixed(deadline));
            let request = lease.request(Op::Renew {
                lease: lease.id,
                ttl,
                count: NonZeroU32::new(state.holds().count()),
            });
            // Posted under the lock: the counts of a lease reach the store in their order.
            let reply = driver.batcher.post(request);
            let token = inner.chain.token();
            let mut hold = Self::new(driver, Arc::clone(lease), id, token, sent);
            hold.slot = Some(Arc::clone(slot));
            (hold, ttl, reply)
        };
        match batcher::reply_to(reply).await.outcome() {
            Ok(Outcome::Kept) => {
                let now = driver.context.clock.now();
                lease.change(now, |inner| {
                    inner.lease.confirmed(sent, ttl, now);
                    inner.lease.holds_mut().set_term(hold.id, term);
                });
                driver.renewer.insert(lease, now);
                driver.presence.extend(&driver.context, ttl.as_duration());
                Ok(Some(hold).filter(|hold| !hold.state().is_lost()))
            }
            Ok(outcome) => {
                lease.lose(Cause::of(outcome), driver.context.clock.now());
                Ok(None)
            }
            // The hold is left again by its drop.
            Err(error) => Err(driver.context.name_error(error.clone(), &lease.key)),
        }
    }

    pub(crate) fn state(&self) -> State {
        if !self.driver.context.process.is_current() {
            return State::Lost(Cause::OtherProcess);
        }
        self.lease.state(self.id, self.driver.context.clock.now())
    }

    /// Waits until the state differs from `last`, in kind or in cause, and returns it.
    pub(crate) async fn state_after(&self, last: Option<State>) -> State {
        if !self.driver.context.process.is_current() {
            return State::Lost(Cause::OtherProcess);
        }
        let clock = &*self.driver.context.clock;
        self.lease.state_after(self.id, last, clock).await
    }

    /// Until when the store is sure to keep this hold.
    pub(crate) fn deadline(&self) -> Instant {
        let deadline = self.lease.lock().lease.deadline();
        match self.lease.fixed_end(self.id) {
            Some(end) => deadline.min(end),
            None => deadline,
        }
    }

    /// Renews the lease now.
    pub(crate) async fn renew(&self) -> Result<()> {
        let sent = self.driver.context.clock.now();
        let ttl = self.lease.lock().lease.ttl(sent);
        let reply = self.driver.batcher.submit(self.lease.renewal(ttl)).await;
        let context = &self.driver.context;
        let name = |error: &Error| context.name_error(error.clone(), &self.lease.key);
        let outcome = reply.outcome().map_err(name)?;
        let now = context.clock.now();
        if let Outcome::Kept = outcome {
            let confirm = |inner: &mut Inner| inner.lease.confirmed(sent, ttl, now);
            self.lease.change(now, confirm);
            self.driver.renewer.revisit(&self.lease);
        } else {
            self.lease.lose(Cause::of(outcome), now);
        }
        Ok(())
    }

    /// From now on the release of the lease keeps the lock taken until `duration` has passed, unless that was waived.
    pub(crate) fn require_min_hold(&self, duration: Duration) {
        let context = &self.driver.context;
        let now = context.clock.now();
        let mut inner = self.lease.lock();
        if self.min_hold_waived.load(Ordering::Relaxed) {
            return;
        }
        inner.require_min_hold(MinHold::begin(duration, now), now);
        drop(inner);
        // It is listed until then.
        self.driver.presence.extend(context, duration);
    }

    /// From now on the release of the lease frees the lock immediately.
    pub(crate) fn waive_min_hold(&self) {
        let mut inner = self.lease.lock();
        self.min_hold_waived.store(true, Ordering::Relaxed);
        inner.min_hold = None;
    }

    /// Leaves the lease, and waits until the store has confirmed it. An error says that the lease was lost
    /// before, or that the release failed; it is then repeated in the background until the lease has expired.
    pub(crate) fn release(self) -> impl Future<Output = Result<()>> + Send {
        self.release_by(false)
    }

    /// The same. A release that is posted when the future is polled first travels together with others that are.
    pub(crate) async fn release_by(mut self, posts: bool) -> Result<()> {
        if !self.driver.context.process.is_current() {
            return Err(self.lost(Cause::OtherProcess));
        }
        let driver = Arc::clone(&self.driver);
        // It begins before the lease leaves the renewer, so a shutdown waits for the release.
        let _call = driver.releases.call();
        let EndedHold { before, release } = self.leave(posts);
        let Some(PostedRelease {
            release,
            expires,
            reply,
        }) = release
        else {
            return match before {
                State::Lost(cause) => Err(self.lost(cause)),
                _ => Ok(()),
            };
        };
        let last = release.is_last();
        let reply = {
            let posted = reply.ok_or_else(|| release.request(self.driver.context.clock.now()));
            // If this future is dropped, the release goes on in the background.
            let mut unfinished = Unfinished {
                hold: &self,
                release: Some(release),
                expires,
            };
            let reply = match posted {
                Ok(posted) => batcher::reply_to(posted).await,
                Err(request) => self.driver.batcher.submit(request).await,
            };
            if matches!(reply, Reply::Applied { .. }) {
                unfinished.release = None;
            }
            reply
        };
        if last {
            if matches!(reply, Reply::Applied { .. }) {
                self.release_late();
            }
            // No renewal of this lease is sent after this returns.
            self.lease.no_renewal().await;
        }
        match (reply, before) {
            (_, State::Lost(cause)) => Err(self.lost(cause)),
            (Reply::Applied { outcome, .. }, _) => match outcome {
                Outcome::Released | Outcome::Kept => Ok(()),
                lost => Err(self.lost(Cause::of(&lost))),
            },
            (Reply::Rejected(error) | Reply::Unknown(error), _) => {
                Err(self.driver.context.name_error(error, &self.lease.key))
            }
        }
    }

    /// The error of a lease that is lost.
    pub(crate) fn lost(&self, cause: Cause) -> Error {
        let error = Error::new(ErrorKind::Lost, format!("the lease is lost: {cause}"));
        self.driver.context.name_error(error, &self.lease.key)
    }

    /// Counts this hold out. The lease is no longer renewed for it.
    ///
    /// A release that leaves other holds is posted under the lock of the lease: its counts reach the store in
    /// their order. A release that lets another task of this process contend travels with the request of that task.
    pub(super) fn leave(&mut self, post: bool) -> EndedHold {
        let lease = Arc::clone(&self.lease);
        self.count_out(lease.lock(), None, post)
    }

    /// Counts out the last hold, and posts the release of the lease with a note. `None`: there are other holds, and a
    /// note travels only with the release that ends the lease.
    pub(super) fn leave_last(&mut self, note: &NewNote) -> Option<EndedHold> {
        let lease = Arc::clone(&self.lease);
        let inner = lease.lock();
        let is_last = inner.lease.holds().count() <= 1;
        is_last.then(|| self.count_out(inner, Some(note), true))
    }

    fn count_out(
        &mut self,
        mut inner: MutexGuard<'_, Inner>,
        note: Option<&NewNote>,
        post: bool,
    ) -> EndedHold {
        let (driver, lease) = (&self.driver, &self.lease);
        let now = driver.context.clock.now();
        let held_for = now.since(self.begun);
        report(|| metrics::histogram!("leasehold_hold_seconds").record(held_for));
        self.released = true;
        let (hold_state, lease_state) =
            (inner.lease.hold_state(self.id, now), inner.lease.state(now));
        let note = note.filter(|_| !hold_state.is_lost());
        let healthy =
            lease_state.is_held() && inner.lease.holds().term(self.id) == Some(Term::Renewed);
        if lease_state.is_lost() {
            // Others may do the work that was cut off. No repetition of the release begins a minimum hold either.
            inner.min_hold = None;
        }
        let expires = inner.expires(now);
        inner.lease.leave(self.id, now);
        let count = inner.lease.holds().count();
        if count == 0 && lease.is_shared() {
            driver.shares.end(lease);
        }
        let left = |release| EndedHold {
            before: hold_state,
            release,
        };
        if lease_state == State::Lost(Cause::Released) {
            return left(None);
        }
        let suits = healthy && self.handoff && note.is_none() && !inner.has_min_hold(now);
        if count == 0 && suits && hand_off(driver, lease, &mut inner, now) {
            return left(None);
        }
        if count > 0 && lease.is_shared() {
            return left(None);
        }
        let release = lease.release(&inner, count, note, now);
        if count > 0 {
            let reply = Some(driver.batcher.post(release.request(now)));
            drop(inner);
            driver.renewer.revisit(lease);
            return left(Some(PostedRelease {
                release,
                expires,
                reply,
            }));
        }
        let head = inner.head.take();
        drop(inner);
        if !lease_state.is_lost() {
            lease.report(StateKind::Lost(Cause::Released));
        }
        driver.renewer.remove(lease);
        driver.note_release(&lease.key);
        let request = || release.request(now);
        let followed = head.and_then(|head| head.follow(driver, &lease.key, request));
        let reply = followed.or_else(|| post.then(|| driver.batcher.post(request())));
        left(Some(PostedRelease {
            release,
            expires,
            reply,
        }))
    }

    /// When the lease has expired in the store at the latest.
    pub(super) fn expires(&self) -> Instant {
        self.lease.lock().expires(self.driver.context.clock.now())
    }

    fn release_in_background(&self, release: Release, expires: Instant) {
        let now = self.driver.context.clock.now();
        let reply = self.driver.batcher.post(release.request(now));
        self.finish_release(release, reply, expires);
    }

    pub(super) fn finish_release(
        &self,
        release: Release,
        reply: oneshot::Receiver<Reply>,
        expires: Instant,
    ) {
        let late = self.late_release(&release);
        release::finish(&self.driver, release, reply, expires, late);
    }

    /// The second release behind a release, if one is needed.
    pub(super) fn late_release(&self, release: &Release) -> Option<LateRelease> {
        // As long as there are other holds, the lease must not be released.
        let late = self.lease.late_release().filter(|_| release.is_last());
        late.map(|at| LateRelease { at, single: false })
    }

    /// Releases the lease id once more later, if an earlier request of it can still be applied.
    fn release_late(&self) {
        let Some(at) = self.lease.late_release() else {
            return;
        };
        let now = self.driver.context.clock.now();
        if now < at {
            self.release_in_background(self.lease.second_release(), now);
        }
    }
}

/// How a hold was left.
pub(super) struct EndedHold {
    /// Its state before.
    pub(super) before: State,
    /// The release. `None`: the lease was handed off, or released by the shutdown of its client.
    pub(super) release: Option<PostedRelease>,
}

/// A release, and the reply to it if it was posted.
pub(super) struct PostedRelease {
    pub(super) release: Release,
    /// When the lease has expired in the store at the latest.
    pub(super) expires: Instant,
    pub(super) reply: Option<oneshot::Receiver<Reply>>,
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hold({})", self.lease.id)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        if self.driver.context.process.is_current() {
            let driver = Arc::clone(&self.driver);
            let _call = driver.releases.call();
            if let Some(PostedRelease {
                release,
                expires,
                reply: Some(reply),
            }) = self.leave(true).release
            {
                self.finish_release(release, reply, expires);
            }
        } else {
            // Dropped here, they would end the lease of the other process.
            let shared = (
                Arc::clone(&self.driver),
                Arc::clone(&self.lease),
                self.slot.take(),
            );
            std::mem::forget(shared);
        }
    }
}

/// Hands a lease whose last hold was just left to the next task in the queue, without a round trip and with
/// a larger token. `false`: it is to be released.
///
/// The next task must want it renewed alike and for no run, and [`leasehold_core::Handoff`] limits how often: then
/// other processes have their turn. During a minimum hold, a lease is not handed off at all.
fn hand_off(
    driver: &Arc<Driver>,
    lease: &Arc<ActiveLease>,
    inner: &mut Inner,
    now: Instant,
) -> bool {
    let Inner {
        lease: state,
        chain,
        head,
        ..
    } = inner;
    let Some(head) = head.as_ref().filter(|_| chain.pass(now)) else {
        return false;
    };
    let durability = lease.durability();
    let suits = |state: &Lease, options: &AcquireOptions| {
        // Only the store knows whether a run is complete.
        let suits = options.lease.fixed.is_none() && options.run.is_none();
        suits && options.durability == durability && state.suits(options.lease.policy)
    };
    while let Some(next) = head.next_if(|options| suits(state, options)) {
        let id = state.hand_on(next.info.lease.policy, now);
        let hold = Hold::new(driver, Arc::clone(lease), id, chain.token(), now);
        match next.wake(Turn::Hold(hold)) {
            Ok(()) => {
                report(|| metrics::counter!("leasehold_handoffs_total").increment(1));
                return true;
            }
            // The task was cancelled meanwhile.
            Err(Turn::Hold(mut hold)) => {
                hold.released = true;
                state.leave(id, now);
            }
            Err(Turn::Head(_) | Turn::Contend(_) | Turn::Ask) => {}
        }
    }
    false
}

/// A release whose reply is not known yet.
struct Unfinished<'a> {
    hold: &'a Hold,
    release: Option<Release>,
    expires: Instant,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            self.hold.release_in_background(release, self.expires);
        }
    }
}
