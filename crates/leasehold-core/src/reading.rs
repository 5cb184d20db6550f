//! The readings of a name: one client reads it once for all its observers.
//!
//! [`Reading`] is a state machine without I/O. Its host reads the name when [`Reading::poll`] returns so, passes replies
//! and pushes in, and polls again after each of them, after every other call and at [`Reading::next_timeout`].
//!
//! ```text
//!             poll: Read              handle_reply: a result
//!   current ------------> in flight --------------------------> current
//!                           ^    |  handle_reply: a failure        |  handle_push, or `until` has come
//!                poll: Read |    v                                 v
//!                          failing                              changed
//! ```
//!
//! * The first result of an observer is that of a reading that began after its subscription.
//! * A change is read if an observer waits for it, and at a limited pace.
//! * A reading that fails is repeated. Observers are notified of a failure that lasts.

use std::time::Duration;

use crate::contention;
use crate::time::{self, Instant};

/// How often a name is read where the store cannot push a change.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is read at least: a push can be lost with a connection whose end is not noticed.
const READ_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// The time between two readings of a name that changes all the time. A lock that is passed on thousands of times a
/// second does not occupy the store with its observers.
const READ_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// How many readings may follow each other immediately after a while without any: that of a new holder, and that of the
/// value which it writes a moment later.
const READ_BURST: u32 = 3;

/// How long the store may fail before that is reported: longer than it takes to connect again.
const SILENCE_MIN: Duration = Duration::from_secs(3);

/// The readings of a name. `R` is the result of one.
#[derive(Clone, Debug)]
pub struct Reading<R> {
    phase: ReadingPhase,
    /// How many readings were begun.
    begun: u64,
    /// The number of the newest result, and the result.
    newest: Option<(u64, R)>,
    /// An observer needs the result of a reading with a larger number, immediately.
    outdated: u64,
    /// Whether an observer waits for the next change.
    awaited: bool,
    /// When the last state was read.
    known_at: Option<Instant>,
    /// Since when the store fails.
    failing: Option<Instant>,
    /// Whether the time has come at which observers are notified of that.
    silent: bool,
    /// When the next reading would be due if all were [`READ_INTERVAL_MIN`] apart: the generic cell rate algorithm.
    paced: Instant,
    pause_ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadingPhase {
    /// The newest result may be that of the current state, until this instant. `None`: it is not.
    Current(Option<Instant>),
    /// A reading was begun at this instant, and has no reply.
    InFlight(Instant),
    /// The last reading has failed. It is repeated at this instant.
    Failing(Instant),
}

/// An observer: which results are new to it.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// The number of the last result that is not.
    after: u64,
    /// Whether it was notified of the failure since the last result.
    silent: bool,
}

/// What the host does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAction {
    /// Reads the name, and passes the reply to [`Reading::handle_reply`].
    Read,
    /// Calls [`Reading::end_pause`] after this time. It passes although a test has stopped the clock.
    Pause(Duration),
    /// Waits.
    Wait,
}

/// The reply to a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadReply<R> {
    /// The state.
    State {
        /// The result.
        result: R,
        /// Whether the store pushes the next change.
        pushes: bool,
        /// The time until the first of the leases of the holders expires.
        time_left: Option<Duration>,
    },
    /// An error that is the result.
    Refused(R),
    /// An error that is repeated, after this time if one is named.
    Failed(Option<Duration>),
}

/// What an observer is notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update<R> {
    /// The newest result.
    Read(R),
    /// The store has not replied, or has failed, for a while. The last state was read this long ago.
    Silence(Duration),
}

impl<R: Clone> Reading<R> {
    /// The readings of a name, the first of which is due immediately.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self {
            phase: ReadingPhase::Current(None),
            begun: 0,
            newest: None,
            outdated: 0,
            awaited: false,
            known_at: None,
            failing: None,
            silent: false,
            paced: now,
            pause_ended: false,
        }
    }

    /// Adds an observer, whose first reading begins from now on.
    #[must_use]
    pub const fn subscribe(&mut self) -> Subscription {
        self.outdated = self.begun;
        Subscription {
            after: self.begun,
            silent: false,
        }
    }

    /// What is new to an observer. `None`: it waits for the next change.
    pub fn next(&mut self, observer: &mut Subscription, now: Instant) -> Option<Update<R>> {
        if let Some((number, result)) = &self.newest
            && *number > observer.after
        {
            (observer.after, observer.silent) = (*number, false);
            return Some(Update::Read(result.clone()));
        }
        let is_silent = self.silence_at().is_some_and(|at| at <= now);
        if is_silent && !std::mem::replace(&mut observer.silent, true) {
            let since = self.known_at.or(self.failing_since());
            let silence = since.map(|since| now.since(since));
            return Some(Update::Silence(silence.unwrap_or_default()));
        }
        self.awaited = true;
        None
    }

    /// Returns what the host does next.
    #[must_use]
    pub fn poll(&mut self, now: Instant) -> ReadAction {
        self.silent |= self.silence_at().is_some_and(|at| at <= now);
        match self.phase {
            ReadingPhase::InFlight(_) => return ReadAction::Wait,
            ReadingPhase::Failing(again) if now < again => return ReadAction::Wait,
            ReadingPhase::Current(until) if !self.is_outdated() => {
                if !self.awaited || until.is_some_and(|until| now < until) {
                    return ReadAction::Wait;
                }
                let allowed = self.paced.before(READ_INTERVAL_MIN * (READ_BURST - 1));
                if now < allowed && !self.pause_ended {
                    return ReadAction::Pause(now.until(allowed));
                }
            }
            ReadingPhase::Failing(_) | ReadingPhase::Current(_) => {}
        }
        self.begin(now);
        ReadAction::Read
    }

    /// When to poll again without a reply or another call. `None`: never.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let next = match self.phase {
            ReadingPhase::InFlight(_) => None,
            ReadingPhase::Failing(again) => Some(again),
            ReadingPhase::Current(until) => until.filter(|_| self.awaited),
        };
        let silence = self.silence_at().filter(|_| !self.silent);
        next.into_iter().chain(silence).min()
    }

    /// The pause has passed.
    pub const fn end_pause(&mut self) {
        self.pause_ended = true;
    }

    /// The store has pushed a change of the newest state, or cannot push one any longer.
    pub const fn handle_push(&mut self) {
        if let ReadingPhase::Current(until) = &mut self.phase {
            *until = None;
        }
    }

    /// Processes the reply to the reading in flight.
    pub fn handle_reply(&mut self, reply: ReadReply<R>, now: Instant) {
        let (result, until) = match reply {
            ReadReply::State {
                result,
                pushes,
                time_left,
            } => {
                self.known_at = Some(now);
                let poll = match pushes {
                    true => READ_INTERVAL_MAX,
                    false => POLL_INTERVAL,
                };
                // The end of a lease is no push. A lease that was read an instant too early is read again.
                let left = time_left.map(|left| left + time::DRIFT_MIN);
                let until = now.after(left.map_or(poll, |left| left.min(poll)));
                (result, Some(until))
            }
            ReadReply::Refused(result) => (result, None),
            ReadReply::Failed(retry_after) => {
                let since = *self.failing.get_or_insert(now);
                let retry = contention::retry_after(now.since(since));
                let retry = retry_after.map_or(retry, |after| after.max(retry));
                self.phase = ReadingPhase::Failing(now.after(retry));
                return;
            }
        };
        self.phase = ReadingPhase::Current(until);
        self.newest = Some((self.begun, result));
        // All observers that wait have a new result, or need another reading.
        self.awaited = false;
        self.failing = None;
        self.silent = false;
    }

    fn begin(&mut self, now: Instant) {
        self.phase = ReadingPhase::InFlight(now);
        self.begun += 1;
        self.pause_ended = false;
        let paced = self.paced.max(now).after(READ_INTERVAL_MIN);
        // New observers do not delay the next change for longer.
        self.paced = paced.min(now.after(READ_INTERVAL_MIN * READ_BURST));
    }

    /// Whether an observer needs a reading that is not begun yet.
    fn is_outdated(&self) -> bool {
        let newest = self.newest.as_ref().map_or(0, |(number, _)| *number);
        newest <= self.outdated
    }

    /// Since when there is no reply, or there are failures.
    const fn failing_since(&self) -> Option<Instant> {
        match self.phase {
            ReadingPhase::InFlight(begun) if self.failing.is_none() => Some(begun),
            _ => self.failing,
        }
    }

    /// When observers are notified of the failure.
    fn silence_at(&self) -> Option<Instant> {
        self.failing_since().map(|since| since.after(SILENCE_MIN))
    }
}

#[cfg(test)]
mod tests;
