//! Every interleaving of a few candidates, a failover that loses the last writes, and an observer.

use std::collections::HashSet;

use super::*;
use crate::fixture::lease;

/// How many leases are granted at most.
const LEASES: u64 = 3;

/// How many failovers there are at most.
const FAILOVERS: u8 = 1;

/// A server. Its replica has an earlier state of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Server {
    holder: Option<(u64, u64)>,
    counter: u64,
    /// The lease, its token and the number of the value.
    value: Option<(u64, u64, u8)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    master: Server,
    replica: Server,
    /// The last master, which may still reply to an observer.
    deposed: Option<Server>,
    leases: u64,
    failovers: u8,
    filter: LeaderFilter,
    /// The largest term that the observer has reported, its lease and the number of its value.
    reported: Option<(Token, LeaseId, u64)>,
}

/// The rule of the observer: as shipped, or broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Shipped,
    /// It tells a leader of an earlier term.
    GoesBack,
    /// It forgets the terms when there is no leader.
    Forgets,
    /// It tells a value whose lease does not hold the lock.
    AnyValue,
    /// It tells nothing after a failover.
    Silent,
    /// It does not compare the numbers of values.
    AnyNumber,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Violation {
    TermFell,
    TermOfTwoLeases,
    ValueWentBack,
    PhantomLeader,
    LeaderNotTold,
}

impl World {
    /// The worlds after one step.
    fn steps(&self) -> Vec<Self> {
        let mut next = Vec::new();
        let mut step = |change: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            change(&mut world);
            if world != *self {
                next.push(world);
            }
        };
        match self.master.holder {
            None if self.leases < LEASES => step(&|world| {
                world.leases += 1;
                // No clock protects the tokens here: a lost counter repeats them.
                world.master.counter += 1;
                world.master.holder = Some((world.leases, world.master.counter));
            }),
            None => {}
            Some((lease, token)) => {
                // A write without a reply may be applied late.
                for value in 0..2 {
                    step(&|world| world.master.value = Some((lease, token, value)));
                }
                step(&|world| world.master.holder = None);
            }
        }
        step(&|world| world.replica = world.master.clone());
        if self.failovers < FAILOVERS {
            step(&|world| {
                world.failovers += 1;
                world.deposed = Some(world.master.clone());
                world.master = world.replica.clone();
            });
        }
        step(&|world| world.deposed = None);
        next
    }

    /// The observer reads a server.
    fn read(&mut self, server: &Server, rule: Rule) -> Vec<Violation> {
        let holder = server.holder.map(|(number, _)| lease(number));
        let value = server.value.map(|(number, token, value)| Annotation {
            lease: lease(number),
            token: Token::new(token).unwrap(),
            text: match rule {
                Rule::AnyNumber => format!("0 {value}").into(),
                _ => format!("{value} {value}").into(),
            },
        });
        let seen = match rule {
            Rule::AnyValue => value.as_ref().map(|value| value.lease),
            _ => holder,
        };
        if rule == Rule::GoesBack {
            self.filter = LeaderFilter::default();
        }
        let reported = match rule {
            Rule::Silent if self.failovers > 0 => None,
            _ => self.filter.handle(seen, value.as_ref()),
        };
        if rule == Rule::Forgets && reported == Some(None) {
            self.filter = LeaderFilter::default();
        }
        let leader = Leader::of(holder, value.as_ref());
        let mut violations = Vec::new();
        let is_later = |leader: &Leader| self.reported.is_none_or(|(term, ..)| leader.term > term);
        if leader.as_ref().is_some_and(is_later) && reported != Some(leader.clone()) {
            violations.push(Violation::LeaderNotTold);
        }
        if let Some(Some(reported)) = reported {
            let of = |leader: &Leader| (leader.term, leader.lease);
            if Some(of(&reported)) != leader.as_ref().map(of) {
                violations.push(Violation::PhantomLeader);
            }
            let value = reported.value.parse().unwrap();
            match self.reported {
                Some((term, ..)) if reported.term < term => violations.push(Violation::TermFell),
                Some((term, lease, _)) if reported.term == term && reported.lease != lease => {
                    violations.push(Violation::TermOfTwoLeases);
                }
                Some((term, _, last)) if reported.term == term && value < last => {
                    violations.push(Violation::ValueWentBack);
                }
                _ => {}
            }
            self.reported = self
                .reported
                .max(Some((reported.term, reported.lease, value)));
        }
        violations
    }
}

/// Visits every world. Returns how many there are, and what is violated.
fn explore(rule: Rule) -> (usize, HashSet<Violation>) {
    let mut violations = HashSet::new();
    let mut found = HashSet::from([World::default()]);
    let mut open = vec![World::default()];
    while let Some(world) = open.pop() {
        let mut next = world.steps();
        for server in [Some(&world.master), world.deposed.as_ref()]
            .into_iter()
            .flatten()
        {
            let mut read = world.clone();
            violations.extend(read.read(server, rule));
            next.push(read);
        }
        for world in next {
            if found.insert(world.clone()) {
                open.push(world);
            }
        }
        if rule != Rule::Shipped && !violations.is_empty() {
            break;
        }
    }
    (found.len(), violations)
}

#[test]
fn terms_never_fall_and_each_leader_holds_the_lock() {
    let (worlds, violations) = explore(Rule::Shipped);
    assert_eq!(violations, HashSet::new());
    assert!(worlds > 10_000, "{worlds}");
}

#[test]
fn broken_rules_are_noticed() {
    for rule in [
        Rule::GoesBack,
        Rule::Forgets,
        Rule::AnyValue,
        Rule::Silent,
        Rule::AnyNumber,
    ] {
        let (_, violations) = explore(rule);
        assert!(!violations.is_empty(), "{rule:?}");
    }
}

#[test]
fn an_observer_reports_each_change_once() {
    let value = |number, token, text: &str| Annotation {
        lease: lease(number),
        token: Token::new(token).unwrap(),
        text: text.into(),
    };
    let (first, second) = (value(1, 10, "9 a"), value(2, 20, "1 b"));
    let mut filter = LeaderFilter::default();
    let mut tell = |holder: Option<u64>, value: Option<&Annotation>| {
        let reported = filter.handle(holder.map(lease), value)?;
        Some(reported.map_or("none".to_owned(), |leader| leader.value.to_string()))
    };
    assert_eq!(tell(None, None).as_deref(), Some("none"));
    assert_eq!(tell(Some(1), None), None);
    assert_eq!(tell(Some(1), Some(&first)).as_deref(), Some("a"));
    assert_eq!(tell(Some(1), Some(&first)), None);
    let other_value = value(1, 10, "10 a2");
    assert_eq!(tell(Some(1), Some(&other_value)).as_deref(), Some("a2"));
    // A late write has brought the earlier value back.
    assert_eq!(tell(Some(1), Some(&first)), None);
    // The successor has not proclaimed its value yet.
    assert_eq!(tell(Some(2), Some(&first)).as_deref(), Some("none"));
    assert_eq!(tell(Some(2), Some(&second)).as_deref(), Some("b"));
    // A failover brings the first leader back: the observer does not report it, neither before nor after nobody leads.
    assert_eq!(tell(Some(1), Some(&first)).as_deref(), Some("none"));
    assert_eq!(tell(None, None), None);
    assert_eq!(tell(Some(1), Some(&first)), None);
    assert_eq!(
        tell(Some(3), Some(&value(3, 21, "1 c"))).as_deref(),
        Some("c")
    );
}

#[test]
fn a_value_is_any_text_behind_its_number() {
    for (number, value) in [
        (0, ""),
        (7, " a  b\n"),
        (u64::MAX, "1 2"),
        (10, "\u{1f512}"),
    ] {
        let value = value.into();
        let proclamation = Proclamation { number, value };
        let text = proclamation.to_text();
        assert_eq!(Proclamation::parse(&text), Some(proclamation));
    }
    for other in [
        "",
        "7",
        "a:1",
        " 7 a",
        "+7 a",
        "07 a",
        "-1 a",
        "18446744073709551616 a",
    ] {
        assert_eq!(Proclamation::parse(other), None, "{other}");
    }
}
