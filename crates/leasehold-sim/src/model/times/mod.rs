//! Leases in time: do two clients ever rely on a lock at once?
//!
//! Time passes in ticks. In a tick, any step may happen any number of times, and messages may take any time.
//! All times are relative, so the exploration has no horizon: it visits every moment of every run.

mod reduce;
mod rule;
mod setup;
mod state;
mod steps;

use std::fmt;

pub use self::setup::{Admission, Deadline, Fault, Setup};
use self::state::{Phase, State};
use super::explore::{Model, Property};
use super::masters::Packed;

/// Leases over `N` masters, or on one store.
#[derive(Clone, Copy, Debug)]
pub struct Times<const N: usize> {
    setup: Setup,
}

impl<const N: usize> Times<N> {
    /// A model of this setup.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }
}

impl<const N: usize> Model for Times<N> {
    type State = Packed<N>;

    fn initial(&self) -> Vec<Packed<N>> {
        vec![State::new(self.setup.faults, self.setup.unused).pack()]
    }

    fn steps(&self, state: &Packed<N>, take: &mut dyn FnMut(&dyn fmt::Display, Packed<N>)) {
        let state: State<N> = state.unpack();
        self.setup
            .steps(&state, &mut |step, next| take(step, next.pack()));
    }

    fn canonical(&self, state: Packed<N>) -> Packed<N> {
        let mut state: State<N> = state.unpack();
        state.reduce(self.setup);
        state.canonical(self.setup.attempts)
    }

    fn properties(&self) -> Vec<Property> {
        vec![Property::Exclusion]
    }

    fn violates(&self, state: &Packed<N>, _property: Property) -> bool {
        let state: State<N> = state.unpack();
        let attempts = state.attempts.iter();
        attempts.filter(|it| it.phase == Phase::Holding).count() > 1
    }

    fn successes(&self, state: &Packed<N>) -> usize {
        let state: State<N> = state.unpack();
        state.rest.won.into()
    }
}
