//! Takes a lock: asks the store until it grants, or until the caller has waited enough.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    HoldId, Instant, Lease, LeaseId, Op, Outcome, Policy, Term, Token, TokenCount, Ttl, time,
};

use super::Driver;
use super::held::Held;
use super::release::Echo;
use crate::store::{Key, Reply, Request};
use crate::{Error, ErrorKind, Result};

/// The pause after the first refusal. Later ones grow to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(4);

/// The longest pause between two questions to the store.
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// What a caller wants.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) key: Key,
    /// How its lease is renewed, if it is.
    pub(crate) policy: Policy,
    /// The ttl of a fixed lease. `None`: renewed.
    pub(crate) fixed: Option<Ttl>,
    pub(crate) wait: Wait,
}

/// How long a caller wants to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    No,
    Until(Instant),
    Forever,
}

impl Ask {
    pub(crate) fn ttl(&self) -> Ttl {
        self.fixed.unwrap_or(self.policy.ttl)
    }

    /// The term of a hold whose request is sent at `sent`.
    pub(crate) fn term(&self, sent: Instant) -> Term {
        match self.fixed {
            Some(ttl) => Term::Fixed(time::deadline(sent, ttl)),
            None => Term::Renewed,
        }
    }
}

/// Takes the lock with a new lease. `None`: it is held by another, and the caller does not want to
/// wait (any longer).
///
/// Dropped at any point, it leaves nothing held: what was asked for is released in the background.
pub(crate) async fn acquire(
    driver: &Arc<Driver>,
    ask: &Ask,
) -> Result<Option<(Arc<Held>, HoldId)>> {
    let mut last = None;
    let Wait::Until(end) = ask.wait else {
        return contend(driver, ask, &mut last).await;
    };
    let outcome = tokio::select! {
        biased;
        outcome = contend(driver, ask, &mut last) => Some(outcome),
        () = driver.clock.sleep_until(end) => None,
    };
    match (outcome, last) {
        (Some(outcome), _) => outcome,
        (None, Some(Ok(Refused))) => Ok(None),
        // "Nobody answered" is not "held by another".
        (None, Some(Err(error))) => Err(error),
        (None, None) => {
            let message = "the store did not answer within the time given";
            let error = Error::new(ErrorKind::Unreachable, message);
            Err(driver.name_error(error, &ask.key))
        }
    }
}

/// The store said no.
struct Refused;

async fn contend(
    driver: &Arc<Driver>,
    ask: &Ask,
    last: &mut Option<Result<Refused>>,
) -> Result<Option<(Arc<Held>, HoldId)>> {
    let mut attempt = Attempt::new(driver, ask);
    let mut pause = PAUSE_MIN;
    let mut unreachable_since = None;
    loop {
        let sent = driver.clock.now();
        let wait_for = match attempt.ask(sent).await {
            Answer::Granted(token) => {
                if let Some(held) = attempt.accept(sent, token) {
                    return Ok(Some(held));
                }
                // Granted too late to be of use. It was released; try anew.
                attempt = Attempt::new(driver, ask);
                pause
            }
            Answer::Refused(left) => {
                *last = Some(Ok(Refused));
                unreachable_since = None;
                if matches!(ask.wait, Wait::No) {
                    return Ok(None);
                }
                left.min(pause)
            }
            Answer::Failed(error) if error.kind() != ErrorKind::Unreachable => {
                return Err(error);
            }
            Answer::Failed(error) => {
                let since = *unreachable_since.get_or_insert(sent);
                let now = driver.clock.now();
                if matches!(ask.wait, Wait::No) && since != sent
                    || now.since(since) >= ask.policy.ttl.as_duration()
                {
                    return Err(error);
                }
                *last = Some(Err(error));
                if attempt.is_over(now) {
                    attempt = Attempt::new(driver, ask);
                }
                pause
            }
        };
        driver.pause(wait_for).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

enum Answer {
    Granted(Token),
    Refused(Duration),
    Failed(Error),
}

/// One lease id on its way to a grant.
///
/// The same question may be sent again as long as the lease it asked for could still run. After
/// that the id is dead: a request that was delayed may come alive with a full ttl, so the id is
/// released once more after that time.
struct Attempt<'a> {
    driver: &'a Arc<Driver>,
    ask: &'a Ask,
    id: LeaseId,
    /// The first request whose effect is not known, and the last one.
    doubtful: Option<(Instant, Instant)>,
    /// Whether a request may have been granted that nobody holds.
    open: bool,
}

impl<'a> Attempt<'a> {
    fn new(driver: &'a Arc<Driver>, ask: &'a Ask) -> Self {
        Self {
            driver,
            ask,
            id: driver.next_lease(),
            doubtful: None,
            open: false,
        }
    }

    async fn ask(&mut self, sent: Instant) -> Answer {
        self.open = true;
        let first = self.doubtful.map_or(sent, |(first, _)| first);
        let before = self.doubtful.replace((first, sent));
        let request = Request {
            key: self.ask.key.clone(),
            op: Op::Acquire {
                lease: self.id,
                count: NonZeroU32::MIN,
                ttl: self.ask.ttl(),
                tokens: TokenCount::MIN,
                wait: false,
            },
        };
        let answer = match self.driver.submitter.submit(request).await {
            Reply::Applied { outcome, .. } => match outcome {
                Outcome::Granted { first } => Answer::Granted(first),
                Outcome::Refused { left, .. } => Answer::Refused(left),
                Outcome::Exhausted => Answer::Failed(self.error(Error::new(
                    ErrorKind::Store,
                    "its token counter is used up: something else has written it; \
                     delete the counter to start anew from the clock",
                ))),
                other => Answer::Failed(self.error(Error::new(
                    ErrorKind::Store,
                    format!("the store answered an acquire with {other:?}"),
                ))),
            },
            Reply::Unknown(error) => return Answer::Failed(self.error(error)),
            Reply::Rejected(error) => Answer::Failed(self.error(error)),
        };
        // This request is answered; earlier ones may still be on their way.
        self.doubtful = before;
        self.open = before.is_some() || matches!(answer, Answer::Granted(_));
        answer
    }

    fn accept(&mut self, sent: Instant, token: Token) -> Option<(Arc<Held>, HoldId)> {
        let ask = self.ask;
        let (lease, hold) = Lease::granted(ask.policy, ask.ttl(), ask.term(sent), sent);
        if lease.state(self.driver.clock.now()).is_lost() {
            return None;
        }
        self.open = false;
        let echo = self.echo().map(|echo| echo.at);
        let held = Held::new(ask.key.clone(), self.id, token, echo, lease);
        Some((Arc::new(held), hold))
    }

    fn echo(&self) -> Option<Echo> {
        self.doubtful.map(|(first, last)| Echo {
            at: last.after(self.ask.ttl().as_duration()),
            single: first == last,
        })
    }

    fn is_over(&self, now: Instant) -> bool {
        self.doubtful
            .is_some_and(|(first, _)| now >= time::deadline(first, self.ask.ttl()))
    }

    fn error(&self, error: Error) -> Error {
        self.driver.name_error(error, &self.ask.key)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.open {
            let ask = self.ask;
            self.driver
                .abandon(ask.key.clone(), self.id, ask.ttl(), self.echo());
        }
    }
}
