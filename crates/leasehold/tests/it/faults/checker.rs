//! A checker of all grants of one lock, and the resource that it protects.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{Cause, Guard, LeaseId, Result, State, StateKind};
use leasehold_checker::{Sequence, Violation};

use crate::waiters::SOON;

/// Checks all grants of one lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Checker(Arc<Mutex<Observed>>);

#[derive(Debug, Default)]
struct Observed {
    sequence: Sequence<LeaseId>,
    /// The guard of the last grant, unless it was released.
    last: Weak<Guard>,
    /// The largest token in a write to the resource.
    largest_written: u64,
    /// Whether the store may grant what it has granted already.
    store_forgets: bool,
}

/// A guard whose grant was checked.
#[derive(Debug)]
pub(super) struct HeldLock {
    checker: Checker,
    guard: Option<Arc<Guard>>,
}

impl Checker {
    /// Takes in a grant. The holder before it must have released the lock, or know that it is lost.
    #[track_caller]
    pub(super) fn granted(&self, guard: Guard) -> HeldLock {
        let guard = Arc::new(guard);
        let mut observed = self.observed();
        let last = observed.last.upgrade();
        let ended = last.as_ref().is_none_or(|last| last.state().is_lost());
        if let Some(current) = observed.sequence.current().filter(|_| ended) {
            observed.sequence.ended(current);
        }
        let token = guard.token().get();
        match observed.sequence.acquired(guard.lease_id(), token) {
            Err(Violation::TwoHolders) if observed.store_forgets || guard.state().is_lost() => {}
            outcome => assert_eq!(outcome, Ok(()), "{last:?}, then {guard:?}"),
        }
        observed.last = Arc::downgrade(&guard);
        HeldLock {
            checker: self.clone(),
            guard: Some(guard),
        }
    }

    /// From now on the store has forgotten what it acknowledged: only the resource excludes an old holder.
    pub(super) fn store_forgets(&self) {
        self.observed().store_forgets = true;
    }

    pub(super) fn grants(&self) -> u64 {
        self.observed().sequence.acquisitions()
    }

    /// A write to the resource. Returns whether it was accepted.
    fn write(&self, token: u64) -> bool {
        let mut observed = self.observed();
        let accepted = token >= observed.largest_written;
        observed.largest_written = observed.largest_written.max(token);
        accepted
    }

    fn observed(&self) -> MutexGuard<'_, Observed> {
        // A test that has panicked in here has failed.
        self.0.lock().unwrap()
    }
}

/// Checks that a lease is lost, for one of these reasons.
#[track_caller]
pub(super) fn lost(state: State, causes: &[Cause]) {
    let lost = matches!(state, State::Lost(cause) if causes.contains(&cause));
    assert!(lost, "{state:?}, not lost by {causes:?}");
}

impl HeldLock {
    /// Writes to the resource. Returns whether that was accepted.
    pub(super) fn write(&self) -> bool {
        self.checker.write(self.token().get())
    }

    /// Waits for a state, and returns it.
    #[track_caller]
    pub(super) fn until(&self, wanted: impl Fn(&State) -> bool) -> impl Future<Output = State> {
        let caller = std::panic::Location::caller();
        async move {
            let mut states = self.states();
            let found = async {
                loop {
                    match states.next().await {
                        Some(state) if wanted(&state) => return state,
                        Some(_) => {}
                        None => panic!("{:?}, {caller}", self.state()),
                    }
                }
            };
            let found = tokio::time::timeout(SOON, found).await;
            found.unwrap_or_else(|_| panic!("{:?}, {caller}", self.state()))
        }
    }

    pub(super) async fn until_held(&self) {
        self.until(State::is_held).await;
    }

    /// Waits until the lease is lost, for one of these reasons.
    pub(super) async fn until_lost(&self, causes: &[Cause]) {
        lost(self.until(State::is_lost).await, causes);
    }

    /// Waits until the lease is in jeopardy because the store cannot be reached. A busy machine may pause the holder
    /// before.
    pub(super) async fn until_in_jeopardy(&self) {
        let others = [StateKind::Held, StateKind::Jeopardy(Cause::Paused)];
        let state = self.until(|state| !others.contains(&state.kind()));
        assert_eq!(state.await.kind(), StateKind::Jeopardy(Cause::Unreachable));
    }

    /// Checks that the lease is not lost for a duration, and held after it. A busy machine may put it into jeopardy.
    #[track_caller]
    pub(super) fn assert_stays_held(&self, duration: Duration) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let lost = tokio::time::timeout(duration, self.lost()).await;
            assert!(lost.is_err(), "{lost:?}, {caller}");
            self.until_held().await;
        }
    }

    /// Checks that the lease is held for a duration, without any jeopardy.
    pub(super) async fn assert_never_in_doubt(&self, duration: Duration) {
        let mut states = self.states();
        let first = states.next().await.unwrap();
        assert!(first.is_held(), "{first:?}");
        let change = tokio::time::timeout(duration, states.next()).await;
        assert!(change.is_err(), "{change:?}");
    }

    pub(super) async fn release(mut self) -> Result<()> {
        let guard = self.guard.take().unwrap();
        let guard = {
            // No other grant is checked meanwhile.
            let _observed = self.checker.observed();
            Arc::try_unwrap(guard).unwrap()
        };
        guard.release().await
    }
}

/// As [`HeldLock::assert_stays_held`], of all at the same time.
pub(super) async fn assert_all_stay_held(all: &[HeldLock], duration: Duration) {
    join_all(all.iter().map(|held| held.assert_stays_held(duration))).await;
}

impl Deref for HeldLock {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        self.guard.as_ref().unwrap()
    }
}
