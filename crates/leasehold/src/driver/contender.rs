//! Takes a lock: waits in the line of this process, and at its head in the queue of the store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::contention::{self, Backoff};
use leasehold_core::{HoldId, Instant};
use tokio::sync::oneshot;

use super::Driver;
use super::acquisition::{AcquireReply, Acquisition, Terms};
use super::active_lease::ActiveLease;
use super::hold::Hold;
use super::local_queue::{Entry, Head, QueueKind};
use super::sync::{lock, report};
use super::wakeup::{LastReply, Wakeup, WakeupReason};
use crate::store::{Key, Reply, Request, WakeupMode};
use crate::{Error, ErrorKind, Result};

/// The pause after the first refusal of a store that wakes nobody. Later ones grow to
/// [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(4);

/// The longest pause between two questions to such a store.
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Of how many locks a client keeps how far it spreads its requests. More are forgotten: it is learned
/// anew.
const BACKOFFS_MAX: usize = 4_096;

/// What a caller wants.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) key: Key,
    pub(crate) terms: Terms,
    pub(crate) wait: Wait,
}

/// How long a caller wants to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    No,
    Until(Instant),
    Forever,
}

/// What the queues of this process are made of.
#[derive(Debug)]
pub(crate) struct MutexQueues;

impl QueueKind for MutexQueues {
    type Key = Key;
    type Info = Terms;
    type HeadState = HeadState;
    type Turn = Turn;
}

/// What the head of a line is busy with.
#[derive(Clone, Debug)]
pub(crate) enum HeadState {
    Asking(Arc<Wakeup>),
    Holding(Weak<ActiveLease>),
}

/// What a task gets when its turn comes.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It asks the store from now on.
    Contend(Box<Contender>),
    /// It holds the lock: the lease was handed off.
    Hold(Hold),
}

impl From<Head<MutexQueues>> for Turn {
    fn from(head: Head<MutexQueues>) -> Self {
        Self::Contend(Box::new(Contender::new(Some(head))))
    }
}

/// Takes the lock. `None`: it is held by another, and the caller does not want to wait (any longer).
///
/// Dropped at any point, it leaves nothing held: what was asked for is released in the background.
pub(crate) async fn acquire(driver: &Arc<Driver>, ask: &Ask) -> Result<Option<Hold>> {
    let mut last = None;
    match ask.wait {
        Wait::No => {
            let head = driver.queues.enter_front(&ask.key);
            let past_the_line = head.is_none();
            if past_the_line && driver.holds(&ask.key) {
                return Ok(None);
            }
            let hold = Contender::new(head).contend(driver, ask, &mut last).await?;
            // Who is in line may not have asked yet: what was granted past it is given back.
            Ok(hold.filter(|_| !(past_the_line && driver.queues.is_open(&ask.key))))
        }
        Wait::Forever => line_up(driver, ask, &mut last).await,
        Wait::Until(end) => tokio::select! {
            biased;
            outcome = line_up(driver, ask, &mut last) => outcome,
            () = driver.clock.sleep_until(end) => {
                // Who was not at the head knows what the head knows.
                match last.or_else(|| driver.last_answer(&ask.key)) {
                    Some(LastReply::Refused) => Ok(None),
                    // "Nobody answered" is not "held by another".
                    Some(LastReply::Failed(error)) => Err(error),
                    None => {
                        let message = "the store did not answer within the time given";
                        let error = Error::new(ErrorKind::Unreachable, message);
                        Err(driver.name_error(error, &ask.key))
                    }
                }
            }
        },
    }
}

async fn line_up(
    driver: &Arc<Driver>,
    ask: &Ask,
    last: &mut Option<LastReply>,
) -> Result<Option<Hold>> {
    let contender = match driver.queues.enter(&ask.key, ask.terms) {
        Entry::Head(head) => Contender::new(Some(head)),
        Entry::QueuedTask(mut waiting) => {
            let came = driver.clock.now();
            match waiting.turn().await {
                Some(Turn::Hold(hold)) => return Ok(Some(hold)),
                Some(Turn::Contend(mut contender)) => {
                    let since = &mut contender.failing.silent_since;
                    *since = since.map(|since| since.max(came));
                    *last = driver.last_answer(&ask.key);
                    *contender
                }
                // The queues were closed.
                None => {
                    driver.open(&ask.key)?;
                    Contender::new(None)
                }
            }
        }
    };
    contender.contend(driver, ask, last).await
}

impl Driver {
    /// Whether this process holds the lock by what it knows.
    fn holds(&self, key: &Key) -> bool {
        match self.queues.busy(key) {
            Some(HeadState::Holding(held)) => held
                .upgrade()
                .is_some_and(|held| !held.lock().lease.state(self.clock.now()).is_lost()),
            _ => false,
        }
    }

    /// Reads or changes when this client asks for a lock, where the store leaves that to its clients.
    pub(super) fn back_off<T>(
        &self,
        key: &Key,
        change: impl FnOnce(&mut Backoff, Instant) -> T,
    ) -> Option<T> {
        if self.store.capabilities().idempotent_acquire {
            return None;
        }
        let now = self.clock.now();
        let mut backoffs = lock(&self.backoffs);
        let known = backoffs.get(key).copied();
        let mut backoff = known.unwrap_or_default();
        let changed = change(&mut backoff, now);
        if backoff == Backoff::default() {
            backoffs.remove(key);
        } else if known != Some(backoff) {
            if backoffs.len() >= BACKOFFS_MAX {
                backoffs.clear();
            }
            backoffs.insert(key.clone(), backoff);
        }
        Some(changed)
    }

    /// The error that the store answered last to those who wait for a lock.
    pub(crate) fn last_error(&self, key: &Key) -> Option<Error> {
        match self.last_answer(key)? {
            LastReply::Failed(error) => Some(error),
            LastReply::Refused => None,
        }
    }

    /// What the store answered last to the head of a line. A lock that the head holds is as good
    /// as a refusal.
    fn last_answer(&self, key: &Key) -> Option<LastReply> {
        match self.queues.busy(key)? {
            HeadState::Asking(wakeup) => wakeup.last(),
            HeadState::Holding(_) => Some(LastReply::Refused),
        }
    }
}

/// What became of one question.
enum Step {
    Granted((Arc<ActiveLease>, HoldId)),
    /// Ask again after this time, if nothing is told before.
    Refused(Duration),
    /// There is no use in asking again.
    Failed(Error),
    /// Nobody answered, or the store refuses for a while. Ask again after this time.
    Failing(Error, Duration),
}

/// How a store fails that was asked in vain.
#[derive(Clone, Copy, Debug, Default)]
struct Failing {
    /// Since when it has not done what it was asked for.
    since: Option<Instant>,
    /// Since when it has not said, either, when it will.
    silent_since: Option<Instant>,
    /// Whether it was reported that the store refuses until a known time.
    reported: bool,
}

/// The one task of a name and process that talks to the store, usually.
///
/// Dropped, it passes its place to the next in line, also the one in the store's queue.
#[derive(Debug)]
pub(crate) struct Contender {
    /// `None`: past the line, for one question.
    head: Option<Head<MutexQueues>>,
    acquisition: Option<Acquisition>,
    failing: Failing,
}

impl Contender {
    fn new(head: Option<Head<MutexQueues>>) -> Self {
        Self {
            head,
            acquisition: None,
            failing: Failing::default(),
        }
    }

    /// Asks the store until it grants, or until the caller does not want to wait.
    async fn contend(
        mut self,
        driver: &Arc<Driver>,
        ask: &Ask,
        last: &mut Option<LastReply>,
    ) -> Result<Option<Hold>> {
        // Who was at the head before has asked in vain for all the time that the caller waits.
        if let Some(LastReply::Failed(error)) = last
            && self.silent(driver, ask)
        {
            return Err(error.clone());
        }
        self.yield_turn(driver, ask, last).await;
        let mut pause = PAUSE_MIN;
        loop {
            driver.open(&ask.key)?;
            let span = match self.ask(driver, ask, pause).await {
                Step::Granted(lease) => return self.hold(driver, lease).map(Some),
                Step::Refused(_) if matches!(ask.wait, Wait::No) => return Ok(None),
                Step::Refused(span) => {
                    *last = Some(LastReply::Refused);
                    span
                }
                Step::Failed(error) => return Err(error),
                Step::Failing(error, span) => {
                    *last = Some(LastReply::Failed(error));
                    span
                }
            };
            if let (Some(answered), Some(acquisition)) = (last.clone(), &self.acquisition) {
                acquisition.wakeup.answered(answered);
            }
            if let Some(lease) = self.wait(driver, &ask.key, span).await {
                return self.hold(driver, lease).map(Some);
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Leaves the lock to others for a moment, if this client has had it for a turn.
    async fn yield_turn(&mut self, driver: &Arc<Driver>, ask: &Ask, last: &mut Option<LastReply>) {
        let pause = match ask.wait {
            Wait::No => None,
            _ => driver.back_off(&ask.key, Backoff::pause),
        };
        let Some(pause) = pause.filter(|pause| !pause.is_zero()) else {
            return;
        };
        // For a caller whose time ends meanwhile, as long as nobody asks.
        *last = Some(LastReply::Refused);
        let wakeup = &self.acquisition(driver, ask).wakeup;
        wakeup.answered(LastReply::Refused);
        let end = driver.clock.now().after(pause);
        driver.clock.sleep_until(end).await;
    }

    /// Asks the store once.
    async fn ask(&mut self, driver: &Arc<Driver>, ask: &Ask, pause: Duration) -> Step {
        let begun = driver.clock.now();
        let acquisition = self.acquisition(driver, ask);
        let answer = acquisition.ask(!matches!(ask.wait, Wait::No)).await;
        let round = driver.clock.now().since(begun);
        match answer {
            AcquireReply::Granted { sent, first } => match acquisition.accept(sent, first) {
                Some(lease) => {
                    driver.back_off(&ask.key, Backoff::won);
                    Step::Granted(lease)
                }
                None => {
                    self.acquisition = None;
                    let message = "the grant came too late to be of use";
                    let error = Error::new(ErrorKind::Unreachable, message);
                    self.failing(driver, ask, sent, driver.name_error(error, &ask.key))
                }
            },
            AcquireReply::Refused { left, place } => {
                // If nobody holds it, whoever was refused with us lets go, too.
                acquisition
                    .wakeup
                    .heed_changes(place.is_none() && !left.is_zero());
                self.failing = Failing::default();
                let ttl = ask.terms.ttl();
                Step::Refused(match (place, driver.store.capabilities().wakeup) {
                    (Some(place), _) => contention::ask_again_after(left, place, ttl),
                    (None, WakeupMode::Changes)
                        if driver.store.capabilities().idempotent_acquire =>
                    {
                        contention::ask_again_after(left, 0, ttl)
                    }
                    // Several have won a part each.
                    (None, WakeupMode::Changes) if left.is_zero() => {
                        let window = driver.back_off(&ask.key, |backoff, now| {
                            backoff.split(round, now);
                            backoff.window()
                        });
                        driver.random_part_of(window.unwrap_or_default())
                    }
                    (None, WakeupMode::Changes) => {
                        driver.back_off(&ask.key, |backoff, now| backoff.refused(round, now));
                        driver.part_of(contention::ask_again_after(left, 0, ttl))
                    }
                    (None, _) => driver.part_of(left.min(pause)),
                })
            }
            AcquireReply::Failed { error, .. } if !error.is_transient() => Step::Failed(error),
            AcquireReply::Failed { sent, error } => {
                if acquisition.is_over(driver.clock.now()) {
                    self.acquisition = None;
                }
                self.failing(driver, ask, sent, error)
            }
        }
    }

    /// Nobody answered a question in time, or the store refuses for a while: whether to go on.
    fn failing(&mut self, driver: &Driver, ask: &Ask, sent: Instant, error: Error) -> Step {
        let since = *self.failing.since.get_or_insert(sent);
        // A single loss of the connection is fixed by asking again.
        let known_end = error.retry_after().is_some();
        if matches!(ask.wait, Wait::No) && (since != sent || known_end) {
            return Step::Failed(error);
        }
        let pause = contention::retry_after(driver.clock.now().since(since));
        let Some(left) = error.retry_after() else {
            self.failing.silent_since.get_or_insert(sent);
            return match self.silent(driver, ask) {
                true => Step::Failed(error),
                false => Step::Failing(error, driver.part_of(pause)),
            };
        };
        // An answer with an end is waited for, however far that is.
        self.failing.silent_since = None;
        if !self.failing.reported {
            self.failing.reported = true;
            report(|| tracing::warn!(%error, "the store grants no lock yet; waiting"));
        }
        // Not all of those who wait for the same end ask at once.
        Step::Failing(
            error,
            driver.part_of(pause).min(left + driver.part_of(PAUSE_MAX)),
        )
    }

    /// Whether nobody has answered for a whole ttl.
    fn silent(&self, driver: &Driver, ask: &Ask) -> bool {
        let ttl = ask.terms.policy.ttl.as_duration();
        let now = driver.clock.now();
        self.failing
            .silent_since
            .is_some_and(|since| now.since(since) >= ttl)
    }

    /// Waits until there is a reason to ask again, or the grant was told.
    async fn wait(
        &mut self,
        driver: &Driver,
        key: &Key,
        span: Duration,
    ) -> Option<(Arc<ActiveLease>, HoldId)> {
        let mut until = driver.clock.now().after(span);
        let Some(acquisition) = &mut self.acquisition else {
            driver.clock.sleep_until(until).await;
            return None;
        };
        let wakeup = Arc::clone(&acquisition.wakeup);
        let mut changed = false;
        loop {
            tokio::select! {
                biased;
                news = wakeup.news() => match news {
                    WakeupReason::Granted(told) => return acquisition.accept_told(told),
                    WakeupReason::AskAgain => return None,
                    // A second change draws no other instant: it would be an earlier one.
                    WakeupReason::Changed if changed => {}
                    WakeupReason::Changed => {
                        changed = true;
                        let window =
                            driver.back_off(key, |backoff, now| backoff.window_after_change(now));
                        let span = driver.random_part_of(window.unwrap_or_default());
                        until = until.min(driver.clock.now().after(span));
                    }
                    WakeupReason::AskAt(at) => until = until.min(at),
                },
                () = driver.clock.sleep_until(until) => return None,
            }
        }
    }

    /// The acquisition that is under way, if it is for the same terms, or a new one.
    fn acquisition(&mut self, driver: &Arc<Driver>, ask: &Ask) -> &mut Acquisition {
        let head = &self.head;
        self.acquisition.get_or_insert_with(|| {
            let mut acquisition = Acquisition::new(driver, &ask.key, ask.terms);
            if let Some(last) = driver.last_answer(&ask.key) {
                acquisition.wakeup.answered(last);
            }
            let busy = HeadState::Asking(Arc::clone(&acquisition.wakeup));
            if head.as_ref().is_some_and(|head| head.set_busy(busy)) {
                acquisition.reserve_tokens();
            }
            acquisition
        })
    }

    fn hold(
        mut self,
        driver: &Arc<Driver>,
        (held, id): (Arc<ActiveLease>, HoldId),
    ) -> Result<Hold> {
        let wakeup = self
            .acquisition
            .take()
            .map(|acquisition| Arc::clone(&acquisition.wakeup));
        if let Some(head) = self.head.take() {
            head.set_busy(HeadState::Holding(Arc::downgrade(&held)));
            held.lock().head = Some(head);
        }
        let hold = Hold::begin(driver, held, id);
        // Shut down in the meantime: it is released again.
        driver.open(&hold.held.key)?;
        // PushedGrant behind the grant, and before the lease was one to be doubted: the connection broke, or
        // the record was changed.
        if wakeup.is_some_and(|wakeup| wakeup.is_unsure()) {
            driver.renewer.check(&hold.held);
        }
        Ok(hold)
    }

    /// Lets the next in line ask, in one round trip with the release of the lease before: whoever
    /// waits elsewhere comes first. Answers the reply to the release; `None` if nobody waits here.
    pub(super) fn follow(
        driver: &Arc<Driver>,
        head: Head<MutexQueues>,
        key: &Key,
        release: &Request,
    ) -> Option<oneshot::Receiver<Reply>> {
        let mut acquisition = None;
        let next = head.next(|terms, followed| {
            let mut first = Acquisition::new(driver, key, *terms);
            if followed {
                first.reserve_tokens();
            }
            // This process held it until now.
            first.wakeup.answered(LastReply::Refused);
            let busy = HeadState::Asking(Arc::clone(&first.wakeup));
            acquisition = Some(first);
            Some(busy)
        });
        let ((head, next), mut acquisition) = next.zip(acquisition)?;
        let released = acquisition.post_after(release.clone());
        let mut contender = Self::new(Some(head));
        contender.acquisition = Some(acquisition);
        // If it has left in this moment, its turn goes on to the next.
        drop(next.give(Turn::Contend(Box::new(contender))));
        Some(released)
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let Some(head) = self.head.take() else {
            return;
        };
        let mut acquisition = self.acquisition.take();
        let next = head.next(|terms, _| {
            acquisition = acquisition
                .take()
                .filter(|acquisition| acquisition.is_waiting() && acquisition.terms == *terms);
            let wakeup = &acquisition.as_ref()?.wakeup;
            Some(HeadState::Asking(Arc::clone(wakeup)))
        });
        if let Some((head, next)) = next {
            let contender = Self {
                head: Some(head),
                acquisition,
                failing: self.failing,
            };
            drop(next.give(Turn::Contend(Box::new(contender))));
        }
    }
}
