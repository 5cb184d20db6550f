//! Acquisitions over a majority, without time: are tokens unique, and larger for who came later?
//!
//! A few attempts, each by a client of its own or by one that has given up those before. A message may
//! take for ever, be lost, or run after its sender gave up; a lease may be over at any moment; a client
//! may hear any majority. So what holds here holds whatever the clocks do.
//!
//! To give up is to hear nothing more, so no step is needed for it. A lease that is over lets others in
//! and its holder write no more. So it is enough that it ends when somebody else is let in.

mod normal;
mod rule;
mod setup;
mod state;
mod steps;
#[cfg(test)]
mod tests;

use std::fmt;

pub use self::setup::{Back, Broken, Setup};
pub use self::state::Packed;
use self::state::{Stand, State};
use super::explore::{Model, Property};

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
        let mut mixes = vec![[0; N]];
        for master in 0..N {
            let mixed = mixes.iter().flat_map(|mix| {
                (0..=self.setup.counters).map(move |counter| {
                    let mut mix = *mix;
                    mix[master] = counter;
                    mix
                })
            });
            mixes = mixed.collect();
        }
        let states = mixes.into_iter();
        let states = states.map(|mix| State::new(mix, self.setup.faults).pack());
        states.collect()
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
        let mut checked = vec![Property::Unique, Property::RealTime, Property::Ownership];
        if self.setup.resource {
            checked.push(Property::Fenced);
        }
        checked.push(Property::Free);
        checked
    }

    fn breaks(&self, state: &Packed<N>, property: Property) -> bool {
        let state = state.unpack();
        match property {
            Property::Free => !state.is_free(self.setup),
            _ => state.broken & bit(property) != 0,
        }
    }

    fn successes(&self, state: &Packed<N>) -> usize {
        state.unpack().standing(&[Stand::Won]).count_ones() as usize
    }
}

/// The bit of a property among what a state says is broken.
fn bit(property: Property) -> u8 {
    1 << property as u8
}

impl<const N: usize> State<N> {
    /// Notes what is broken by the success of an attempt.
    fn note_success(&mut self, late: usize) {
        let one = self.attempts[late];
        for (at, other) in self.attempts.iter().enumerate() {
            if at == late || other.stand != Stand::Won {
                continue;
            }
            if one.token == other.token {
                self.broken |= bit(Property::Unique);
            }
            if one.before & 1 << at != 0 && one.token <= other.token {
                self.broken |= bit(Property::RealTime);
            }
            let grows = match one.owned_before & 1 << at != 0 {
                true => other.token < one.token,
                false => one.token < other.token,
            };
            if !grows {
                self.broken |= bit(Property::Ownership);
            }
        }
    }

    /// Notes what is broken by the resource's acceptance of an attempt.
    fn note_write(&mut self, writer: usize) {
        let mut others = self.attempts.iter();
        if others.any(|other| other.wrote && other.owned_before & 1 << writer != 0) {
            self.broken |= bit(Property::Fenced);
        }
    }
}
