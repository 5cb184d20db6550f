//! Visits every state that a model can reach, breadth first.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;

use foldhash::fast::FixedState;
use indexmap::IndexMap;

/// A property of every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// No two leases are relied on at the same time.
    Exclusion,
    /// No two acquisitions have the same token.
    Unique,
    /// An acquisition that began after another had succeeded has a larger token.
    RealTime,
    /// A later owner of the lock has a larger token.
    Ownership,
    /// A resource that refuses older tokens accepts no earlier owner after a later one.
    Fenced,
    /// When all leases have expired, the lock can be granted. An unwanted lease ends in time. No waiter is left that fits.
    Free,
    /// No node releases a lease of a living client.
    Living,
    /// An action for one lease changes no other.
    Own,
    /// A lost lease never holds the lock again.
    Final,
    /// A silent client keeps its lease as long as a node renews it in time.
    Kept,
    /// No lease is renewed beyond its longest pause or hold. No minimum hold is renewed, or begun by a lost lease.
    Bounded,
    /// A lease lasts as long as a node reports.
    Reported,
    /// A released lock stays taken until the end of its minimum hold.
    Reserved,
    /// A waiter is granted the lock after all that have waited before it, but for a lease that waits to hold more.
    Order,
    /// Readers that hold at the same time have one token. Holders of permits have tokens of their own.
    Phase,
    /// No two leases wait to hold more at the same time: they would wait for each other.
    Conversion,
    /// The sum and the earliest end that the store keeps are those of the leases that hold.
    Summed,
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusion => "exclusion",
            Self::Unique => "unique",
            Self::RealTime => "real time",
            Self::Ownership => "ownership",
            Self::Fenced => "fenced",
            Self::Free => "not stuck",
            Self::Living => "living",
            Self::Own => "own",
            Self::Final => "final",
            Self::Kept => "kept",
            Self::Bounded => "bounded",
            Self::Reported => "reported",
            Self::Reserved => "reserved",
            Self::Order => "in order",
            Self::Phase => "one phase",
            Self::Conversion => "one conversion",
            Self::Summed => "summed",
        })
    }
}

impl Property {
    /// Its bit in a set of those up to [`Self::Reported`].
    pub(crate) const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// Those of the properties that a state violates.
pub(crate) fn violated<const N: usize>(properties: [(Property, bool); N]) -> Vec<Property> {
    let properties = properties.into_iter();
    let violated = properties.filter_map(|(property, violated)| violated.then_some(property));
    violated.collect()
}

/// The callback for a step and the state behind it.
pub(crate) type Take<'a, S> = &'a mut dyn FnMut(&dyn fmt::Display, S);

/// States, and the steps between them.
pub(crate) trait Model {
    /// A state.
    type State: Copy + Eq + Hash;

    /// The initial states.
    fn initial(&self) -> Vec<Self::State>;

    /// Passes every possible step to `take`: its label, and the next state.
    fn steps(&self, state: &Self::State, take: Take<'_, Self::State>);

    /// The one representative of all states that do not differ in anything of interest.
    fn canonical(&self, state: Self::State) -> Self::State {
        state
    }

    /// The properties that a state violates.
    fn violations(&self, state: &Self::State) -> Vec<Property>;

    /// How many acquisitions have succeeded.
    fn successes(&self, state: &Self::State) -> usize;
}

/// The result of an exploration.
#[derive(Debug, Default)]
pub struct ExplorationReport {
    /// How many states were found.
    pub states: usize,
    /// The most acquisitions that succeeded in one of them.
    pub successes: usize,
    /// The violated properties, each with the labels of the steps of a shortest trace.
    pub violated: BTreeMap<Property, Vec<String>>,
}

/// The label of a step of a path that no step of the model makes.
pub(super) const NOT_FOUND: &str = "a step that is not found again";

/// Visits every state of a model, breadth first: so every trace is a shortest one.
///
/// It stops early when `stop_after` properties are violated and two acquisitions have succeeded. `None`: visits all
/// states.
pub(crate) fn explore<M: Model>(model: &M, stop_after: Option<usize>) -> ExplorationReport {
    let mut report = ExplorationReport::default();
    // The states by their numbers, each with the number of its predecessor.
    let mut states = IndexMap::<_, u32, _>::with_hasher(FixedState::default());
    for state in model.initial() {
        states.insert(model.canonical(state), NONE);
    }
    let mut number = 0;
    while let Some((state, _)) = states.get_index(number as usize) {
        let state = *state;
        report.successes = report.successes.max(model.successes(&state));
        for property in model.violations(&state) {
            let trace = report.violated.entry(property);
            trace.or_insert_with(|| trace_of(model, &states, number));
        }
        let is_enough = |count| report.violated.len() >= count && report.successes > 1;
        if stop_after.is_some_and(is_enough) {
            break;
        }
        model.steps(&state, &mut |_, next| {
            states.entry(model.canonical(next)).or_insert(number);
        });
        number += 1;
    }
    report.states = states.len();
    report
}

/// No state.
const NONE: u32 = u32::MAX;

/// Takes the steps with these labels, from the first of the initial states.
///
/// # Errors
///
/// The label of the first step that is not possible.
#[cfg(test)]
pub(crate) fn follow<'a, M: Model>(model: &M, steps: &'a str) -> Result<M::State, &'a str> {
    steps
        .split("; ")
        .try_fold(model.initial()[0], |state, step| {
            let mut reached = None;
            model.steps(&state, &mut |label, next| {
                if label.to_string() == step {
                    reached = Some(next);
                }
            });
            reached.ok_or(step)
        })
}

/// The labels of the steps on the path to a state. The steps are taken again without the canonical form, so that
/// masters keep their numbers from step to step.
fn trace_of<M: Model>(
    model: &M,
    states: &IndexMap<M::State, u32, FixedState>,
    mut number: u32,
) -> Vec<String> {
    let mut path = Vec::new();
    while let Some((state, predecessor)) = states.get_index(number as usize) {
        path.push(*state);
        number = *predecessor;
    }
    let mut labels = Vec::new();
    let first = path.pop();
    let mut initial = model.initial().into_iter();
    let mut state = initial.find(|state| Some(model.canonical(*state)) == first);
    while let (Some(from), Some(next)) = (state, path.pop()) {
        state = None;
        model.steps(&from, &mut |step, reached| {
            if state.is_none() && model.canonical(reached) == next {
                labels.push(step.to_string());
                state = Some(reached);
            }
        });
        if state.is_none() {
            // A canonical form that depends on names leads here.
            labels.push(NOT_FOUND.into());
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds 2 or 3, up to 20; 11 is forbidden.
    struct Sums;

    impl Model for Sums {
        type State = usize;

        fn initial(&self) -> Vec<usize> {
            vec![0]
        }

        fn steps(&self, state: &usize, take: Take<'_, usize>) {
            for add in [2, 3] {
                if state + add <= 20 {
                    take(&format_args!("add {add}"), state + add);
                }
            }
        }

        fn violations(&self, state: &usize) -> Vec<Property> {
            violated([(Property::Unique, *state == 11)])
        }

        fn successes(&self, state: &usize) -> usize {
            *state
        }
    }

    #[test]
    fn every_state_is_visited_and_the_trace_is_a_shortest_one() {
        let report = explore(&Sums, None);
        assert_eq!((report.states, report.successes), (20, 20));
        let trace = ["add 2", "add 3", "add 3", "add 3"].map(String::from);
        assert_eq!(
            report.violated,
            BTreeMap::from([(Property::Unique, trace.into())])
        );
        assert!(explore(&Sums, Some(1)).states < 20);
    }
}
