//! Acquisitions over a majority, without time: are tokens unique, and do they grow?
//!
//! Each attempt has a client of its own, or one that has given up its earlier attempts. A message may
//! take any time, be lost, or run after its sender gave up. A lease may expire at any moment. A client
//! may receive the replies of any majority. So the properties hold whatever the clocks do.
//!
//! An attempt owns the lock once a majority of the masters that store its token hold its lease at the same time, or
//! for a token that is written later, once it has the grants of a majority. If neither happens, its lease has
//! expired before the last grant: its deadline, which this model does not have, is over when it succeeds.
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

use std::array;

pub(crate) use self::setup::{Mutation, Recovery, Tokens};
use self::state::{Master, Phase, Rest, State};
use super::explore::{Model, Property, Take};

impl<const N: usize> Model for Tokens<N> {
    type State = State<N>;

    fn initial(&self) -> Vec<State<N>> {
        let counters = usize::from(self.counters) + 1;
        let rest = Rest {
            faults: self.faults,
            ..Rest::default()
        };
        let combinations = 0..counters.pow(N as u32);
        let states = combinations.map(|combination| {
            let masters = array::from_fn(|master| Master {
                counter: (combination / counters.pow(master as u32) % counters) as u8,
                ..Master::default()
            });
            State::new(masters, rest)
        });
        states.collect()
    }

    fn steps(&self, state: &State<N>, take: Take<'_, State<N>>) {
        self.all_steps(state, take);
    }

    fn canonical(&self, mut state: State<N>) -> State<N> {
        state.reduce(self);
        state.canonical(self.attempts)
    }

    fn violations(&self, state: &State<N>) -> Vec<Property> {
        use Property::{Free, Ownership, RealTime, Unique};
        let is_violated = |property: &Property| match property {
            Free => !state.is_free(self),
            _ => state.rest.violated & property.bit() != 0,
        };
        let all = [Unique, RealTime, Ownership, Free];
        all.into_iter().filter(is_violated).collect()
    }

    fn successes(&self, state: &State<N>) -> usize {
        state.in_phases(&[Phase::Won]).count_ones() as usize
    }
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
                self.rest.violated |= Property::Unique.bit();
            }
            if one.before & 1 << at != 0 && one.token <= other.token {
                self.rest.violated |= Property::RealTime.bit();
            }
            let grows = match one.owned_before & 1 << at != 0 {
                true => other.token < one.token,
                false => one.token < other.token,
            };
            if one.owned && other.owned && !grows {
                self.rest.violated |= Property::Ownership.bit();
            }
        }
    }
}
