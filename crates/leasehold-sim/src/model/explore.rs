//! Visits every state that a model can reach, the nearest first.

use std::fmt;
use std::hash::Hash;

use super::table::{NONE, Table};

/// What must be true in every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Property {
    /// No two leases are relied on at the same time.
    Exclusion,
    /// No two acquisitions have the same token.
    Unique,
    /// Who began after another had succeeded has a larger token.
    RealTime,
    /// Who owned the lock later has a larger token.
    Ownership,
    /// A resource that refuses older tokens accepts no earlier owner after a later one.
    Fenced,
    /// When all leases are over, somebody can be granted the lock. A lease that nobody wants is over in
    /// time.
    Free,
    /// No node releases a lease of a client that lives.
    Living,
    /// What a node does for one lease changes no other.
    Own,
    /// What does not hold the lock any more never does again.
    Final,
    /// A silent client keeps its lease as long as a node in time looks after it.
    Kept,
    /// No lease is renewed for longer than it may be.
    Bounded,
    /// A lease lasts as long as a node says.
    Told,
}

impl Property {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Exclusion,
        Self::Unique,
        Self::RealTime,
        Self::Ownership,
        Self::Fenced,
        Self::Free,
        Self::Living,
        Self::Own,
        Self::Final,
        Self::Kept,
        Self::Bounded,
        Self::Told,
    ];
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
            Self::Told => "told",
        })
    }
}

/// Something that goes from state to state.
pub trait Model {
    /// All that there is at one moment.
    type State: Copy + Eq + Hash;

    /// Where it may begin.
    fn initial(&self) -> Vec<Self::State>;

    /// Tells every step that can be taken, in words, and where it leads.
    fn steps(&self, state: &Self::State, take: &mut dyn FnMut(&dyn fmt::Display, Self::State));

    /// The same state, with what cannot make a difference left out and in one order.
    fn normal(&self, state: Self::State) -> Self::State;

    /// The properties that it checks.
    fn properties(&self) -> Vec<Property>;

    /// Whether a property is broken in a state.
    fn breaks(&self, state: &Self::State, property: Property) -> bool;

    /// How many acquisitions have succeeded.
    fn successes(&self, state: &Self::State) -> usize;

    /// What was reached in the steps that were told until now, one bit for each thing.
    fn reached(&self) -> u32 {
        0
    }
}

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until<'a> {
    /// When every state was visited.
    Done,
    /// When all of these are broken, if there are any, and two acquisitions have succeeded.
    Broken(&'a [Property]),
}

impl Until<'_> {
    fn is_reached(self, report: &Report) -> bool {
        let Self::Broken(sought) = self else {
            return false;
        };
        let mut open = sought.iter();
        let open = open.any(|property| report.trace(*property).is_none());
        !sought.is_empty() && !open && report.successes > 1
    }
}

/// What was found.
#[derive(Debug)]
pub struct Report {
    /// How many states there are, or were until it stopped.
    pub states: usize,
    /// The most acquisitions that succeeded in one of them.
    pub successes: usize,
    /// What was reached on the way, one bit for each thing.
    pub reached: u32,
    /// What was checked.
    pub checked: Vec<Property>,
    /// What is broken, with one of the shortest ways there.
    pub broken: Vec<(Property, Trace)>,
}

impl Report {
    /// The way to break a property, if there is one.
    #[must_use]
    pub fn trace(&self, property: Property) -> Option<&Trace> {
        let mut broken = self.broken.iter();
        broken
            .find(|(other, _)| *other == property)
            .map(|(_, trace)| trace)
    }
}

/// One step after the other, in words.
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

/// Visits every state of a model, breadth first: what it finds, it finds on a shortest way.
pub fn explore<M: Model>(model: &M, until: Until<'_>) -> Report {
    let mut table = Table::new();
    let mut report = Report {
        states: 0,
        successes: 0,
        reached: 0,
        checked: model.properties(),
        broken: Vec::new(),
    };
    for state in model.initial() {
        table.insert(model.normal(state), NONE);
    }
    let mut number = 0;
    while (number as usize) < table.len() {
        let state = table.state(number);
        look(model, &table, number, &mut report);
        if until.is_reached(&report) {
            break;
        }
        model.steps(&state, &mut |_, next| {
            table.insert(model.normal(next), number);
        });
        number += 1;
    }
    report.states = table.len();
    report.reached = model.reached();
    report
}

/// Looks whether anything is broken in a state that was not before.
fn look<M: Model>(model: &M, table: &Table<M::State>, number: u32, report: &mut Report) {
    let state = table.state(number);
    report.successes = report.successes.max(model.successes(&state));
    for at in 0..report.checked.len() {
        let property = report.checked[at];
        if report.trace(property).is_none() && model.breaks(&state, property) {
            let trace = tell(model, &table.way(number));
            report.broken.push((property, trace));
        }
    }
}

/// Takes these steps, in words as they are told, from the first of the initial states.
///
/// # Errors
///
/// The first step that cannot be taken.
pub fn follow<'a, M: Model>(model: &M, steps: &[&'a str]) -> Result<M::State, &'a str> {
    let mut state = model.initial().first().copied().ok_or("to begin")?;
    for step in steps {
        let mut reached = None;
        model.steps(&state, &mut |told, next| {
            if told.to_string() == *step {
                reached = Some(next);
            }
        });
        state = reached.ok_or(*step)?;
    }
    Ok(state)
}

/// The steps of a way in words. It is walked again without leaving anything out, so that nodes keep
/// their places from step to step.
fn tell<M: Model>(model: &M, way: &[M::State]) -> Trace {
    let mut told = Vec::new();
    let mut initial = model.initial().into_iter();
    let first = initial.find(|state| way.first() == Some(&model.normal(*state)));
    let Some(mut state) = first else {
        return Trace(told);
    };
    for next in &way[1..] {
        let mut taken = None;
        model.steps(&state, &mut |step, reached| {
            if taken.is_none() && model.normal(reached) == *next {
                taken = Some((step.to_string(), reached));
            }
        });
        let Some((step, reached)) = taken else {
            // Only a normal form that depends on names leads here.
            told.push("a step that cannot be found again".into());
            break;
        };
        told.push(step);
        state = reached;
    }
    Trace(told)
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

        fn normal(&self, state: u32) -> u32 {
            state
        }

        fn properties(&self) -> Vec<Property> {
            vec![Property::Unique, Property::Free]
        }

        fn breaks(&self, state: &u32, property: Property) -> bool {
            *state == 11 && property == Property::Unique
        }

        fn successes(&self, state: &u32) -> usize {
            *state as usize
        }
    }

    #[test]
    fn every_state_is_visited_and_the_shortest_way_is_told() {
        let report = explore(&Sums, Until::Done);
        assert_eq!(report.states, 20);
        assert_eq!(report.successes, 20);
        assert_eq!(report.broken.len(), 1);
        let trace = report.trace(Property::Unique).unwrap();
        assert_eq!(trace.0, ["add 2", "add 3", "add 3", "add 3"]);
        assert!(trace.to_string().starts_with("  1. add 2\n"));
        let until = Until::Broken(&[Property::Unique]);
        assert!(explore(&Sums, until).states < 20);
        assert_eq!(explore(&Sums, Until::Broken(&[])).states, 20);
    }
}
