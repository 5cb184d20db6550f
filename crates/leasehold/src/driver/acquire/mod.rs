//! Acquires a lock: waits in the queue of this process, and at its head in the queue of the store.
//!
//! The protocol is [`leasehold_core::acquisition`]. A [`Contender`] is its host: it sends the requests, reads
//! the clock, draws the random numbers, and sleeps in [`wakeup`].

mod attempt;
pub(crate) mod reenter;
pub(crate) mod several;
pub(crate) mod wakeup;

use std::pin::pin;
use std::sync::Arc;

use leasehold_core::acquisition::{
    self, AcquireAction, AcquireReply, Acquisition, Failure, GrantedLease,
};
use leasehold_core::record::Run;
use leasehold_core::{Annotation, Instant, Op, Outcome, StoreTime, TokenCount};
use tokio::sync::oneshot;

use self::attempt::try_acquire;
use self::wakeup::{LastReply, SharedAcquisition};
use super::active_lease::ActiveLease;
use super::batcher;
use super::context::AcquireOptions;
use super::hold::Hold;
use super::local_queue::{Entry, Head};
use super::primitives::report;
use super::{Driver, HeadState, LeaseQueues, Turn, release, shares};
use crate::store::{Key, Reply, Request, Shard, WakeupMode};
use crate::{Error, ErrorKind, Result};

/// A lock that a caller wants.
#[derive(Debug)]
pub(crate) struct AcquireRequest {
    pub(crate) key: Key,
    pub(crate) options: AcquireOptions,
    pub(crate) wait: Wait,
    /// When the caller began to wait.
    pub(crate) since: Instant,
}

/// How long a caller waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    No,
    Until(Instant),
    Forever,
}

/// The result of an acquisition.
pub(crate) enum Acquired {
    /// The lock is held: for the run that was asked for, with the store's time of the grant.
    Held(Hold, Option<(Run, StoreTime)>),
    /// The run that was asked for is complete.
    Complete(Annotation),
    /// Another holds the lock, and the caller does not wait (any longer).
    Refused,
}

/// Acquires a lock.
///
/// If the future is dropped at any point, nothing stays held: what was requested is released in the
/// background.
pub(crate) async fn acquire(driver: &Arc<Driver>, request: &AcquireRequest) -> Result<Acquired> {
    // Before anything is waited for: in a fork of the process, no task runs.
    driver.check_open(&request.key)?;
    if let Some(hold) = shares::join(driver, &request.key, &request.options) {
        return Ok(Acquired::Held(hold, None));
    }
    if let Wait::No = request.wait {
        return try_acquire(driver, request).await;
    }
    // Pinned here, so that it is copied nowhere.
    let mut acquired = pin!(acquire_in_turn(driver, request));
    let Wait::Until(end) = request.wait else {
        return acquired.await;
    };
    tokio::select! {
        biased;
        acquired = &mut acquired => return acquired,
        () = driver.context.clock.sleep_until(end) => {}
    }
    // Before this caller leaves the queue: it may be the head, which knows what the store replied last.
    match driver.last_reply(request.options.claim.kind(), &request.key) {
        Some(LastReply::Refused) => Ok(Acquired::Refused),
        // A store that does not reply is not a refusal.
        Some(LastReply::Failed(error)) => Err(error),
        None => Err(no_reply_in_time(driver, &request.key)),
    }
}

/// Joins the queue of this process, and contends at its head.
async fn acquire_in_turn(driver: &Arc<Driver>, request: &AcquireRequest) -> Result<Acquired> {
    let AcquireRequest { key, options, .. } = request;
    loop {
        let queues = driver.queues.of(options.claim.kind());
        let turn = match queues.enter(key, options.clone()) {
            Entry::Head(head) => Some(Turn::Head(head)),
            Entry::QueuedTask(mut waiting) => waiting.wait().await,
        };
        // Those before this task may have a read lease by now.
        if let Some(Turn::Head(_) | Turn::Contend(_)) = turn
            && let Some(hold) = shares::join(driver, key, options)
        {
            return Ok(Acquired::Held(hold, None));
        }
        let contender = match turn {
            Some(Turn::Hold(hold)) => return Ok(Acquired::Held(hold, None)),
            Some(Turn::Head(head)) => Contender::new(driver, key, options, Some(head), true),
            Some(Turn::Contend(contender)) => {
                contender.take_over(request.since)?;
                *contender
            }
            Some(Turn::Ask) => match ask(driver, request).await {
                Ok(Acquired::Refused) => continue,
                Err(error) if error.is_transient() => continue,
                asked => return asked,
            },
            // The queues were closed.
            None => {
                driver.check_open(key)?;
                Contender::new(driver, key, options, None, true)
            }
        };
        return Box::pin(contender.run()).await;
    }
}

fn no_reply_in_time(driver: &Driver, key: &Key) -> Error {
    let message = "no reply from the store within the time limit";
    let error = Error::new(ErrorKind::Unreachable, message);
    driver.context.name_error(error, key)
}

/// Asks the store for the run of a task that has left the queue, because a run of its slot was completed.
async fn ask(driver: &Arc<Driver>, request: &AcquireRequest) -> Result<Acquired> {
    let contender = Contender::new(driver, &request.key, &request.options, None, false);
    let _call = driver.releases.call();
    Box::pin(contender.run()).await
}

/// The task at the head of a local queue, which sends its requests to the store.
///
/// When it is dropped, the next task takes over, and keeps the position in the store's queue.
pub(crate) struct Contender {
    driver: Arc<Driver>,
    key: Key,
    /// `None`: past the queue, or passed on with the lease.
    head: Option<Head<LeaseQueues>>,
    acquisition: Arc<SharedAcquisition>,
    /// The request in flight, if it was sent before the contender got its turn.
    posted: Option<(Shard, oneshot::Receiver<Reply>)>,
    /// Whether it was reported that the store refuses requests until a known time.
    reported: bool,
}

impl Contender {
    /// A contender with a new acquisition, which becomes the state of the head. If the caller does not wait, the first
    /// refusal is final.
    fn new(
        driver: &Arc<Driver>,
        key: &Key,
        options: &AcquireOptions,
        head: Option<Head<LeaseQueues>>,
        waits: bool,
    ) -> Self {
        let (backoff, now) = (driver.backoff(key), driver.context.clock.now());
        let machine = Acquisition::new(machine_options(driver, options, waits), backoff, now);
        let acquisition = Arc::new(SharedAcquisition::new(options.clone(), machine, None));
        {
            // Locked until it has the last reply to the head before it: a task whose wait ends reads that.
            let mut new = acquisition.lock();
            let state = HeadState::Acquiring(Arc::clone(&acquisition));
            let before = head.as_ref().and_then(|head| head.set_state(state));
            new.last = before.and_then(|state| state.last_reply());
        }
        Self {
            driver: Arc::clone(driver),
            key: key.clone(),
            head,
            acquisition,
            posted: None,
            reported: false,
        }
    }

    /// Takes over the turn of another caller, for a caller that has waited since then.
    ///
    /// # Errors
    ///
    /// The last failure, if the store has not replied for as long as the caller waits, and for a ttl.
    fn take_over(&self, since: Instant) -> Result<()> {
        let now = self.driver.context.clock.now();
        let mut state = self.acquisition.lock();
        state.machine.take_over(since);
        match &state.last {
            Some(LastReply::Failed(error)) if state.machine.is_silent(now) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Sends requests until the lock is granted, or until the caller does not wait (any longer).
    ///
    /// Its callers box it, because the futures around it are copied to where they are polled, even for a task that is
    /// handed a lease.
    async fn run(mut self) -> Result<Acquired> {
        let (driver, acquisition) = (Arc::clone(&self.driver), Arc::clone(&self.acquisition));
        let (clock, options) = (&*driver.context.clock, &acquisition.options);
        if let Some((shard, posted)) = self.posted.take() {
            let reply = batcher::reply_to(posted).await;
            self.handle_reply(shard, reply);
        }
        loop {
            driver.check_shutdown(&self.key)?;
            let (now, shard) = (clock.now(), driver.context.shard(&self.key));
            let (action, call) = {
                let mut acquisition = acquisition.lock();
                let action = acquisition.machine.poll(now, shard.0);
                // A shutdown finds the lease in the acquisition, or waits for its hold.
                let is_granted = matches!(action, AcquireAction::Granted(_));
                (action, is_granted.then(|| driver.releases.call()))
            };
            match action {
                AcquireAction::NewLease => self.start(),
                AcquireAction::Acquire(op) => {
                    driver.check_open(&self.key)?;
                    report(|| tracing::debug!(lock = self.key.name.as_str(), "lock requested"));
                    tokio::select! {
                        biased;
                        reply = driver.batcher.submit(self.request(op)) => {
                            self.handle_reply(shard, reply);
                        }
                        () = acquisition.given_up(clock) => return Err(self.last_failure()),
                    }
                }
                AcquireAction::Wait => {
                    // Before the first request, the lock is left to other clients for a moment.
                    if acquisition.last_reply().is_none() {
                        self.note(LastReply::Refused);
                    }
                    tokio::select! {
                        biased;
                        () = acquisition.sleep(clock) => {}
                        () = acquisition.given_up(clock) => return Err(self.last_failure()),
                    }
                }
                AcquireAction::Granted(mut granted) => {
                    let run = granted.run.take();
                    let hold = self.hold(granted)?;
                    drop(call);
                    return match run {
                        Some(_) => Ok(Acquired::Held(hold, run)),
                        None => reenter::decide(hold, options).await,
                    };
                }
                AcquireAction::Complete(note) => {
                    if let Some(run) = &options.run {
                        driver.notify_completed(&self.key, &run.unless.slot());
                    }
                    return Ok(Acquired::Complete(note));
                }
                AcquireAction::Release(abandoned) => {
                    release::abandon(&driver, self.key.clone(), abandoned, options.durability);
                }
                AcquireAction::GrantExpired => {
                    self.note(LastReply::Failed(self.grant_expired()));
                }
                AcquireAction::Refused => return Ok(Acquired::Refused),
                AcquireAction::Failed => return Err(self.last_failure()),
            }
        }
    }

    /// Names a new lease id for the next requests. If others of this process wait behind it, the lease is handed off to
    /// them, each time with a larger token.
    fn start(&self) {
        // A lease on a lock that others may also hold is not handed off.
        let hands_off = !self.acquisition.options.is_shared();
        let followed = self.head.as_ref().is_some_and(Head::is_followed);
        let tokens = match hands_off && followed {
            true => self.driver.handoff.tokens(),
            false => TokenCount::MIN,
        };
        let lease = self.driver.next_lease();
        self.acquisition.lock().machine.start(lease, tokens);
    }

    /// Starts the acquisition. Returns its first request, and the shard that it is for, unless that is not due yet.
    fn first_request(&self) -> Option<(Shard, Request)> {
        let context = &self.driver.context;
        let (now, shard) = (context.clock.now(), context.shard(&self.key));
        self.start();
        let action = self.acquisition.lock().machine.poll(now, shard.0);
        match action {
            AcquireAction::Acquire(op) => Some((shard, self.request(op))),
            _ => None,
        }
    }

    fn grant_expired(&self) -> Error {
        let message = "the grant came too late to be of use";
        self.name_error(Error::new(ErrorKind::Unreachable, message))
    }

    /// The failure with which the store replied last.
    fn last_failure(&self) -> Error {
        match self.acquisition.last_reply() {
            Some(LastReply::Failed(error)) => error,
            _ => self.name_error(unexpected("nothing")),
        }
    }

    fn request(&self, op: Op) -> Request {
        Request::new(self.key.clone(), op).durability(self.acquisition.options.durability)
    }

    /// Processes the reply to a request that was sent to `shard`.
    fn handle_reply(&mut self, shard: Shard, reply: Reply) {
        let failed = |error| Some(LastReply::Failed(self.name_error(error)));
        let (reply, noted) = match reply {
            Reply::Applied {
                outcome,
                now: Some(now),
            } => {
                let noted = match &outcome {
                    Outcome::Granted { .. } | Outcome::Complete(_) => None,
                    Outcome::Refused { queue_position, .. } => {
                        if queue_position.is_some() {
                            self.publish_client_info();
                        }
                        Some(LastReply::Refused)
                    }
                    Outcome::GrantedInPart { .. } => Some(LastReply::Refused),
                    Outcome::Exhausted => failed(Error::new(
                        ErrorKind::Store,
                        "its token counter is used up: something else has written it; \
                         delete the counter to start anew from the clock",
                    )),
                    other => failed(unexpected(&format!("{other:?}"))),
                };
                (self.applied(outcome, now, shard), noted)
            }
            Reply::Applied { now: None, .. } => {
                let error = unexpected("no time");
                (AcquireReply::Unknown(failure(&error)), failed(error))
            }
            Reply::Rejected(error) => (AcquireReply::Rejected(failure(&error)), failed(error)),
            Reply::Unknown(error) => (AcquireReply::Unknown(failure(&error)), failed(error)),
        };
        if let Some(noted) = noted {
            self.note(noted);
        }
        let now = self.driver.context.clock.now();
        let machine = &mut self.acquisition.lock().machine;
        machine.handle_reply(reply, now, fastrand::f64());
        if !machine.options().idempotent {
            self.driver.set_backoff(&self.key, machine.backoff());
        }
    }

    fn applied(&self, outcome: Outcome, now: StoreTime, shard: Shard) -> AcquireReply {
        let context = &self.driver.context;
        let refused = matches!(
            outcome,
            Outcome::Refused { .. } | Outcome::GrantedInPart { .. }
        );
        AcquireReply::Applied {
            outcome,
            now,
            // If the record moved meanwhile, the clock of that time is unknown.
            shard: (refused && context.shard(&self.key) == shard).then_some(shard.0),
            notifies_changes: refused && context.store.capabilities().wakeup == WakeupMode::Changes,
        }
    }

    /// Publishes the client info of a client that waits in the queue of the store, so that people can see it there.
    fn publish_client_info(&self) {
        let ttl = self.acquisition.options.lease.ttl().as_duration();
        self.driver.presence.extend(&self.driver.context, ttl);
    }

    /// Notes the reply of the store, for this caller and for those that wait behind it.
    fn note(&mut self, reply: LastReply) {
        let mut state = self.acquisition.lock();
        let waits = state.machine.options().wait;
        state.last = Some(reply.clone());
        drop(state);
        match reply {
            LastReply::Refused => self.reported = false,
            LastReply::Failed(error) if waits && !self.reported => {
                self.reported = matches!(failure(&error), Failure::Until(_));
                if self.reported {
                    report(|| tracing::warn!(%error, "the store grants no lock yet; waiting"));
                }
            }
            LastReply::Failed(_) => {}
        }
    }

    fn name_error(&self, error: Error) -> Error {
        self.driver.context.name_error(error, &self.key)
    }

    /// The hold on a lease that was granted.
    fn hold(mut self, granted: GrantedLease) -> Result<Hold> {
        let (driver, acquisition) = (&self.driver, &self.acquisition);
        let options = &acquisition.options;
        let (hold, now) = (granted.hold, driver.context.clock.now());
        let key = self.key.clone();
        let (handoff, lost) = (driver.handoff, Arc::clone(&driver.lost));
        let mut lease = ActiveLease::new(key, granted, options.durability, handoff, lost, now);
        if options.is_shared() {
            lease.share = Some(Box::new(acquisition.lock().machine.numbering()));
        }
        let lease = Arc::new(lease);
        report(|| {
            let (lock, id, token) = (self.key.name.as_str(), lease.id, lease.first);
            tracing::debug!(lock, lease = %id, %token, "lock granted");
        });
        // A head that the lease does not keep passes on at the end, and the next task begins an acquisition of its own.
        let mut head = self.head.take();
        if lease.is_shared() {
            driver.shares.begin(&lease, options, now);
        } else if let Some(head) = head.take() {
            head.set_state(HeadState::Holding(Arc::downgrade(&lease)));
            lease.lock().head = Some(head);
        }
        let hold = Hold::begin(driver, lease, hold, now);
        if options.is_reader() && head.as_ref().is_some_and(Head::is_followed) {
            // Those behind it find the lease even if this hold ends before they are polled.
            drop(shares::join(driver, &self.key, options));
        }
        // The client was shut down meanwhile: the hold is dropped, which releases it.
        driver.check_shutdown(&self.key)?;
        // A notice that came after the grant, but before there was a lease, casts doubt on the lease.
        if acquisition.lock().machine.is_in_doubt() {
            driver.renewer.check(&hold.lease);
        }
        Ok(hold)
    }

    /// Leaves the queue of the store, and releases what may have been granted.
    fn abandon(&self) {
        let abandoned = self.acquisition.lock().machine.abandon();
        if let Some(abandoned) = abandoned {
            let durability = self.acquisition.options.durability;
            release::abandon(&self.driver, self.key.clone(), abandoned, durability);
        }
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let driver = Arc::clone(&self.driver);
        // It begins before the acquisition leaves the queue, so a shutdown waits for the release.
        let _call = driver.releases.call();
        let Some((head, next)) = self.head.take().and_then(Head::next) else {
            return self.abandon();
        };
        let acquisition = &self.acquisition;
        let queued = acquisition.lock().machine.is_queued();
        let acquisition = if queued && acquisition.options == next.info {
            Arc::clone(acquisition)
        } else {
            // The next request must not overtake the release.
            self.abandon();
            let options = machine_options(&self.driver, &next.info, true);
            let now = self.driver.context.clock.now();
            let successor = Arc::new(acquisition.successor(next.info.clone(), options, now));
            head.set_state(HeadState::Acquiring(Arc::clone(&successor)));
            successor
        };
        let contender = Self {
            driver: Arc::clone(&driver),
            key: self.key.clone(),
            head: Some(head),
            acquisition,
            posted: None,
            reported: self.reported,
        };
        // A task that was cancelled meanwhile drops the turn again, which passes it on to the next.
        drop(next.wake(Turn::Contend(Box::new(contender))));
    }
}

impl Head<LeaseQueues> {
    /// Lets the next task in the queue contend, in one round trip with the release of the lease before it:
    /// the waiters of other processes come first. Returns the reply to the release. `None`: the queue is empty.
    pub(crate) fn follow(
        self,
        driver: &Arc<Driver>,
        key: &Key,
        release: impl FnOnce() -> Request,
    ) -> Option<oneshot::Receiver<Reply>> {
        let (head, next) = self.next()?;
        let mut contender = Contender::new(driver, key, &next.info, Some(head), true);
        let released = match contender.first_request() {
            Some((shard, acquire)) => {
                let [released, posted] = driver.batcher.post_both([release(), acquire]);
                contender.posted = Some((shard, posted));
                released
            }
            None => driver.batcher.post(release()),
        };
        // A shutdown that has begun may not have found the request: dropped here, the contender releases it.
        if driver.check_shutdown(key).is_ok() {
            // If the task was cancelled meanwhile, its turn passes on to the next.
            drop(next.wake(Turn::Contend(Box::new(contender))));
        }
        Some(released)
    }
}

fn machine_options(
    driver: &Driver,
    options: &AcquireOptions,
    wait: bool,
) -> acquisition::AcquisitionOptions {
    acquisition::AcquisitionOptions {
        lease: options.lease,
        claim: options.claim,
        run: options.run.clone(),
        wait,
        replicated: options.durability.is_replicated(),
        idempotent: driver.context.idempotent,
        longest_poll: driver.context.longest_poll,
    }
}

fn failure(error: &Error) -> Failure {
    match error.retry_after() {
        _ if !error.is_transient() => Failure::Permanent,
        Some(left) => Failure::Until(left),
        None => Failure::Transient,
    }
}

fn unexpected(reply: &str) -> Error {
    Error::new(
        ErrorKind::Store,
        format!("the store replied to an acquire with {reply}"),
    )
}
