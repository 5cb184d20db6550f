//! One hold of a lease: what a guard has in its hand.

use std::num::NonZeroU32;
use std::sync::Arc;

use leasehold_core::contention::Backoff;
use leasehold_core::{Cause, HoldId, Instant, Op, Outcome, State, Term, Token, Ttl};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::active_lease::ActiveLease;
use super::contender::{self, Ask, Contender, Wait};
use super::handoff::hand_off;
use super::presence::Presence;
use super::reentry::ReentrySlot;
use super::release::LateRelease;
use super::sync::{AbortHandle, report};
use super::{Driver, batcher};
use crate::process::Process;
use crate::store::{Reply, Request};
use crate::{Error, ErrorKind, Result};

/// Left by `release` or by drop, whichever comes first.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) driver: Arc<Driver>,
    pub(crate) held: Arc<ActiveLease>,
    pub(crate) id: HoldId,
    pub(crate) token: Token,
    /// Where the owner's other tasks find the lease. Kept for as long as there is a hold.
    place: Option<Arc<ReentrySlot>>,
    begun: Instant,
    left: bool,
}

/// Takes a lock for a caller: enters again if the owner holds it, else contends for it.
pub(crate) async fn acquire(
    driver: &Arc<Driver>,
    place: Option<Arc<ReentrySlot>>,
    ask: &Ask,
) -> Result<Option<Hold>> {
    // Before anything is waited for: in a fork, nobody else is there.
    driver.open(&ask.key)?;
    let Some(place) = place else {
        return contender::acquire(driver, ask).await;
    };
    let turn = match ask.wait {
        Wait::Forever => Some(place.lease.lock().await),
        // The owner itself is busy acquiring: not to be had at this moment.
        Wait::No => place.lease.try_lock().ok(),
        Wait::Until(end) => tokio::select! {
            turn = place.lease.lock() => Some(turn),
            () = driver.clock.sleep_until(end) => None,
        },
    };
    let Some(mut lease) = turn else {
        return Ok(None);
    };
    if let Some((held, tenure)) = lease.as_ref() {
        let entered = Hold::enter(driver, held, *tenure, Arc::clone(&place), ask).await?;
        if entered.is_some() {
            return Ok(entered);
        }
    }
    let Some(mut hold) = contender::acquire(driver, ask).await? else {
        return Ok(None);
    };
    let tenure = hold.held.lock().chain.passed();
    *lease = Some((Arc::clone(&hold.held), tenure));
    hold.place = Some(Arc::clone(&place));
    Ok(Some(hold))
}

impl Hold {
    /// The first hold of a new lease.
    pub(super) fn begin(driver: &Arc<Driver>, held: Arc<ActiveLease>, id: HoldId) -> Self {
        driver.renewer.insert(&held);
        let ttl = held.lock().lease.ttl(driver.clock.now());
        Presence::note(driver, ttl.as_duration());
        let token = held.first;
        Self::new(driver, held, id, token)
    }

    /// The hold of a task that a lease was handed to.
    pub(super) fn handed(
        driver: &Arc<Driver>,
        held: &Arc<ActiveLease>,
        id: HoldId,
        token: Token,
    ) -> Self {
        Self::new(driver, Arc::clone(held), id, token)
    }

    fn new(driver: &Arc<Driver>, held: Arc<ActiveLease>, id: HoldId, token: Token) -> Self {
        Self {
            driver: Arc::clone(driver),
            held,
            id,
            token,
            place: None,
            begun: driver.clock.now(),
            left: false,
        }
    }

    /// A hold that nobody got.
    pub(super) fn forget(mut self) {
        self.left = true;
    }

    /// Enters a lease again. `None`: it is over, the caller must contend for a new one.
    async fn enter(
        driver: &Arc<Driver>,
        held: &Arc<ActiveLease>,
        tenure: u32,
        place: Arc<ReentrySlot>,
        ask: &Ask,
    ) -> Result<Option<Self>> {
        let sent = driver.clock.now();
        let term = ask.terms.term(sent);
        let (hold, ttl, reply) = {
            let mut inner = held.lock();
            // The lease may belong to another by now, to whom it was handed off.
            let own = inner.chain.passed() == tenure;
            let lease = &mut inner.lease;
            if !own || lease.state(sent).is_lost() || lease.holds().count() == 0 {
                return Ok(None);
            }
            held.strengthen(ask.terms.durability);
            let id = lease.enter(term, sent);
            let ttl = lease.ttl(sent);
            // One that is renewed wants a margin, which a fixed lease may not have left. So until the
            // store has confirmed the longer ttl, the lease stays what it was.
            let deadline = lease.deadline();
            lease.holds_mut().set_term(id, Term::Fixed(deadline));
            let request = held.request(Op::Enter {
                lease: held.id,
                count: NonZeroU32::new(lease.holds().count()).unwrap_or(NonZeroU32::MIN),
                ttl,
            });
            // Posted under the lock: the counts of a lease reach the store in their order.
            let reply = driver.batcher.post(request);
            let token = inner.chain.token();
            let mut hold = Self::new(driver, Arc::clone(held), id, token);
            hold.place = Some(place);
            (hold, ttl, reply)
        };
        match batcher::answer(reply).await {
            Reply::Applied {
                outcome: Outcome::Entered { .. },
                ..
            } => {
                held.entered((hold.id, term), sent, ttl, driver.clock.now());
                driver.renewer.insert(held);
                Presence::note(driver, ttl.as_duration());
                Ok(Some(hold).filter(|hold| !hold.state().is_lost()))
            }
            Reply::Applied { outcome, .. } => {
                held.lose(Cause::of(&outcome), driver.clock.now());
                Ok(None)
            }
            // The hold is left again by its drop.
            Reply::Rejected(error) | Reply::Unknown(error) => {
                Err(driver.name_error(error, &held.key))
            }
        }
    }

    pub(crate) fn state(&self) -> State {
        if !self.driver.process.is_current() {
            return State::Lost(Cause::OtherProcess);
        }
        self.held.state(self.id, self.driver.clock.now())
    }

    /// Waits until the state is another than `last`, in kind or in cause, and answers it.
    pub(crate) async fn state_after(&self, last: Option<State>) -> State {
        if !self.driver.process.is_current() {
            return State::Lost(Cause::OtherProcess);
        }
        let clock = &*self.driver.clock;
        self.held.state_after(self.id, last, clock).await
    }

    /// Until when the store is sure to keep this hold.
    pub(crate) fn deadline(&self) -> Instant {
        let deadline = self.held.lock().lease.deadline();
        match self.held.fixed_end(self.id) {
            Some(end) => deadline.min(end),
            None => deadline,
        }
    }

    /// Asks the store for a renewal now and takes in its answer.
    pub(crate) async fn renew(&self) -> Result<()> {
        let sent = self.driver.clock.now();
        let ttl = self.held.lock().lease.ttl(sent);
        let reply = self.driver.batcher.submit(self.held.renewal(ttl)).await;
        match reply {
            Reply::Applied {
                outcome: Outcome::Renewed,
                ..
            } => {
                self.held.confirmed(sent, ttl, self.driver.clock.now());
                self.driver.renewer.revisit(&self.held);
                Ok(())
            }
            Reply::Applied { outcome, .. } => {
                self.held.lose(Cause::of(&outcome), self.driver.clock.now());
                Ok(())
            }
            Reply::Rejected(error) | Reply::Unknown(error) => {
                Err(self.driver.name_error(error, &self.held.key))
            }
        }
    }

    /// Leaves the lease and waits until the store knows. An error says that it was lost before, or
    /// that the store cannot be told; it is then told in the background until the lease has ended.
    pub(crate) async fn release(mut self) -> Result<()> {
        let before = self.state();
        if before == State::Lost(Cause::OtherProcess) {
            return Err(self.lost(Cause::OtherProcess));
        }
        let over = self.over();
        let Some((request, posted)) = self.leave(false) else {
            return match before {
                State::Lost(cause) => Err(self.lost(cause)),
                _ => Ok(()),
            };
        };
        let last = is_last(&request);
        let reply = {
            // If this future is dropped, the release goes on in the background.
            let mut unfinished = Unfinished {
                hold: &self,
                request: Some(request.clone()),
                over,
            };
            let reply = match posted {
                Some(posted) => batcher::answer(posted).await,
                None => self.driver.batcher.submit(request).await,
            };
            if matches!(reply, Reply::Applied { .. }) {
                unfinished.request = None;
            }
            reply
        };
        if last {
            if matches!(reply, Reply::Applied { .. }) {
                self.release_echo();
            }
            // No renewal of this lease is sent after this returns.
            self.held.no_renewal().await;
        }
        match (reply, before) {
            (_, State::Lost(cause)) => Err(self.lost(cause)),
            (Reply::Applied { outcome, .. }, _) => match outcome {
                Outcome::Released { .. } => Ok(()),
                lost => Err(self.lost(Cause::of(&lost))),
            },
            (Reply::Rejected(error) | Reply::Unknown(error), _) => {
                Err(self.driver.name_error(error, &self.held.key))
            }
        }
    }

    /// Cancels a token when this hold is lost.
    pub(crate) fn watch_loss(&self) -> Loss {
        let token = CancellationToken::new();
        let process = self.driver.process;
        if !process.is_current() {
            token.cancel();
            return Loss {
                token,
                task: None,
                process,
            };
        }
        let (held, clock) = (Arc::clone(&self.held), Arc::clone(&self.driver.clock));
        let (id, lost) = (self.id, token.clone());
        let task = self.driver.runtime.spawn(async move {
            let mut last = None;
            loop {
                let state = held.state_after(id, last, &*clock).await;
                if state.is_lost() {
                    return lost.cancel();
                }
                last = Some(state);
            }
        });
        Loss {
            token,
            task: Some(task.abort_handle()),
            process,
        }
    }

    /// The error of a lease that is lost.
    pub(crate) fn lost(&self, cause: Cause) -> Error {
        let error = Error::new(ErrorKind::Lost, format!("the lease is lost: {cause}"));
        self.driver.name_error(error, &self.held.key)
    }

    /// Counts this hold out. Nothing is renewed for it from here on.
    ///
    /// Answers the release, and the reply to it if it was posted; or nothing if the lease was handed
    /// over, or released by the shutdown of its client. A release that leaves other holds is posted under the lease's own lock: its counts reach
    /// the store in their order. One that lets others of this process ask travels with their question.
    fn leave(&mut self, post: bool) -> Option<(Request, Option<oneshot::Receiver<Reply>>)> {
        self.left = true;
        let (driver, held) = (&self.driver, &self.held);
        let now = driver.clock.now();
        let kept = now.since(self.begun);
        report(|| metrics::histogram!("leasehold_hold_seconds").record(kept));
        let mut inner = held.lock();
        let healthy = inner.lease.state(now).is_held()
            && inner.lease.holds().term(self.id) == Some(Term::Renewed);
        inner.lease.leave(self.id, now);
        let count = inner.lease.holds().count();
        if inner.lease.state(now) == State::Lost(Cause::Released) {
            return None;
        }
        if count == 0 && healthy && hand_off(driver, held, &mut inner, now) {
            return None;
        }
        let request = held.release(count, inner.lease.ttl(now));
        if count > 0 {
            let posted = driver.batcher.post(request.clone());
            drop(inner);
            driver.renewer.revisit(held);
            return Some((request, Some(posted)));
        }
        let head = inner.head.take();
        drop(inner);
        driver.renewer.remove(held);
        driver.back_off(&held.key, Backoff::released);
        let followed = head.and_then(|head| Contender::follow(driver, head, &held.key, &request));
        let posted = followed.or_else(|| post.then(|| driver.batcher.post(request.clone())));
        Some((request, posted))
    }

    /// When the store has ended the lease by itself at the latest.
    fn over(&self) -> Instant {
        let now = self.driver.clock.now();
        now.after(self.held.lock().lease.ttl(now).as_duration())
    }

    fn release_later(&self, request: Request, over: Instant) {
        let reply = self.driver.batcher.post(request.clone());
        self.see_through(request, reply, over);
    }

    fn see_through(&self, request: Request, reply: oneshot::Receiver<Reply>, over: Instant) {
        // As long as other holds are left, nothing takes the lease from them.
        let late_release = self.held.late_release().filter(|_| is_last(&request));
        let late_release = late_release.map(|at| LateRelease { at, single: false });
        self.driver
            .finish_release(request, reply, over, late_release);
    }

    /// If an earlier request of this id may still come alive, releases it again in time. Only after
    /// the last hold was left.
    fn release_echo(&self) {
        let now = self.driver.clock.now();
        if self.held.late_release().is_some_and(|at| now < at) {
            self.release_later(self.held.release(0, Ttl::USER_MIN), now);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        if self.driver.process.is_current() {
            let over = self.over();
            if let Some((request, Some(reply))) = self.leave(true) {
                self.see_through(request, reply, over);
            }
        } else {
            // What they do when they end, they would do to the lease of the other process.
            let shared = (
                Arc::clone(&self.driver),
                Arc::clone(&self.held),
                self.place.take(),
            );
            std::mem::forget(shared);
        }
    }
}

/// Whether a release frees the lock.
fn is_last(release: &Request) -> bool {
    matches!(release.op, Op::Release { count: 0, .. })
}

/// A token and the task that cancels it, which ends with this.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) token: CancellationToken,
    task: Option<AbortHandle>,
    process: Process,
}

impl Drop for Loss {
    fn drop(&mut self) {
        if let Some(task) = self.task.take()
            && self.process.is_current()
        {
            task.abort();
        }
    }
}

/// A release whose answer is not known yet.
struct Unfinished<'a> {
    hold: &'a Hold,
    request: Option<Request>,
    over: Instant,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.hold.release_later(request, self.over);
        }
    }
}
