//! What an observer reads of a name: the state of a lock, or of a latch.

use std::hash::Hash;
use std::time::Duration;

use leasehold_core::AnnotationKind;

use crate::Result;
use crate::store::{BoxFuture, Changed, Key, LatchObservation, Observation, Store};

/// A part of the state of a name.
pub(crate) trait Observed: Clone + Eq + Hash + Send + Sync + 'static {
    /// What is read.
    type State: Send + Sync + 'static;

    /// Reads it, and has its next change notified.
    fn read<'a>(&'a self, store: &'a dyn Store, key: &'a Key)
    -> BoxFuture<'a, Result<Self::State>>;

    /// Takes the next change out of a state. Also returns the time until a lease in it ends, which is no push.
    fn next_change(state: &mut Self::State) -> (Option<Changed>, Option<Duration>);
}

/// The holder of a lock, the number of its waiters, and the annotation of this kind.
impl Observed for AnnotationKind {
    type State = Observation;

    fn read<'a>(
        &'a self,
        store: &'a dyn Store,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Observation>> {
        store.observe(key, self)
    }

    fn next_change(state: &mut Observation) -> (Option<Changed>, Option<Duration>) {
        let time_left = state.holder.map(|(_, time_left)| time_left);
        (state.changed.take(), time_left)
    }
}

/// The status of a latch.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct LatchState;

impl Observed for LatchState {
    type State = LatchObservation;

    fn read<'a>(
        &'a self,
        store: &'a dyn Store,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<LatchObservation>> {
        store.observe_latch(key)
    }

    fn next_change(state: &mut LatchObservation) -> (Option<Changed>, Option<Duration>) {
        (state.changed.take(), None)
    }
}
