//! Acquisitions over a majority, without time: are tokens unique, and do they grow?
//!
//! Each attempt has a client of its own, or one that has given up its earlier attempts. A message may
//! take any time, be lost, or run after its sender gave up. A lease may expire at any moment. A client
//! may receive the replies of any majority. So the properties hold whatever the clocks do.
//!
//! A client that gives up receives no more replies, so no step is needed for that. A lease that has expired
//! lets other attempts in, and stores no more tokens. So it is enough that it expires when another
//! attempt is granted the lock.

mod reduce;
mod rule;
mod setup;
mod state;
mod steps;
#[cfg(test)]
mod tests;

use std::fmt;

pub use self::setup::{Mutation, Recovery, Setup};
use self::state::{Phase, State};
use super::explore::{Model, Property};
use super::masters::Packed;

/// Acquisitions over `N` masters.
#[derive(Clone, Copy, Debug)]
pub struct Tokens<const N: usize> {
    setup: Setup,
}

impl<const N: usize> Tokens<N> {
    /// A model of this setup.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }
}

impl<const N: usize> Model for Tokens<N> {
    type State = Packed<N>;

    fn initial(&self) -> Vec<Packed<N>> {
        let mut combinations = vec![[0; N]];
        for master in 0..N {
            let longer = combinations.iter().flat_map(|combination| {
                (0..=self.setup.counters).map(move |counter| {
                    let mut combination = *combination;
                    combination[master] = counter;
                    combination
                })
            });
            combinations = longer.collect();
        }
        let states = combinations.into_iter();
        let states = states.map(|counters| State::new(counters, self.setup.faults).pack());
        states.collect()
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
        let mut checked = vec![Property::Unique, Property::RealTime, Property::Ownership];
        if self.setup.resource {
            checked.push(Property::Fenced);
        }
        checked.push(Property::Free);
        checked
    }

    fn violates(&self, state: &Packed<N>, property: Property) -> bool {
        let state: State<N> = state.unpack();
        match property {
            Property::Free => !state.is_free(self.setup),
            _ => state.rest.violated & bit(property) != 0,
        }
    }

    fn successes(&self, state: &Packed<N>) -> usize {
        let state: State<N> = state.unpack();
        state.in_phases(&[Phase::Won]).count_ones() as usize
    }
}

/// The bit of a property among the violated ones of a state.
fn bit(property: Property) -> u8 {
    1 << property as u8
}

impl<const N: usize> State<N> {
    /// Adds the properties that the success of an attempt violates.
    fn check_success(&mut self, late: usize) {
        let one = self.attempts[late];
        for (at, other) in self.attempts.iter().enumerate() {
            if at == late || other.phase != Phase::Won {
                continue;
            }
            if one.token == other.token {
                self.rest.violated |= bit(Property::Unique);
            }
            if one.before & 1 << at != 0 && one.token <= other.token {
                self.rest.violated |= bit(Property::RealTime);
            }
            let grows = match one.owned_before & 1 << at != 0 {
                true => other.token < one.token,
                false => one.token < other.token,
            };
            if !grows {
                self.rest.violated |= bit(Property::Ownership);
            }
        }
    }

    /// Adds the property that the resource's acceptance of an attempt violates.
    fn check_write(&mut self, writer: usize) {
        let mut others = self.attempts.iter();
        if others.any(|other| other.wrote && other.owned_before & 1 << writer != 0) {
            self.rest.violated |= bit(Property::Fenced);
        }
    }
}
