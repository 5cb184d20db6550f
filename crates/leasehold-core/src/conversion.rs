//! The conversion of what a lease holds: an upgrade, a downgrade, or another number of permits.
//!
//! [`Conversion`] is a state machine without I/O. Its host sends the operations that [`Conversion::poll`] returns, passes
//! each reply in that decides nothing, and polls again after each of them, after a notice, after a change of the state of
//! its hold, and at the time that it returned.
//!
//! A request names the tokens of the lease, so a repeated one is harmless, and one that is applied after a later conversion
//! changes nothing. Whether a request without a reply was applied is known only by its repetition, or at the end of the
//! lease: so it is repeated until then.

use std::time::Duration;

use crate::contention;
use crate::id::LeaseId;
use crate::lease::state::{Cause, State};
use crate::record::{Claim, Op};
use crate::time::{Instant, Ttl};
use crate::token::{Token, TokenCount};

/// The conversion of one lease.
#[derive(Clone, Debug)]
pub struct Conversion {
    lease: LeaseId,
    first: Token,
    claim: Claim,
    wait: bool,
    /// When the next request is due.
    due: Instant,
    /// Since when the store fails.
    failing: Option<Instant>,
}

/// What the host does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConvertAction {
    /// Sends this operation. The lease is converted if the outcome is `Granted`.
    Send(Op),
    /// Waits until then, for a notice, or until a state changes.
    Wait(Instant),
    /// Stops: the hold is lost.
    Lost(Cause),
}

/// The reply to a request that decides nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvertReply {
    /// The conversion waits before all others in the queue of the store. No lease ends within this time by itself.
    Waits(Duration),
    /// The request was not applied, or perhaps; or it was refused, and may not wait in the queue.
    Failed,
}

impl Conversion {
    /// The conversion of a lease with this first token.
    #[must_use]
    pub const fn new(lease: LeaseId, first: Token, claim: Claim, wait: bool, now: Instant) -> Self {
        Self {
            lease,
            first,
            claim,
            wait,
            due: now,
            failing: None,
        }
    }

    /// Returns what the host does next, by the state of the hold at this instant. `ttl` is that of the lease.
    #[must_use]
    pub fn poll(&self, state: State, ttl: Ttl, now: Instant) -> ConvertAction {
        if let State::Lost(cause) = state {
            return ConvertAction::Lost(cause);
        }
        if now < self.due {
            return ConvertAction::Wait(self.due);
        }
        ConvertAction::Send(Op::Convert {
            lease: self.lease,
            first: self.first,
            claim: self.claim,
            ttl,
            tokens: TokenCount::MIN,
            wait: self.wait,
        })
    }

    /// Processes a reply to the last request that decides nothing.
    pub fn handle_reply(&mut self, reply: ConvertReply, ttl: Ttl, now: Instant) {
        let wait = match reply {
            ConvertReply::Waits(time_left) => {
                self.failing = None;
                contention::retry_in_queue_after(time_left, 0, ttl)
            }
            ConvertReply::Failed => {
                let since = *self.failing.get_or_insert(now);
                contention::retry_after(now.since(since))
            }
        };
        self.due = now.after(wait);
    }

    /// The store has notified the grant, or notices may have been lost: a request is due now. While requests fail, the next
    /// retry is enough: the failed request may have interrupted the connection.
    pub fn wake(&mut self, now: Instant) {
        if self.failing.is_none() {
            self.due = self.due.min(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, lease};
    use crate::record::Access;

    const HELD: State = State::Held { until: at(0) };

    fn ttl() -> Ttl {
        Ttl::from_millis(30_000).unwrap()
    }

    fn upgrade() -> Conversion {
        let write = Claim::Access(Access::Write);
        Conversion::new(lease(1), Token::MAX, write, true, at(0))
    }

    fn sends(conversion: &Conversion, now: u64) -> bool {
        let action = conversion.poll(HELD, ttl(), at(now));
        matches!(action, ConvertAction::Send(Op::Convert { wait: true, .. }))
    }

    #[test]
    fn it_asks_again_at_the_notice_or_at_the_end_of_a_lease() {
        let mut waiting = upgrade();
        assert!(sends(&waiting, 0));
        let second = ConvertReply::Waits(Duration::from_secs(1));
        waiting.handle_reply(second, ttl(), at(1));
        assert!(!sends(&waiting, 1_000));
        let ConvertAction::Wait(due) = waiting.poll(HELD, ttl(), at(2)) else {
            panic!("it does not wait");
        };
        assert!(due >= at(1_001) && due <= at(31_000));
        let mut notified = waiting.clone();
        notified.wake(at(500));
        assert!(sends(&notified, 500));
    }

    #[test]
    fn a_request_without_a_reply_is_repeated_until_the_hold_is_lost() {
        let mut failing = upgrade();
        for now in [0, 10_000, 20_000] {
            assert!(sends(&failing, now));
            failing.handle_reply(ConvertReply::Failed, ttl(), at(now));
            failing.wake(at(now));
            assert!(!sends(&failing, now));
        }
        let lost = State::Lost(Cause::Unreachable);
        assert_eq!(
            failing.poll(lost, ttl(), at(30_000)),
            ConvertAction::Lost(Cause::Unreachable)
        );
    }
}
