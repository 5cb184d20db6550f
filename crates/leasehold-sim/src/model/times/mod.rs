//! Leases in time: does ever anybody rely on a lock while somebody else does?
//!
//! Time goes in ticks. In a tick anything may happen any number of times; messages are as slow as they
//! like. Everything is counted from now, so no horizon is needed: every moment of every run is here.

mod normal;
mod rule;
mod setup;
mod state;
mod steps;

use std::fmt;

pub use self::setup::{Admission, Deadline, Fault, Setup};
pub use self::state::Packed;
use self::state::{Stand, State};
use super::explore::{Model, Property};

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
        let state = state.unpack();
        self.setup
            .steps(&state, &mut |step, next| take(step, next.pack()));
    }

    fn normal(&self, state: Packed<N>) -> Packed<N> {
        let mut state = state.unpack();
        state.forget(self.setup);
        state.arranged(self.setup.attempts)
    }

    fn properties(&self) -> Vec<Property> {
        vec![Property::Exclusion]
    }

    fn breaks(&self, state: &Packed<N>, _property: Property) -> bool {
        let state = state.unpack();
        let attempts = state.attempts.iter();
        attempts.filter(|it| it.stand == Stand::Holding).count() > 1
    }

    fn successes(&self, state: &Packed<N>) -> usize {
        state.unpack().won.into()
    }
}
