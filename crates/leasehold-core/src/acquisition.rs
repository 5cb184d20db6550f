//! The acquisition of a lease: from the first request to a grant, a refusal or a failure.
//!
//! [`Acquisition`] is a state machine without I/O. Its host sends the requests that [`Acquisition::poll`]
//! returns, passes replies and notices in, and polls again after each of them and at
//! [`Acquisition::next_timeout`].
//!
//! ```text
//!              poll: Acquire              handle_reply: granted
//!   waiting ------------------> in flight ----------------------> poll: Granted
//!      ^ |                         |                                   ^
//!      | |                         | refused, rejected or unknown      |
//!      +-+-------------------------+                                   |
//!        |           handle_notice: granted                            |
//!        +-------------------------------------------------------------+
//! ```
//!
//! * A request whose effect is unknown is repeated under the same lease id as long as the lease it asked
//!   for could be valid. After that the id is abandoned: a delayed request may still be applied, with a
//!   full ttl. So the id is released now, and [once more](crate::LateRelease) after that time.
//! * A grant that the store notified is accepted only if the reply that put the lease into the queue shows
//!   since when it can be valid, and if there is time to renew it. The allowance for drift since that reply may use up most
//!   of its short ttl. Otherwise the request is repeated, and its reply is a grant for the whole ttl.
//! * A request for a run that is complete neither holds nor waits. A late one changes nothing either, as long as the store
//!   keeps the completion.
//! * A store that does not accept repeated requests of one lease id gets a new id for each request, and a
//!   release of the old one if something of it may remain.

mod attempt;
mod messages;
mod timers;

use std::time::Duration;

use self::attempt::{Attempt, InFlight, Queued};
pub use self::messages::{
    AcquireAction, AcquireNotice, AcquireReply, AcquisitionOptions, Failure, GrantedLease,
    Numbering, RenewalOptions, RunRequest,
};
pub use self::timers::Timer;
use self::timers::Timers;
use crate::annotation::Annotation;
use crate::contention::{self, Backoff, upper_half};
use crate::id::LeaseId;
use crate::lease::Lease;
use crate::lease::holds::HoldId;
use crate::record::{Acquire, Grant, Op, Outcome, Run};
use crate::release::{AbandonedLease, ReleaseOrder};
use crate::time::{self, Instant, StoreTime};
use crate::token::{Token, TokenCount};

/// The retry interval after the first refusal by a store without notifications. It doubles up to
/// [`AcquisitionOptions::longest_poll`].
const POLL_MIN: Duration = Duration::from_millis(4);

/// The longest interval at most stores of that kind, and how far apart clients retry that wait for the same instant.
pub const POLL_MAX: Duration = Duration::from_millis(64);

/// The acquisition of one lock, for one caller at a time.
#[derive(Debug)]
pub struct Acquisition {
    options: AcquisitionOptions,
    /// When the first request may be sent.
    begins: Instant,
    /// The lease id in use. `None`: the next request needs a new one.
    attempt: Option<Attempt>,
    in_flight: Option<InFlight>,
    notices: Notices,
    timers: Timers,
    failing: Failing,
    poll_interval: Duration,
    backoff: Backoff,
    /// What the next calls of `poll` return, in this order.
    abandoned: Option<AbandonedLease>,
    grant_expired: bool,
    result: Option<AcquireAction>,
    granted: bool,
    numbering: Numbering,
}

/// What the store notified since the last request was sent.
#[derive(Clone, Debug, Default)]
struct Notices {
    /// A grant, and when it was received.
    grant: Option<(Grant, Instant)>,
    interrupted: bool,
    changed: bool,
    /// Whether a change is a reason for a request.
    follows_changes: bool,
}

/// A refusal of the lock, as [`AcquireReply::Applied`] has it.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    time_left: Duration,
    queue_position: Option<u32>,
    /// Whether some of many masters may have granted it.
    in_part: bool,
    replied: StoreTime,
    shard: Option<u32>,
    notifies_changes: bool,
}

/// How the store has failed since its last refusal of the lock.
#[derive(Clone, Copy, Debug, Default)]
struct Failing {
    since: Option<Instant>,
    /// Since when it fails without naming the end of the failure.
    silent_since: Option<Instant>,
}

impl Acquisition {
    /// An acquisition that begins now. `backoff` is that of earlier acquisitions of the lock, and may delay the
    /// first request.
    #[must_use]
    pub fn new(options: AcquisitionOptions, mut backoff: Backoff, now: Instant) -> Self {
        // A caller that does not wait sends its only request immediately.
        let pause = match options.wait && !options.idempotent {
            true => backoff.pause(now),
            false => Duration::ZERO,
        };
        let begins = now.after(pause);
        let mut timers = Timers::default();
        timers.set(Timer::Retry, begins);
        Self {
            options,
            begins,
            attempt: None,
            in_flight: None,
            notices: Notices::default(),
            timers,
            failing: Failing::default(),
            poll_interval: POLL_MIN,
            backoff,
            abandoned: None,
            grant_expired: false,
            result: None,
            granted: false,
            numbering: Numbering::default(),
        }
    }

    /// The acquisition of the next caller, with a new lease id. It keeps what is known of the failures of the
    /// store.
    #[must_use]
    pub fn successor(&self, options: AcquisitionOptions, now: Instant) -> Self {
        Self {
            failing: self.failing,
            ..Self::new(options, self.backoff, now)
        }
    }

    /// Names the lease id and the number of tokens for the next requests.
    pub fn start(&mut self, lease: LeaseId, tokens: TokenCount) {
        self.attempt = Some(Attempt::new(lease, tokens));
    }

    /// Hands the acquisition to a caller that has waited since `arrived`. Its first request is due immediately,
    /// unless the backoff delays it.
    pub fn take_over(&mut self, arrived: Instant) {
        let silent_since = &mut self.failing.silent_since;
        *silent_since = silent_since.map(|since| since.max(arrived));
        self.poll_interval = POLL_MIN;
        if self.in_flight.is_none() {
            self.timers.set(Timer::Retry, arrived.max(self.begins));
        }
    }

    /// Returns what the host does next. `shard` is the one that keeps the record at this moment.
    ///
    /// The result may change after every other call, and at [`Acquisition::next_timeout`].
    #[must_use]
    pub fn poll(&mut self, now: Instant, shard: u32) -> AcquireAction {
        if let Some(abandoned) = self.abandoned.take() {
            return AcquireAction::Release(abandoned);
        }
        if std::mem::take(&mut self.grant_expired) {
            return AcquireAction::GrantExpired;
        }
        if let Some(result) = self.result.take() {
            if let AcquireAction::Granted(_) = result {
                self.hand_over();
            }
            return result;
        }
        if self.granted || self.in_flight.is_some() {
            return AcquireAction::Wait;
        }
        let is_due = self.timers.next().is_some_and(|at| at <= now);
        match self.notices.grant.take() {
            Some((grant, received)) => {
                let (number, floor) = (grant.number, grant.floor);
                self.numbering = Numbering { number, floor };
                if let Some(granted) = self.accept(grant, received, now, shard) {
                    self.hand_over();
                    return AcquireAction::Granted(granted);
                }
            }
            // While requests fail, the next retry also answers an interruption: the failed request may have caused it.
            None if is_due || self.notices.interrupted && self.failing.since.is_none() => {}
            None => return AcquireAction::Wait,
        }
        match self.attempt {
            Some(attempt) => AcquireAction::Acquire(self.send(attempt, now)),
            None => AcquireAction::NewLease,
        }
    }

    /// When to poll again without a reply or a notice. `None`: never.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let idle = self.in_flight.is_none() && !self.granted;
        self.timers.next().filter(|_| idle)
    }

    /// When a timer expires. `None`: it is not set.
    #[must_use]
    pub const fn timer(&self, timer: Timer) -> Option<Instant> {
        self.timers.get(timer)
    }

    /// Processes the reply to the request in flight. `spread` is a random number from 0 to 1, so that clients
    /// that are refused together do not retry together.
    pub fn handle_reply(&mut self, reply: AcquireReply, now: Instant, spread: f64) {
        let (Some(request), Some(attempt)) = (self.in_flight.take(), &mut self.attempt) else {
            return;
        };
        if !matches!(reply, AcquireReply::Unknown(_)) {
            // The effect of this request is known; that of earlier ones may still be unknown.
            attempt.unknown = request.earlier;
        }
        match reply {
            AcquireReply::Applied {
                outcome,
                now: replied,
                shard,
                notifies_changes,
            } => {
                let refusal = |time_left: Option<Duration>, queue_position, in_part| Refusal {
                    time_left: time_left.unwrap_or_default(),
                    queue_position,
                    in_part,
                    replied,
                    shard,
                    notifies_changes,
                };
                match outcome {
                    Outcome::Granted {
                        first,
                        number,
                        floor,
                        run,
                    } => {
                        self.numbering = Numbering { number, floor };
                        let run = run.map(|run| (run, replied));
                        self.handle_grant(request, (first, run), now, spread);
                    }
                    Outcome::Complete(note) => {
                        attempt.known = request.known;
                        self.complete(note);
                    }
                    Outcome::Refused {
                        time_left,
                        queue_position,
                    } => {
                        let refusal = refusal(time_left, queue_position, false);
                        self.handle_refusal(request, refusal, now, spread);
                    }
                    Outcome::GrantedInPart { time_left } => {
                        let refusal = refusal(time_left, None, true);
                        self.handle_refusal(request, refusal, now, spread);
                    }
                    _ => self.fail(),
                }
            }
            AcquireReply::Rejected(failure) => {
                attempt.known = request.known;
                if !self.options.idempotent {
                    self.attempt = None;
                }
                self.handle_failure(request.sent, failure, now, spread);
            }
            AcquireReply::Unknown(failure) => {
                self.change_lease();
                self.handle_failure(request.sent, failure, now, spread);
            }
        }
    }

    /// Processes a notice. Returns whether [`Acquisition::poll`] may have a new result.
    ///
    /// A grant must be of [`Acquisition::lease`]. `spread` is as in [`Acquisition::handle_reply`].
    pub fn handle_notice(&mut self, notice: AcquireNotice, now: Instant, spread: f64) -> bool {
        match notice {
            // The id was abandoned meanwhile, and is released.
            AcquireNotice::Granted(grant) if Some(grant.lease) != self.lease() => return false,
            AcquireNotice::Granted(grant) => self.notices.grant = Some((grant, now)),
            // A grant would be a later one.
            AcquireNotice::Complete(lease, note) => {
                if Some(lease) != self.lease() || self.granted || self.result.is_some() {
                    return false;
                }
                self.complete(note);
            }
            AcquireNotice::Next(ttl) => {
                let wait = ttl.as_duration() + time::drift(ttl.as_duration());
                self.timers.set(Timer::NextInQueue, now.after(wait));
            }
            AcquireNotice::Changed => {
                self.notices.changed = true;
                self.follow_change(now, spread);
                return self.notices.follows_changes;
            }
            AcquireNotice::Interrupted => self.notices.interrupted = true,
        }
        true
    }

    /// Abandons the acquisition. Returns the lease id that must be released, as [`Acquisition::unreleased`].
    #[must_use]
    pub fn abandon(&mut self) -> Option<AbandonedLease> {
        let unreleased = self.unreleased();
        self.result = None;
        self.abandoned = None;
        self.attempt = self.attempt.filter(|attempt| attempt.known == 0);
        unreleased
    }

    /// The lease id that must be released if the acquisition goes no further. `None`: the store cannot know one, or the
    /// grant was polled.
    #[must_use]
    pub fn unreleased(&self) -> Option<AbandonedLease> {
        self.abandoned.or_else(|| {
            let attempt = self.attempt.filter(|attempt| attempt.known > 0)?;
            Some(attempt.abandoned(self.options.lease.ttl(), ReleaseOrder::Behind))
        })
    }

    /// The lease id in use.
    #[must_use]
    pub fn lease(&self) -> Option<LeaseId> {
        self.attempt.as_ref().map(|attempt| attempt.lease)
    }

    /// The options of this acquisition.
    #[must_use]
    pub const fn options(&self) -> &AcquisitionOptions {
        &self.options
    }

    /// What the last grant says beside its tokens.
    #[must_use]
    pub const fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// The backoff after the replies so far, for the next acquisition of the lock.
    #[must_use]
    pub const fn backoff(&self) -> Backoff {
        self.backoff
    }

    /// Whether it has a place in the queue of the store and no request of unknown effect. Then another caller
    /// can take it over.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        let attempt = self.attempt.as_ref();
        attempt.is_some_and(|attempt| attempt.queued.is_some() && attempt.unknown.is_none())
    }

    /// When the caller gives up unless the store replies before: after a whole ttl of failures without a named end.
    /// `None`: the store does not fail, or names the end of the failure.
    #[must_use]
    pub fn gives_up_at(&self) -> Option<Instant> {
        let ttl = self.options.lease.policy.ttl.as_duration();
        self.failing.silent_since.map(|since| since.after(ttl))
    }

    /// Whether the store has failed for a whole ttl without naming the end of the failure.
    #[must_use]
    pub fn is_silent(&self, now: Instant) -> bool {
        self.gives_up_at().is_some_and(|at| at <= now)
    }

    /// Whether a notice since the last request casts doubt on the grant of that request.
    #[must_use]
    pub const fn is_in_doubt(&self) -> bool {
        self.notices.interrupted || self.notices.changed && self.notices.follows_changes
    }

    fn send(&mut self, mut attempt: Attempt, now: Instant) -> Op {
        self.in_flight = Some(attempt.send(now));
        self.attempt = Some(attempt);
        self.notices.interrupted = false;
        self.notices.changed = false;
        self.timers = Timers::default();
        Op::Acquire(Acquire {
            tokens: attempt.tokens,
            wait: self.options.wait,
            unless: self.options.run.as_ref().map(|run| run.unless(now)),
            claim: self.options.claim,
            ..Acquire::mutex(attempt.lease, self.options.lease.ttl())
        })
    }

    fn handle_grant(
        &mut self,
        request: InFlight,
        (first, run): (Token, Option<(Run, StoreTime)>),
        now: Instant,
        spread: f64,
    ) {
        let options = self.options.lease;
        let term = options.term(request.sent);
        let granted = Lease::granted(options.policy, options.ttl(), term, request.sent);
        if let Some(granted) = self.finish(granted, first, run, now) {
            self.result = Some(AcquireAction::Granted(granted));
            if !self.options.idempotent {
                self.backoff.won(now);
            }
        } else {
            self.grant_expired = true;
            self.abandon_attempt();
            self.handle_failure(request.sent, Failure::Transient, now, spread);
        }
    }

    fn handle_refusal(&mut self, request: InFlight, refusal: Refusal, now: Instant, spread: f64) {
        let Refusal {
            time_left,
            queue_position,
            in_part,
            replied,
            shard,
            notifies_changes,
        } = refusal;
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        let repeated = attempt.queued.is_some() || request.earlier.is_some();
        // A repeated request may have been granted before. A grant that was notified by now came before or
        // after the refusal. Only the clock of the store shows which, and that may have been set back.
        if repeated && self.notices.grant.take().is_some() {
            self.notices.interrupted = true;
        }
        attempt.queued = queue_position.map(|_| Queued {
            sent: request.sent,
            replied,
            shard,
        });
        // A store that can no longer notify the client gives it no place, and may still have an earlier one.
        attempt.known = request.known + u32::from(queue_position.is_some());
        self.failing = Failing::default();
        let round = now.since(request.sent);
        let wait = match queue_position {
            Some(position) => {
                let ttl = self.options.lease.ttl();
                contention::retry_in_queue_after(time_left, position, ttl)
            }
            None => self.wait_outside_queue(time_left, notifies_changes, (round, now), spread),
        };
        self.timers.set(Timer::Retry, now.after(wait));
        // A change may have been notified before the refusal was read. If nobody holds the lock, the clients
        // that were refused together release their parts, which changes the record without need.
        self.notices.follows_changes = queue_position.is_none() && !time_left.is_zero();
        self.follow_change(now, spread);
        match in_part {
            true => self.change_lease(),
            false if !self.options.idempotent => self.attempt = None,
            false => {}
        }
        if !self.options.wait {
            self.result = Some(AcquireAction::Refused);
        }
    }

    /// How long to wait after a refusal without a place in the queue, if nothing is notified before. The refused
    /// request took `round`.
    fn wait_outside_queue(
        &mut self,
        time_left: Duration,
        notifies_changes: bool,
        (round, now): (Duration, Instant),
        spread: f64,
    ) -> Duration {
        if !notifies_changes {
            let interval = time_left.min(self.poll_interval);
            self.poll_interval = (self.poll_interval * 2).min(self.options.longest_poll);
            return upper_half(interval, spread);
        }
        let ttl = self.options.lease.ttl();
        let expiry = contention::retry_in_queue_after(time_left, 0, ttl);
        if self.options.idempotent {
            return expiry;
        }
        // Several contenders have won a part each.
        if time_left.is_zero() {
            self.backoff.split(round, now);
            return self.backoff.window().mul_f64(spread);
        }
        self.backoff.refused(round, now);
        upper_half(expiry, spread)
    }

    /// The run is complete. The lease has left the queue, but a request without a reply may still be applied.
    fn complete(&mut self, note: Annotation) {
        if let Some(attempt) = &mut self.attempt {
            attempt.queued = None;
            if attempt.unknown.is_none() && self.notices.grant.take().is_none() {
                attempt.known = 0;
            }
        }
        self.failing = Failing::default();
        self.result = Some(AcquireAction::Complete(note));
    }

    /// The last failure is final, unless there is a result already.
    fn fail(&mut self) {
        self.result.get_or_insert(AcquireAction::Failed);
    }

    /// Decides whether and when to retry: the store did not reply, or refuses requests.
    fn handle_failure(&mut self, sent: Instant, failure: Failure, now: Instant, spread: f64) {
        if failure == Failure::Permanent {
            return self.fail();
        }
        let ttl = self.options.lease.ttl();
        let unknown = self.attempt.and_then(|attempt| attempt.unknown);
        if unknown.is_some_and(|unknown| now >= time::deadline(unknown.first, ttl)) {
            self.abandon_attempt();
        }
        let since = *self.failing.since.get_or_insert(sent);
        let interval = upper_half(contention::retry_after(now.since(since)), spread);
        let wait = match failure {
            // The client waits for a known end of the failure, however far that is. The spread keeps the
            // clients that wait for the same end from retrying at once.
            Failure::Until(left) => {
                self.failing.silent_since = None;
                interval.min(left + upper_half(POLL_MAX, spread))
            }
            _ => {
                self.failing.silent_since.get_or_insert(sent);
                interval
            }
        };
        self.timers.set(Timer::Retry, now.after(wait));
        self.follow_change(now, spread);
        // A connection that was lost is there again at the first retry.
        let is_retry = since != sent;
        let known_end = matches!(failure, Failure::Until(_));
        let gives_up = !self.options.wait && (is_retry || known_end);
        if gives_up || self.is_silent(now) {
            self.fail();
        }
    }

    /// Sets a random time for a request after a change of the record. A second change keeps that time: the
    /// earlier of two random times would shrink the window.
    fn follow_change(&mut self, now: Instant, spread: f64) {
        let follows = self.notices.changed && self.notices.follows_changes;
        let waits = self.in_flight.is_none() && self.timers.get(Timer::Changed).is_none();
        if follows && waits {
            let wait = self.backoff.window_after_change(now).mul_f64(spread);
            self.timers.set(Timer::Changed, now.after(wait));
        }
    }

    /// The lease of a notified grant. `None`: its validity is unknown, or too short to renew it.
    fn accept(
        &self,
        grant: Grant,
        received: Instant,
        now: Instant,
        shard: u32,
    ) -> Option<GrantedLease> {
        // Only the reply to a request shows that replicas have acknowledged it.
        if self.options.replicated {
            return None;
        }
        let attempt = self.attempt.as_ref()?;
        let granted = attempt.accept(&grant, received, shard, self.options.lease)?;
        let run = grant.run.map(|run| (run, grant.now));
        let granted = Some(granted).filter(|(lease, _)| lease.can_be_renewed(now))?;
        self.finish(granted, grant.first, run, now)
    }

    /// The granted lease, unless it is lost already.
    fn finish(
        &self,
        (lease, hold): (Lease, HoldId),
        first: Token,
        run: Option<(Run, StoreTime)>,
        now: Instant,
    ) -> Option<GrantedLease> {
        if lease.state(now).is_lost() {
            return None;
        }
        let attempt = self.attempt?;
        let late_release = attempt.late_release(self.options.lease.ttl());
        Some(GrantedLease {
            id: attempt.lease,
            lease,
            hold,
            first,
            tokens: attempt.tokens,
            run,
            late_release: late_release.map(|late| late.at),
        })
    }

    /// From now on the holder releases the lease.
    fn hand_over(&mut self) {
        self.granted = true;
        if let Some(attempt) = &mut self.attempt {
            attempt.known = 0;
        }
    }

    /// Abandons the lease id of a request, if the store does not accept repeated requests of one id.
    fn change_lease(&mut self) {
        if self.options.idempotent {
            return;
        }
        if let Some(attempt) = self.attempt.take() {
            self.abandoned = Some(attempt.abandoned(self.options.lease.ttl(), ReleaseOrder::Any));
        }
    }

    /// Abandons a lease id that can no longer become a lease.
    fn abandon_attempt(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            self.abandoned =
                Some(attempt.abandoned(self.options.lease.ttl(), ReleaseOrder::Behind));
            self.notices = Notices::default();
        }
    }
}

#[cfg(test)]
mod tests;
