//! Tokens over a majority.

use super::{Extent, Row};
use crate::model::explore::Property::{self, Fenced, Ownership, RealTime, Unique};
use crate::model::tokens::{Back, Broken, Setup, Tokens};

const ALL: [Property; 3] = [Unique, RealTime, Ownership];

pub(super) fn rows(extent: Extent) -> Vec<Row> {
    let setup = match extent {
        Extent::Short => Setup {
            attempts: 2,
            // What a third attempt could have left behind.
            counters: 2,
            ..Setup::default()
        },
        Extent::Full => Setup::default(),
    };
    let mut rows = vec![
        over::<1>("one store", "one store that keeps what it says", setup),
        over::<3>("majority", "three masters, by the rule", setup).independent("E: 157,954"),
    ];
    rows.extend(whole(setup));
    rows.extend(broken(setup));
    rows.extend(asked_wrongly(setup, extent));
    rows.extend(restarts(setup));
    if extent == Extent::Full {
        rows.extend(larger(setup));
    }
    rows
}

fn over<const N: usize>(key: &'static str, what: &'static str, setup: Setup) -> Row {
    Row::new(key, what, Tokens::<N>::new(setup))
}

/// More of the rule.
fn whole(setup: Setup) -> Vec<Row> {
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
            "refilled",
            "winners ask again on masters that do not have their lease",
            refill,
        ),
        over::<3>(
            "fenced resource",
            "winners write to a resource that refuses older tokens",
            resource,
        )
        .independent("L: 237,385"),
    ]
}

/// One rule of the second phase less.
fn broken(setup: Setup) -> Vec<Row> {
    let without = |broken| Setup {
        broken: Some(broken),
        ..setup
    };
    let stale = Setup {
        resource: true,
        ..without(Broken::WriteByAnybody)
    };
    let row = |key, what, broken| over::<3>(key, what, without(broken));
    vec![
        row(
            "no second phase",
            "the largest token that came with a grant is used",
            Broken::NoSecondPhase,
        )
        .breaks(&ALL)
        .independent("A: 3,289"),
        row(
            "written everywhere",
            "the token is written to all masters, not only to those of the first phase",
            Broken::WriteEverywhere,
        )
        .breaks(&[Ownership])
        .independent("D: 756,874"),
        row(
            "written by anybody",
            "the token is written where it is larger, whoever holds the lock",
            Broken::WriteByAnybody,
        )
        .breaks(&[Ownership])
        .independent("C: 2,531,134"),
        over::<3>(
            "written by anybody, fenced resource",
            "the same, and winners write to a resource",
            stale,
        )
        .breaks(&[Ownership, Fenced])
        .independent("L2: 3,370,714"),
        row(
            "written by anybody or equal",
            "the token is written where it is larger or equal, whoever holds the lock",
            Broken::WriteByAnybodyOrEqual,
        )
        .breaks(&[Unique, Ownership])
        .independent("B: 6,687,742"),
        row(
            "in doubt",
            "who does not know whether a majority took its token uses it",
            Broken::InDoubt,
        )
        .breaks(&ALL),
    ]
}

/// One rule of the first phase less.
fn asked_wrongly(setup: Setup, extent: Extent) -> Vec<Row> {
    let without = |broken| Setup {
        broken: Some(broken),
        ..setup
    };
    let twice = Setup {
        faults: 1,
        ..without(Broken::IdTwice)
    };
    let any: &[Property] = match extent {
        // The third attempt is what sees it.
        Extent::Short => &[Unique, Ownership],
        Extent::Full => &ALL,
    };
    let row = |key, what, broken| over::<3>(key, what, without(broken));
    vec![
        row(
            "read before",
            "counters are read before the grants, which reserve nothing",
            Broken::ReadBefore,
        )
        .independent("S: 2,076,546"),
        row(
            "read before or equal",
            "the same with `>=` for `>`",
            Broken::ReadBeforeOrEqual,
        )
        .breaks(&[Unique, Ownership])
        .independent("S3: 2,518,176"),
        row(
            "read before or any",
            "the same, and the token is written whatever the counter",
            Broken::ReadBeforeOrAny,
        )
        .breaks(any)
        .independent("S1: 2,459,904"),
        over::<3>(
            "id twice",
            "an acquire is sent again after its grant was over",
            twice,
        )
        .breaks(&[Ownership])
        .independent("F: 666,910"),
    ]
}

/// A master is started again.
fn restarts(setup: Setup) -> Vec<Row> {
    // Fewer beginnings: what a master forgets makes the counters differ, too.
    let back = |back| Setup {
        faults: 1,
        counters: 1,
        back,
        ..setup
    };
    let fenced = Setup {
        resource: true,
        ..back(Back::AtOnce)
    };
    let row = |key, what, how| over::<3>(key, what, back(how));
    vec![
        row(
            "restart with data",
            "a master is started again with its data, kept out and admitted",
            Back::WithData,
        ),
        row(
            "restart",
            "a master comes back empty, is kept out and admitted: by the rule",
            Back::Rule,
        )
        .independent("J: 6,517,444"),
        row(
            "restart at once",
            "a master comes back empty and goes on at once",
            Back::AtOnce,
        )
        .breaks(&ALL)
        .independent("G: 137,894"),
        over::<3>(
            "restart at once, fenced resource",
            "the same, and winners write to a resource",
            fenced,
        )
        .breaks(&[Unique, RealTime, Ownership, Fenced])
        .independent("L3: 306,756"),
        row(
            "restart after the ttl",
            "a master comes back empty, and is only kept out",
            Back::AfterTtl,
        )
        .breaks(&ALL)
        .independent("H: 848,419"),
        row(
            "restart caught up",
            "a master comes back empty, and is only admitted by the others",
            Back::CaughtUp,
        )
        .breaks(&ALL)
        .independent("I: 2,722,518"),
        over::<3>(
            "two restarts together",
            "two of three are started again at once, with their data; two attempts",
            Setup {
                attempts: 2,
                faults: 2,
                together: true,
                ..back(Back::WithData)
            },
        ),
    ]
}

/// What takes longer.
fn larger(setup: Setup) -> Vec<Row> {
    let two = Setup {
        attempts: 2,
        ..setup
    };
    let restarted = |back| Setup {
        faults: 1,
        back,
        ..two
    };
    // As few as show it: two of five forget, and a third is not heard.
    let minority = |back| Setup {
        faults: 2,
        counters: 0,
        together: true,
        ..restarted(back)
    };
    vec![
        over::<5>(
            "a minority restarts",
            "two of five come back empty together, by the rule; two attempts, counters from 0",
            minority(Back::Rule),
        ),
        over::<5>(
            "a minority restarts, admitted by anybody",
            "the same, but masters that are not admitted count among the others",
            minority(Back::AdmittedByAnybody),
        )
        .breaks(&ALL),
        over::<3>(
            "majority, four attempts",
            "three masters, by the rule, four attempts",
            Setup {
                attempts: 4,
                ..setup
            },
        )
        .independent("E4: 1,646,426"),
        over::<3>(
            "two restarts",
            "two masters come back empty, one after the other, by the rule; two attempts",
            Setup {
                faults: 2,
                ..restarted(Back::Rule)
            },
        ),
        over::<5>("five masters", "five masters, two attempts", two).independent("N: 353,919"),
        over::<5>(
            "five masters, restart at once",
            "one of five comes back empty and goes on at once",
            restarted(Back::AtOnce),
        )
        .breaks(&ALL)
        .independent("N1: 1,034,815"),
    ]
}
