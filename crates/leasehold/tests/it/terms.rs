//! Holds of different terms over one lease: its renewals, and its time in the store.

use std::pin::pin;
use std::time::Duration;

use leasehold::{Cause, Guard, LeaseOptions, Owner, State};

use crate::harness::{Harness, SECOND, TTL, poll_once};
use crate::recording_store::Valve;

const SHORT: Duration = Duration::from_secs(12);
const LONG: Duration = Duration::from_secs(90);
const STEP: Duration = Duration::from_millis(500);
/// A renewal comes at most this long after the one before.
const INTERVAL: Duration = Duration::from_secs(10);

/// How long a hold is meant to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Renewed,
    Fixed(Duration),
}

impl Length {
    const ALL: [Self; 3] = [Self::Renewed, Self::Fixed(SHORT), Self::Fixed(LONG)];

    async fn take(self, harness: &Harness, owner: &Owner) -> Guard {
        let mutex = harness
            .mutex()
            .with(LeaseOptions::new().owner(owner))
            .unwrap();
        let mutex = match self {
            Self::Renewed => mutex,
            Self::Fixed(duration) => mutex.with(LeaseOptions::new().fixed(duration)).unwrap(),
        };
        mutex.lock().await.unwrap()
    }

    /// How long the lease lasts for this hold from `age` on, as far as it can be known.
    fn left(self, age: Duration) -> Duration {
        match self {
            Self::Renewed => TTL - INTERVAL,
            Self::Fixed(duration) => duration.saturating_sub(age),
        }
    }
}

/// One hold, and what it must be like.
struct Kept {
    length: Length,
    since: Duration,
    guard: Guard,
}

impl Kept {
    async fn take(length: Length, harness: &Harness, owner: &Owner) -> Self {
        Self {
            length,
            since: since_start(harness),
            guard: length.take(harness, owner).await,
        }
    }

    fn is_as_it_should_be(&self, now: Duration) {
        let state = self.guard.state();
        match self.length {
            Length::Renewed => assert!(state.is_held(), "{state:?}"),
            Length::Fixed(duration) => {
                // A hundredth of it is for the clocks' drift.
                let age = now - self.since;
                if age >= duration {
                    assert_eq!(state, State::Lost(Cause::Expired));
                } else if age + duration / 50 < duration {
                    assert!(state.is_held(), "{state:?} at {age:?} of {duration:?}");
                }
            }
        }
    }
}

fn renewals(harness: &Harness) -> usize {
    harness.recorder.renewals().len()
}

/// Lets time go on: each hold is what it should be, the lease is renewed if one of them wants it and
/// never else, and the store keeps it for all of them.
async fn keeps_terms(harness: &Harness, holds: &[&Kept], duration: Duration) {
    let renewed = holds.iter().any(|kept| kept.length == Length::Renewed);
    let (begun, before) = (since_start(harness), renewals(harness));
    while since_start(harness) < begun + duration {
        harness.advance(STEP).await;
        let now = since_start(harness);
        for kept in holds {
            kept.is_as_it_should_be(now);
        }
        let wanted = holds.iter().map(|kept| kept.length.left(now - kept.since));
        let wanted = wanted.max().unwrap_or_default();
        let lock = harness.stranger().inspect().await.unwrap();
        let left = lock.map_or(Duration::ZERO, |lock| lock.time_left);
        assert!(left + SECOND >= wanted, "{left:?}, not {wanted:?}");
    }
    let renewals = renewals(harness) - before;
    if renewed {
        let least = (duration.as_secs() / INTERVAL.as_secs()).saturating_sub(1);
        assert!(
            renewals as u64 >= least,
            "{renewals} renewals in {duration:?}"
        );
    } else {
        assert_eq!(renewals, 0, "renewed without need");
    }
}

fn since_start(harness: &Harness) -> Duration {
    use leasehold::clock::Clock as _;
    harness
        .clock
        .now()
        .since(leasehold_core::Instant::default())
}

/// Releases a hold; it was lost before if its time was over.
async fn release(kept: Kept, harness: &Harness) {
    let lost = kept.guard.state().is_lost();
    assert_eq!(kept.guard.release().await.is_err(), lost);
    harness.advance(Duration::ZERO).await;
}

async fn combination(outer: Length, inner: Length, inner_first: bool, early: bool) {
    let harness = Harness::new();
    let owner = Owner::new();
    let outer = Kept::take(outer, &harness, &owner).await;
    let apart = SECOND * 4;
    keeps_terms(&harness, &[&outer], apart).await;
    let inner = Kept::take(inner, &harness, &owner).await;
    assert_eq!(outer.guard.lease_id(), inner.guard.lease_id());
    // Both at work; then, or after the end of the short ones, one is left.
    let together = if early { SECOND * 3 } else { SECOND * 40 };
    keeps_terms(&harness, &[&outer, &inner], together).await;
    let (first, second) = if inner_first {
        (inner, outer)
    } else {
        (outer, inner)
    };
    release(first, &harness).await;
    keeps_terms(&harness, &[&second], SECOND * 25).await;
    // To the end, and a while longer.
    if let Length::Fixed(_) = second.length {
        keeps_terms(&harness, &[&second], LONG).await;
        assert!(second.guard.state().is_lost());
        assert!(harness.stranger().inspect().await.unwrap().is_none());
    }
    let before = renewals(&harness);
    release(second, &harness).await;
    assert!(harness.stranger().inspect().await.unwrap().is_none());
    harness.advance(TTL).await;
    assert_eq!(renewals(&harness), before, "renewed after the last release");
    assert!(harness.client.locks().await.unwrap().is_empty());
}

#[tokio::test]
async fn every_combination_of_terms_is_kept_as_each_hold_wants() {
    for outer in Length::ALL {
        for inner in Length::ALL {
            for inner_first in [true, false] {
                for early in [true, false] {
                    // Two that have both ended before the second is entered or left are one only.
                    let over = |length| length == Length::Fixed(SHORT);
                    if !early && over(outer) && over(inner) {
                        continue;
                    }
                    combination(outer, inner, inner_first, early).await;
                }
            }
        }
    }
}

/// An acquisition is dropped before or after the store has seen it, alone or inside a fixed hold. It is
/// never renewed, and leaves what was there before.
#[tokio::test]
async fn a_cancelled_acquire_is_never_renewed() {
    let valves = [
        (Valve::Open, 1),
        (Valve::Open, 2),
        (Valve::Open, 3),
        (Valve::ClosedBefore, 1),
        (Valve::ClosedAfter, 1),
    ];
    for (valve, polls) in valves {
        for outer in [None, Some(Length::Fixed(SHORT)), Some(Length::Fixed(LONG))] {
            let harness = Harness::new();
            let owner = Owner::new();
            let outer = match outer {
                Some(length) => Some(Kept::take(length, &harness, &owner).await),
                None => None,
            };
            harness.advance(SECOND * 4).await;
            harness.recorder.set(valve);
            {
                let mut cancelled = pin!(Length::Renewed.take(&harness, &owner));
                for _ in 0..polls {
                    if poll_once(cancelled.as_mut()).await.is_some() {
                        break;
                    }
                }
            }
            harness.recorder.set(Valve::Open);
            harness.advance(SECOND).await;
            match outer {
                Some(outer) => {
                    let holder = harness.stranger().inspect().await.unwrap().unwrap();
                    assert_eq!(holder.count, 1);
                    keeps_terms(&harness, &[&outer], LONG).await;
                    assert!(outer.guard.state().is_lost());
                }
                None => assert!(harness.stranger().inspect().await.unwrap().is_none()),
            }
            harness.advance(TTL).await;
            assert_eq!(renewals(&harness), 0, "{valve:?}");
            assert!(harness.client.locks().await.unwrap().is_empty());
        }
    }
}
