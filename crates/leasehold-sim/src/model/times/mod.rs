//! Leases in time: do two clients ever rely on a lock at once?
//!
//! Time passes in ticks. In a tick, any step may happen any number of times, and messages may take any time.
//! All times are relative, so the exploration has no horizon: it visits every moment of every run.

mod rule;
mod setup;
mod state;
mod steps;

pub(crate) use self::setup::{Admission, Deadline, Fault, Times};
use self::state::{Master, Phase, Rest, State};
use super::explore::{Model, Property, Take, violated};

impl<const N: usize> Model for Times<N> {
    type State = State<N>;

    fn initial(&self) -> Vec<State<N>> {
        let master = Master {
            kept_out: u8::from(self.unused),
            ..Master::default()
        };
        let faults = self.faults;
        vec![State::new([master; N], Rest { faults, won: 0 })]
    }

    fn steps(&self, state: &State<N>, take: Take<'_, State<N>>) {
        self.all_steps(state, take);
    }

    fn canonical(&self, mut state: State<N>) -> State<N> {
        state.reduce(self);
        state.canonical(self.attempts)
    }

    fn violations(&self, state: &State<N>) -> Vec<Property> {
        let attempts = state.attempts.iter();
        let holders = attempts.filter(|attempt| attempt.phase == Phase::Holding);
        violated([(Property::Exclusion, holders.count() > 1)])
    }

    fn successes(&self, state: &State<N>) -> usize {
        state.rest.won.into()
    }
}
