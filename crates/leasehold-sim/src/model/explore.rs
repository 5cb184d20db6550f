//! Visits every state that a model can reach, breadth first.

use std::fmt;
use std::hash::Hash;

use super::table::{NONE, Table};

/// A property of every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// When all leases have expired, the lock can be granted. An unwanted lease ends in time.
    Free,
    /// No node releases a lease of a living client.
    Living,
    /// An action for one lease changes no other.
    Own,
    /// A lost lease never holds the lock again.
    Final,
    /// A silent client keeps its lease as long as a node renews it in time.
    Kept,
    /// No lease is renewed beyond its longest pause or hold.
    Bounded,
    /// A lease lasts as long as a node reports.
    Reported,
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
        })
    }
}

/// States, and the steps between them.
pub trait Model {
    /// A state.
    type State: Copy + Eq + Hash;

    /// The initial states.
    fn initial(&self) -> Vec<Self::State>;

    /// Passes every possible step to `take`: its label, and the next state.
    fn steps(&self, state: &Self::State, take: &mut dyn FnMut(&dyn fmt::Display, Self::State));

    /// The one representative of all states that do not differ in anything of interest.
    fn canonical(&self, state: Self::State) -> Self::State;

    /// The properties that it checks.
    fn properties(&self) -> Vec<Property>;

    /// Whether a state violates a property.
    fn violates(&self, state: &Self::State, property: Property) -> bool;

    /// How many acquisitions have succeeded.
    fn successes(&self, state: &Self::State) -> usize;

    /// The milestones that the steps so far have reached, one bit for each.
    fn reached(&self) -> u32 {
        0
    }
}

/// When an exploration stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until<'a> {
    /// When every state was visited.
    Done,
    /// When all of these are violated, if there are any, and two acquisitions have succeeded.
    Violated(&'a [Property]),
}

impl Until<'_> {
    fn is_reached(self, report: &Report) -> bool {
        let Self::Violated(sought) = self else {
            return false;
        };
        let mut open = sought.iter();
        let open = open.any(|property| report.trace(*property).is_none());
        !sought.is_empty() && !open && report.successes > 1
    }
}

/// The result of an exploration.
#[derive(Debug)]
pub struct Report {
    /// How many states were found.
    pub states: usize,
    /// The most acquisitions that succeeded in one of them.
    pub successes: usize,
    /// The milestones that were reached, one bit for each.
    pub reached: u32,
    /// The properties that were checked.
    pub checked: Vec<Property>,
    /// The violated properties, each with a shortest trace.
    pub violated: Vec<(Property, Trace)>,
}

impl Report {
    /// The trace to a violation of a property, if there is one.
    #[must_use]
    pub fn trace(&self, property: Property) -> Option<&Trace> {
        let mut violated = self.violated.iter();
        violated
            .find(|(other, _)| *other == property)
            .map(|(_, trace)| trace)
    }
}

/// The label of a step of a path that no step of the model makes.
pub(super) const NOT_FOUND: &str = "a step that is not found again";

/// The labels of steps, in their order.
#[derive(Debug, PartialEq, Eq)]
pub struct Trace(pub Vec<String>);

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            writeln!(f, "{:>3}. {step}", at + 1)?;
        }
        Ok(())
    }
}

/// Visits every state of a model, breadth first: so every trace is a shortest one.
pub fn explore<M: Model>(model: &M, until: Until<'_>) -> Report {
    let mut table = Table::new();
    let mut report = Report {
        states: 0,
        successes: 0,
        reached: 0,
        checked: model.properties(),
        violated: Vec::new(),
    };
    for state in model.initial() {
        table.insert(model.canonical(state), NONE);
    }
    let mut number = 0;
    while (number as usize) < table.len() {
        let state = table.state(number);
        check(model, &table, number, &mut report);
        if until.is_reached(&report) {
            break;
        }
        model.steps(&state, &mut |_, next| {
            table.insert(model.canonical(next), number);
        });
        number += 1;
    }
    report.states = table.len();
    report.reached = model.reached();
    report
}

/// Adds the properties that this state is the first to violate.
fn check<M: Model>(model: &M, table: &Table<M::State>, number: u32, report: &mut Report) {
    let state = table.state(number);
    report.successes = report.successes.max(model.successes(&state));
    for at in 0..report.checked.len() {
        let property = report.checked[at];
        if report.trace(property).is_none() && model.violates(&state, property) {
            let trace = trace(model, &table.path(number));
            report.violated.push((property, trace));
        }
    }
}

/// Takes the steps with these labels, from the first of the initial states.
///
/// # Errors
///
/// The label of the first step that is not possible.
pub fn follow<'a, M: Model>(model: &M, steps: &[&'a str]) -> Result<M::State, &'a str> {
    let mut state = model.initial().first().copied().ok_or("to begin")?;
    for step in steps {
        let mut reached = None;
        model.steps(&state, &mut |label, next| {
            if label.to_string() == *step {
                reached = Some(next);
            }
        });
        state = reached.ok_or(*step)?;
    }
    Ok(state)
}

/// The labels of the steps of a path. The steps are taken again without the canonical form, so that masters keep
/// their numbers from step to step.
fn trace<M: Model>(model: &M, path: &[M::State]) -> Trace {
    let mut labels = Vec::new();
    let mut initial = model.initial().into_iter();
    let first = initial.find(|state| path.first() == Some(&model.canonical(*state)));
    let Some(mut state) = first else {
        return Trace(labels);
    };
    for next in &path[1..] {
        let mut taken = None;
        model.steps(&state, &mut |step, reached| {
            if taken.is_none() && model.canonical(reached) == *next {
                taken = Some((step.to_string(), reached));
            }
        });
        let Some((step, reached)) = taken else {
            // A canonical form that depends on names leads here.
            labels.push(NOT_FOUND.into());
            break;
        };
        labels.push(step);
        state = reached;
    }
    Trace(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds 2 or 3, up to 20; 11 is forbidden.
    struct Sums;

    impl Model for Sums {
        type State = u32;

        fn initial(&self) -> Vec<u32> {
            vec![0]
        }

        fn steps(&self, state: &u32, take: &mut dyn FnMut(&dyn fmt::Display, u32)) {
            for add in [2, 3] {
                if state + add <= 20 {
                    take(&format_args!("add {add}"), state + add);
                }
            }
        }

        fn canonical(&self, state: u32) -> u32 {
            state
        }

        fn properties(&self) -> Vec<Property> {
            vec![Property::Unique, Property::Free]
        }

        fn violates(&self, state: &u32, property: Property) -> bool {
            *state == 11 && property == Property::Unique
        }

        fn successes(&self, state: &u32) -> usize {
            *state as usize
        }
    }

    #[test]
    fn every_state_is_visited_and_the_trace_is_a_shortest_one() {
        let report = explore(&Sums, Until::Done);
        assert_eq!(report.states, 20);
        assert_eq!(report.successes, 20);
        assert_eq!(report.violated.len(), 1);
        let trace = report.trace(Property::Unique).unwrap();
        assert_eq!(trace.0, ["add 2", "add 3", "add 3", "add 3"]);
        assert!(trace.to_string().starts_with("  1. add 2\n"));
        let until = Until::Violated(&[Property::Unique]);
        assert!(explore(&Sums, until).states < 20);
        assert_eq!(explore(&Sums, Until::Violated(&[])).states, 20);
    }
}
