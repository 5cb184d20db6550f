//! The variants on tokens.

use super::{Extent, Row};
use crate::model::explore::Property::{self, Fenced, Ownership, RealTime, Unique};
use crate::model::tokens::{Mutation, Recovery, Setup, Tokens};

const ALL: [Property; 3] = [Unique, RealTime, Ownership];

pub(super) fn rows(extent: Extent) -> Vec<Row> {
    let setup = match extent {
        Extent::Short => Setup {
            attempts: 2,
            // A third attempt could have written this.
            counters: 2,
            ..Setup::default()
        },
        Extent::Full => Setup::default(),
    };
    let mut rows = vec![
        over::<1>("one store that keeps its data", setup),
        over::<3>("three masters, by the rule", setup).independent("E: 157,954"),
    ];
    rows.extend(extensions(setup));
    rows.extend(write_mutations(setup));
    rows.extend(acquire_mutations(setup, extent));
    rows.extend(restarts(setup));
    if extent == Extent::Full {
        rows.extend(larger(setup));
    }
    rows
}

fn over<const N: usize>(what: &'static str, setup: Setup) -> Row {
    Row::new(what, Tokens::<N>::new(setup))
}

/// Further parts of the rule.
fn extensions(setup: Setup) -> Vec<Row> {
    let refill = Setup {
        refill: true,
        ..setup
    };
    let resource = Setup {
        resource: true,
        ..setup
    };
    vec![
        over::<3>(
            "winners repeat their acquires on masters that do not have their lease",
            refill,
        ),
        over::<3>(
            "winners write to a resource that refuses older tokens",
            resource,
        )
        .independent("L: 237,385"),
    ]
}

/// Mutations of the second phase.
fn write_mutations(setup: Setup) -> Vec<Row> {
    let without = |mutation| Setup {
        mutation: Some(mutation),
        ..setup
    };
    let stale = Setup {
        resource: true,
        ..without(Mutation::WriteUnheld)
    };
    let row = |what, mutation| over::<3>(what, without(mutation));
    vec![
        row(
            "the largest token of the grants is used",
            Mutation::NoSecondPhase,
        )
        .breaks(&ALL)
        .independent("A: 3,289"),
        row(
            "the token is written to all masters, not only to those of the first phase",
            Mutation::WriteEverywhere,
        )
        .breaks(&[Ownership])
        .independent("D: 756,874"),
        row(
            "the token is stored where it is larger, whatever lease holds the lock",
            Mutation::WriteUnheld,
        )
        .breaks(&[Ownership])
        .independent("C: 2,531,134"),
        over::<3>("the same, and winners write to a resource", stale)
            .breaks(&[Ownership, Fenced])
            .independent("L2: 3,370,714"),
        row(
            "the token is stored where it is larger or equal, whatever lease holds the lock",
            Mutation::WriteUnheldOrEqual,
        )
        .breaks(&[Unique, Ownership])
        .independent("B: 6,687,742"),
        row(
            "a token is used although it is unknown whether a majority has stored it",
            Mutation::InDoubt,
        )
        .breaks(&ALL),
    ]
}

/// Mutations of the first phase.
fn acquire_mutations(setup: Setup, extent: Extent) -> Vec<Row> {
    let without = |mutation| Setup {
        mutation: Some(mutation),
        ..setup
    };
    let twice = Setup {
        faults: 1,
        ..without(Mutation::IdTwice)
    };
    let any: &[Property] = match extent {
        // Only a third attempt notices it.
        Extent::Short => &[Unique, Ownership],
        Extent::Full => &ALL,
    };
    let row = |what, mutation| over::<3>(what, without(mutation));
    vec![
        row(
            "counters are read before the grants, which reserve nothing",
            Mutation::ReadBefore,
        )
        .independent("S: 2,076,546"),
        row("the same with `>=` for `>`", Mutation::ReadBeforeOrEqual)
            .breaks(&[Unique, Ownership])
            .independent("S3: 2,518,176"),
        row(
            "the same, and the token is stored whatever the counter",
            Mutation::ReadBeforeOrAny,
        )
        .breaks(any)
        .independent("S1: 2,459,904"),
        over::<3>("an acquire is repeated after its grant was over", twice)
            .breaks(&[Ownership])
            .independent("F: 666,910"),
    ]
}

/// A master is restarted.
fn restarts(setup: Setup) -> Vec<Row> {
    // Fewer initial counters: an empty master makes them differ, too.
    let with = |recovery| Setup {
        faults: 1,
        counters: 1,
        recovery,
        ..setup
    };
    let fenced = Setup {
        resource: true,
        ..with(Recovery::AtOnce)
    };
    let row = |what, recovery| over::<3>(what, with(recovery));
    vec![
        row(
            "a master is restarted with its data, kept out and admitted",
            Recovery::WithData,
        ),
        row(
            "a master is restarted empty, kept out and admitted: by the rule",
            Recovery::Rule,
        )
        .independent("J: 6,517,444"),
        row(
            "a master is restarted empty and goes on at once",
            Recovery::AtOnce,
        )
        .breaks(&ALL)
        .independent("G: 137,894"),
        over::<3>("the same, and winners write to a resource", fenced)
            .breaks(&[Unique, RealTime, Ownership, Fenced])
            .independent("L3: 306,756"),
        row(
            "a master is restarted empty, and only kept out",
            Recovery::AfterTtl,
        )
        .breaks(&ALL)
        .independent("H: 848,419"),
        row(
            "a master is restarted empty, and only admitted by the others",
            Recovery::CaughtUp,
        )
        .breaks(&ALL)
        .independent("I: 2,722,518"),
        over::<3>(
            "two of three are restarted at once, with their data; two attempts",
            Setup {
                attempts: 2,
                faults: 2,
                together: true,
                ..with(Recovery::WithData)
            },
        ),
    ]
}

/// Larger models.
fn larger(setup: Setup) -> Vec<Row> {
    let two = Setup {
        attempts: 2,
        ..setup
    };
    let restarted = |recovery| Setup {
        faults: 1,
        recovery,
        ..two
    };
    // The smallest model that shows it: two of five are empty, and a third does not reply.
    let minority = |recovery| Setup {
        faults: 2,
        counters: 0,
        together: true,
        ..restarted(recovery)
    };
    vec![
        over::<5>(
            "two of five are restarted empty together, by the rule; two attempts, counters from 0",
            minority(Recovery::Rule),
        ),
        over::<5>(
            "the same, but masters that are not admitted count among the others",
            minority(Recovery::AdmittedByAll),
        )
        .breaks(&ALL),
        over::<3>(
            "three masters, by the rule, four attempts",
            Setup {
                attempts: 4,
                ..setup
            },
        )
        .independent("E4: 1,646,426"),
        over::<3>(
            "two masters are restarted empty, one after the other, by the rule; two attempts",
            Setup {
                faults: 2,
                ..restarted(Recovery::Rule)
            },
        ),
        over::<5>("five masters, two attempts", two).independent("N: 353,919"),
        over::<5>(
            "one of five is restarted empty and goes on at once",
            restarted(Recovery::AtOnce),
        )
        .breaks(&ALL)
        .independent("N1: 1,034,815"),
    ]
}
