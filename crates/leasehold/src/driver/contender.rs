//! Takes a lock: waits in the line of this process, and at its front in the queue of the store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::contention::{self, Backoff};
use leasehold_core::{HoldId, Instant};
use tokio::sync::oneshot;

use super::Driver;
use super::attempt::{Answer, Attempt, Terms};
use super::held::Held;
use super::hold::Hold;
use super::lines::{Entered, Front, Kind};
use super::primitives::{lock, tell};
use super::slot::{Answered, News, Slot};
use crate::store::{Key, Reply, Request, Wakes};
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

/// What the lines of this process are made of.
#[derive(Debug)]
pub(crate) struct Mutexes;

impl Kind for Mutexes {
    type Key = Key;
    type About = Terms;
    type Busy = Busy;
    type Turn = Turn;
}

/// What the front of a line is busy with.
#[derive(Clone, Debug)]
pub(crate) enum Busy {
    Asking(Arc<Slot>),
    Holding(Weak<Held>),
}

/// What a task gets when its turn comes.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It asks the store from now on.
    Contend(Box<Contender>),
    /// It holds the lock: the lease was handed off.
    Hold(Hold),
}

impl From<Front<Mutexes>> for Turn {
    fn from(front: Front<Mutexes>) -> Self {
        Self::Contend(Box::new(Contender::new(Some(front))))
    }
}

/// Takes the lock. `None`: it is held by another, and the caller does not want to wait (any longer).
///
/// Dropped at any point, it leaves nothing held: what was asked for is released in the background.
pub(crate) async fn acquire(driver: &Arc<Driver>, ask: &Ask) -> Result<Option<Hold>> {
    let mut last = None;
    match ask.wait {
        Wait::No => {
            let front = driver.lines.enter_front(&ask.key);
            let past_the_line = front.is_none();
            if past_the_line && driver.holds(&ask.key) {
                return Ok(None);
            }
            let hold = Contender::new(front)
                .contend(driver, ask, &mut last)
                .await?;
            // Who is in line may not have asked yet: what was granted past it is given back.
            Ok(hold.filter(|_| !(past_the_line && driver.lines.is_open(&ask.key))))
        }
        Wait::Forever => line_up(driver, ask, &mut last).await,
        Wait::Until(end) => tokio::select! {
            biased;
            outcome = line_up(driver, ask, &mut last) => outcome,
            () = driver.clock.sleep_until(end) => {
                // Who was not at the front knows what the front knows.
                match last.or_else(|| driver.last_answer(&ask.key)) {
                    Some(Answered::Refused) => Ok(None),
                    // "Nobody answered" is not "held by another".
                    Some(Answered::Failed(error)) => Err(error),
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
    last: &mut Option<Answered>,
) -> Result<Option<Hold>> {
    let contender = match driver.lines.enter(&ask.key, ask.terms) {
        Entered::Front(front) => Contender::new(Some(front)),
        Entered::Waiting(mut waiting) => {
            let came = driver.clock.now();
            match waiting.turn().await {
                Some(Turn::Hold(hold)) => return Ok(Some(hold)),
                Some(Turn::Contend(mut contender)) => {
                    let since = &mut contender.failing.silent_since;
                    *since = since.map(|since| since.max(came));
                    *last = driver.last_answer(&ask.key);
                    *contender
                }
                // The lines were closed.
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
        match self.lines.busy(key) {
            Some(Busy::Holding(held)) => held
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
        if self.store.asks_again() {
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
            Answered::Failed(error) => Some(error),
            Answered::Refused => None,
        }
    }

    /// What the store answered last to the front of a line. A lock that the front holds is as good
    /// as a refusal.
    fn last_answer(&self, key: &Key) -> Option<Answered> {
        match self.lines.busy(key)? {
            Busy::Asking(slot) => slot.last(),
            Busy::Holding(_) => Some(Answered::Refused),
        }
    }
}

/// What became of one question.
enum Step {
    Granted((Arc<Held>, HoldId)),
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
    front: Option<Front<Mutexes>>,
    attempt: Option<Attempt>,
    failing: Failing,
}

impl Contender {
    fn new(front: Option<Front<Mutexes>>) -> Self {
        Self {
            front,
            attempt: None,
            failing: Failing::default(),
        }
    }

    /// Asks the store until it grants, or until the caller does not want to wait.
    async fn contend(
        mut self,
        driver: &Arc<Driver>,
        ask: &Ask,
        last: &mut Option<Answered>,
    ) -> Result<Option<Hold>> {
        // Who was at the front before has asked in vain for all the time that the caller waits.
        if let Some(Answered::Failed(error)) = last
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
                    *last = Some(Answered::Refused);
                    span
                }
                Step::Failed(error) => return Err(error),
                Step::Failing(error, span) => {
                    *last = Some(Answered::Failed(error));
                    span
                }
            };
            if let (Some(answered), Some(attempt)) = (last.clone(), &self.attempt) {
                attempt.slot.answered(answered);
            }
            if let Some(lease) = self.wait(driver, &ask.key, span).await {
                return self.hold(driver, lease).map(Some);
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Leaves the lock to others for a moment, if this client has had it for a turn.
    async fn yield_turn(&mut self, driver: &Arc<Driver>, ask: &Ask, last: &mut Option<Answered>) {
        let pause = match ask.wait {
            Wait::No => None,
            _ => driver.back_off(&ask.key, Backoff::pause),
        };
        let Some(pause) = pause.filter(|pause| !pause.is_zero()) else {
            return;
        };
        // For a caller whose time ends meanwhile, as long as nobody asks.
        *last = Some(Answered::Refused);
        let slot = &self.attempt(driver, ask).slot;
        slot.answered(Answered::Refused);
        let end = driver.clock.now().after(pause);
        driver.clock.sleep_until(end).await;
    }

    /// Asks the store once.
    async fn ask(&mut self, driver: &Arc<Driver>, ask: &Ask, pause: Duration) -> Step {
        let begun = driver.clock.now();
        let attempt = self.attempt(driver, ask);
        let answer = attempt.ask(!matches!(ask.wait, Wait::No)).await;
        let round = driver.clock.now().since(begun);
        match answer {
            Answer::Granted { sent, first } => match attempt.accept(sent, first) {
                Some(lease) => {
                    driver.back_off(&ask.key, Backoff::won);
                    Step::Granted(lease)
                }
                None => {
                    self.attempt = None;
                    let message = "the grant came too late to be of use";
                    let error = Error::new(ErrorKind::Unreachable, message);
                    self.failing(driver, ask, sent, driver.name_error(error, &ask.key))
                }
            },
            Answer::Refused { left, place } => {
                // If nobody holds it, whoever was refused with us lets go, too.
                attempt
                    .slot
                    .heed_changes(place.is_none() && !left.is_zero());
                self.failing = Failing::default();
                let ttl = ask.terms.ttl();
                Step::Refused(match (place, driver.store.wakes()) {
                    (Some(place), _) => contention::ask_again_after(left, place, ttl),
                    (None, Wakes::Changes) if driver.store.asks_again() => {
                        contention::ask_again_after(left, 0, ttl)
                    }
                    // Several have won a part each.
                    (None, Wakes::Changes) if left.is_zero() => {
                        let window = driver.back_off(&ask.key, |backoff, now| {
                            backoff.split(round, now);
                            backoff.window()
                        });
                        driver.random_part_of(window.unwrap_or_default())
                    }
                    (None, Wakes::Changes) => {
                        driver.back_off(&ask.key, |backoff, now| backoff.refused(round, now));
                        driver.part_of(contention::ask_again_after(left, 0, ttl))
                    }
                    (None, _) => driver.part_of(left.min(pause)),
                })
            }
            Answer::Failed { error, .. } if !error.is_transient() => Step::Failed(error),
            Answer::Failed { sent, error } => {
                if attempt.is_over(driver.clock.now()) {
                    self.attempt = None;
                }
                self.failing(driver, ask, sent, error)
            }
        }
    }

    /// Nobody answered a question in time, or the store refuses for a while: whether to go on.
    fn failing(&mut self, driver: &Driver, ask: &Ask, sent: Instant, error: Error) -> Step {
        let since = *self.failing.since.get_or_insert(sent);
        // A single loss of the connection is mended by asking again.
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
            tell(|| tracing::warn!(%error, "the store grants no lock yet; waiting"));
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
    ) -> Option<(Arc<Held>, HoldId)> {
        let mut until = driver.clock.now().after(span);
        let Some(attempt) = &mut self.attempt else {
            driver.clock.sleep_until(until).await;
            return None;
        };
        let slot = Arc::clone(&attempt.slot);
        let mut changed = false;
        loop {
            tokio::select! {
                biased;
                news = slot.news() => match news {
                    News::Granted(told) => return attempt.accept_told(told),
                    News::AskAgain => return None,
                    // A second change draws no other instant: it would be an earlier one.
                    News::Changed if changed => {}
                    News::Changed => {
                        changed = true;
                        let window =
                            driver.back_off(key, |backoff, now| backoff.window_after_change(now));
                        let span = driver.random_part_of(window.unwrap_or_default());
                        until = until.min(driver.clock.now().after(span));
                    }
                    News::AskAt(at) => until = until.min(at),
                },
                () = driver.clock.sleep_until(until) => return None,
            }
        }
    }

    /// The attempt that is under way, if it is for the same terms, or a new one.
    fn attempt(&mut self, driver: &Arc<Driver>, ask: &Ask) -> &mut Attempt {
        let front = &self.front;
        self.attempt.get_or_insert_with(|| {
            let mut attempt = Attempt::new(driver, &ask.key, ask.terms);
            if let Some(last) = driver.last_answer(&ask.key) {
                attempt.slot.answered(last);
            }
            let busy = Busy::Asking(Arc::clone(&attempt.slot));
            if front.as_ref().is_some_and(|front| front.set_busy(busy)) {
                attempt.reserve_tokens();
            }
            attempt
        })
    }

    fn hold(mut self, driver: &Arc<Driver>, (held, id): (Arc<Held>, HoldId)) -> Result<Hold> {
        let slot = self.attempt.take().map(|attempt| Arc::clone(&attempt.slot));
        if let Some(front) = self.front.take() {
            front.set_busy(Busy::Holding(Arc::downgrade(&held)));
            held.lock().front = Some(front);
        }
        let hold = Hold::begin(driver, held, id);
        // Shut down in the meantime: it is released again.
        driver.open(&hold.held.key)?;
        // Told behind the grant, and before the lease was one to be doubted: the connection broke, or
        // the record was changed.
        if slot.is_some_and(|slot| slot.is_unsure()) {
            driver.renewer.check(&hold.held);
        }
        Ok(hold)
    }

    /// Lets the next in line ask, in one round trip with the release of the lease before: whoever
    /// waits elsewhere comes first. Answers the reply to the release; `None` if nobody waits here.
    pub(super) fn follow(
        driver: &Arc<Driver>,
        front: Front<Mutexes>,
        key: &Key,
        release: &Request,
    ) -> Option<oneshot::Receiver<Reply>> {
        let mut attempt = None;
        let next = front.next(|terms, followed| {
            let mut first = Attempt::new(driver, key, *terms);
            if followed {
                first.reserve_tokens();
            }
            // This process held it until now.
            first.slot.answered(Answered::Refused);
            let busy = Busy::Asking(Arc::clone(&first.slot));
            attempt = Some(first);
            Some(busy)
        });
        let ((front, next), mut attempt) = next.zip(attempt)?;
        let released = attempt.post_after(release.clone());
        let mut contender = Self::new(Some(front));
        contender.attempt = Some(attempt);
        // If it has left in this moment, its turn goes on to the next.
        drop(next.give(Turn::Contend(Box::new(contender))));
        Some(released)
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let Some(front) = self.front.take() else {
            return;
        };
        let mut attempt = self.attempt.take();
        let next = front.next(|terms, _| {
            attempt = attempt
                .take()
                .filter(|attempt| attempt.is_waiting() && attempt.terms == *terms);
            let slot = &attempt.as_ref()?.slot;
            Some(Busy::Asking(Arc::clone(slot)))
        });
        if let Some((front, next)) = next {
            let contender = Self {
                front: Some(front),
                attempt,
                failing: self.failing,
            };
            drop(next.give(Turn::Contend(Box::new(contender))));
        }
    }
}
