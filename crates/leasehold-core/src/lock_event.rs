//! The events of a lock: what has happened between two states of it that an observer has read.

use std::time::Duration;

use crate::annotation::Annotation;
use crate::election::Leader;
use crate::id::LeaseId;
use crate::time::StoreTime;
use crate::token::Token;

/// How long a store keeps the mark of a revocation: observers read it within moments of the end of the lease.
pub const REVOCATION_RETENTION: Duration = Duration::from_secs(60);

/// The state of a lock as an observer has read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockState {
    /// The store's time of the reading.
    pub now: StoreTime,
    /// The holders, and for each the time until its lease expires unless it is renewed.
    pub holders: Vec<(LeaseId, Duration)>,
    /// The lease that was revoked last, unless that is longer ago than the retention.
    pub revoked: Option<LeaseId>,
    /// How many leases wait in the queue of the store.
    pub waiters: usize,
    /// The leader that the observer is told.
    pub leader: Option<Leader>,
}

/// Something that has happened to a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockEvent {
    /// The first event: this lease holds the lock, perhaps with others, each of which has such an event.
    Held(LeaseId),
    /// The first event: no lease holds the lock, which may be in its minimum hold.
    Free,
    /// The lock was granted to this lease.
    Granted(LeaseId),
    /// This lease ended before its time: its holder released it, or a watchdog did after the death of its holder, or the
    /// store has lost its record. The lock may be in its minimum hold from then on.
    Released(LeaseId),
    /// An operator revoked this lease. Of several leases that are revoked together, the others are reported as
    /// [`Released`](Self::Released).
    Revoked(LeaseId),
    /// This lease has ended, and its last known end has passed: it was not renewed in time, or it was renewed and released
    /// after the last reading.
    Expired(LeaseId),
    /// The number of leases that wait has changed to this one.
    QueueLength(usize),
    /// This leader has proclaimed its first or another value. `None`: there is no longer a leader.
    LeaderChanged(Option<Leader>),
    /// A run of the periodic job with this name, or of the job whose events these are, was completed under this fencing
    /// token.
    Completed(Token),
    /// The store fails, and the last reading of the lock is this long ago. Events are unknown until
    /// [`Observed`](Self::Observed).
    Unobserved(Duration),
    /// The store replies again. The next events are the difference between the last reading and this one.
    Observed,
}

/// The events between two states, in the order in which they happened. `before` is `None` at the first state.
///
/// Of leases that came and went between two readings, nothing is known.
#[must_use]
pub fn events(before: Option<&LockState>, after: &LockState) -> Vec<LockEvent> {
    let mut events = Vec::new();
    let holds = |state: &LockState, lease: LeaseId| {
        let mut holders = state.holders.iter();
        holders.any(|(holder, _)| *holder == lease)
    };
    let holders = after.holders.iter().map(|(lease, _)| *lease);
    match before {
        None if after.holders.is_empty() => events.push(LockEvent::Free),
        None => events.extend(holders.map(LockEvent::Held)),
        Some(before) => {
            for (lease, left) in before.holders.iter().copied() {
                if holds(after, lease) {
                    continue;
                }
                let is_early = before.now.until(after.now) < left;
                events.push(match after.revoked == Some(lease) {
                    true => LockEvent::Revoked(lease),
                    false if is_early => LockEvent::Released(lease),
                    false => LockEvent::Expired(lease),
                });
            }
            let granted = holders.filter(|lease| !holds(before, *lease));
            events.extend(granted.map(LockEvent::Granted));
        }
    }
    let (waiters, leader) =
        before.map_or((0, None), |before| (before.waiters, before.leader.clone()));
    if after.leader != leader {
        events.push(LockEvent::LeaderChanged(after.leader.clone()));
    }
    if after.waiters != waiters {
        events.push(LockEvent::QueueLength(after.waiters));
    }
    events
}

/// The event between two completion records. `before` is `None` at the first reading.
#[must_use]
pub fn completed(
    before: Option<&Option<Annotation>>,
    after: Option<&Annotation>,
) -> Option<LockEvent> {
    let (before, after) = (before?, after?);
    let is_new = before
        .as_ref()
        .is_none_or(|before| before.token != after.token);
    is_new.then_some(LockEvent::Completed(after.token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{lease, token};

    fn state(seconds: u64, holders: impl IntoIterator<Item = u64>, waiters: usize) -> LockState {
        LockState {
            now: StoreTime::from_micros(seconds * 1_000_000),
            holders: holders
                .into_iter()
                .map(|number| (lease(number), Duration::from_secs(30)))
                .collect(),
            revoked: None,
            waiters,
            leader: None,
        }
    }

    #[test]
    fn only_the_lease_that_was_revoked_is_reported_so() {
        let revoked = |state: LockState, number| LockState {
            revoked: Some(lease(number)),
            ..state
        };
        let held = state(0, Some(1), 0);
        for (after, event) in [
            (revoked(state(1, None, 0), 1), LockEvent::Revoked(lease(1))),
            // The reading is later than the end of the lease would have been.
            (revoked(state(40, None, 0), 1), LockEvent::Revoked(lease(1))),
            (revoked(state(1, None, 0), 2), LockEvent::Released(lease(1))),
            (revoked(state(40, None, 0), 2), LockEvent::Expired(lease(1))),
        ] {
            assert_eq!(events(Some(&held), &after), std::slice::from_ref(&event));
            let passed_on = LockState {
                holders: state(0, Some(3), 0).holders,
                ..after
            };
            let granted = LockEvent::Granted(lease(3));
            assert_eq!(events(Some(&held), &passed_on), [event, granted]);
        }
        // Many masters: a minority has revoked it.
        assert_eq!(events(Some(&held), &revoked(state(1, Some(1), 0), 1)), []);
        let free = revoked(state(0, None, 0), 1);
        assert_eq!(events(None, &free), [LockEvent::Free]);
        assert_eq!(events(Some(&free), &revoked(state(1, None, 0), 1)), []);
    }

    #[test]
    fn a_release_differs_from_an_expiry_by_the_time_that_was_left() {
        let held = state(0, Some(1), 0);
        for (seconds, event) in [
            (29, LockEvent::Released(lease(1))),
            (30, LockEvent::Expired(lease(1))),
        ] {
            let passed_on = [event.clone(), LockEvent::Granted(lease(2))];
            assert_eq!(events(Some(&held), &state(seconds, Some(2), 0)), passed_on);
            assert_eq!(events(Some(&held), &state(seconds, None, 0)), [event]);
        }
        assert_eq!(events(Some(&held), &state(60, Some(1), 0)), []);
        // Without the reading of its renewal, its release is an expiry: its last known end has passed.
        let renewed = state(25, Some(1), 0);
        let released = state(40, None, 0);
        assert_eq!(
            events(Some(&renewed), &released),
            [LockEvent::Released(lease(1))]
        );
        assert_eq!(
            events(Some(&held), &released),
            [LockEvent::Expired(lease(1))]
        );
    }

    #[test]
    fn the_first_state_is_an_event_and_a_queue_that_stays_is_none() {
        assert_eq!(events(None, &state(0, None, 0)), [LockEvent::Free]);
        let held = state(0, Some(3), 2);
        let first = [LockEvent::Held(lease(3)), LockEvent::QueueLength(2)];
        assert_eq!(events(None, &held), first);
        assert_eq!(events(Some(&held), &state(1, Some(3), 2)), []);
        assert_eq!(
            events(Some(&held), &state(1, Some(3), 1)),
            [LockEvent::QueueLength(1)]
        );
    }

    #[test]
    fn each_of_several_holders_has_its_events() {
        let held = state(0, [1, 2, 3], 0);
        let first = [1, 2, 3].map(|number| LockEvent::Held(lease(number)));
        assert_eq!(events(None, &held), first);
        let later = state(1, [2, 4], 0);
        let expected = [
            LockEvent::Released(lease(1)),
            LockEvent::Released(lease(3)),
            LockEvent::Granted(lease(4)),
        ];
        assert_eq!(events(Some(&held), &later), expected);
    }

    #[test]
    fn a_completion_is_an_event_once_and_not_at_the_begin() {
        let record = |number| Annotation {
            lease: lease(1),
            token: token(number),
            text: "".into(),
        };
        let (first, second) = (Some(record(1)), Some(record(2)));
        assert_eq!(completed(None, first.as_ref()), None);
        assert_eq!(completed(Some(&first), first.as_ref()), None);
        assert_eq!(completed(Some(&first), None), None);
        for before in [&None, &first] {
            let event = completed(Some(before), second.as_ref());
            assert_eq!(event, Some(LockEvent::Completed(token(2))));
        }
    }
}
