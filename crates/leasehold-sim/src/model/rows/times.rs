//! The variants on exclusion.

use std::time::Duration;

use super::{Extent, Row};
use crate::model::explore::Property::Exclusion;
use crate::model::times::{Admission, Deadline, Fault, Setup, Times};

pub(super) fn rows(extent: Extent) -> Vec<Row> {
    let attempts = match extent {
        Extent::Short => 2,
        Extent::Full => 3,
    };
    let setup = Setup {
        attempts,
        ..Setup::default()
    };
    let mut rows = deadlines(setup);
    rows.extend(faults(setup));
    rows.extend(admissions(setup));
    rows.extend(drift(setup));
    rows.extend(renewals(setup));
    rows
}

fn over<const N: usize>(what: &'static str, setup: Setup) -> Row {
    Row::new(what, Times::<N>::new(setup))
}

fn deadlines(setup: Setup) -> Vec<Row> {
    let by = |deadline| Setup { deadline, ..setup };
    vec![
        over::<1>("one store, deadlines by the rule", setup),
        over::<3>("three masters, deadlines by the rule", setup).independent("1: 4,127,608"),
        over::<3>(
            "the deadline counts from the arrival of the reply",
            by(Deadline::FromReply),
        )
        .breaks(&[Exclusion])
        .independent("2: 1,356,324"),
        over::<3>(
            "holders do not read their clocks; only tokens help",
            by(Deadline::Never),
        )
        .breaks(&[Exclusion])
        .independent("3: 1,354,239"),
    ]
}

fn faults(setup: Setup) -> Vec<Row> {
    let after = |fault| Setup {
        faults: 1,
        fault,
        ..setup
    };
    vec![
        over::<3>(
            "a master is restarted empty and kept out by the rule",
            after(Fault::Restart),
        )
        .independent("8: 23,578,696"),
        over::<3>(
            "a master is restarted empty and goes on at once",
            after(Fault::RestartAtOnce),
        )
        .breaks(&[Exclusion])
        .independent("6: 1,094,607"),
        over::<3>(
            "a master is restarted empty and kept out for a tick less than the ttl",
            after(Fault::RestartEarly),
        )
        .breaks(&[Exclusion])
        .independent("7: 9,043,010"),
        over::<3>("the clock of a master jumps", after(Fault::Jump))
            .breaks(&[Exclusion])
            .independent("9: 1,002,357"),
        over::<1>(
            "one store is restarted empty and goes on at once",
            after(Fault::RestartAtOnce),
        )
        .breaks(&[Exclusion]),
    ]
}

/// A master that may be empty is admitted by the replies of some others.
fn admissions(setup: Setup) -> Vec<Row> {
    let after = |fault, admission| Setup {
        faults: 1,
        fault,
        admission,
        ..setup
    };
    let first = |admission| Setup {
        unused: true,
        ..after(Fault::Flush, admission)
    };
    let row = |what, setup| over::<3>(what, setup);
    vec![
        row(
            "a master is flushed, or exchanged for a server that has run for long; admitted by the rule",
            after(Fault::Flush, Admission::Rule),
        ),
        row(
            "the same, but if no other replies, silent masters count as unused",
            after(Fault::Flush, Admission::NoReply),
        )
        .breaks(&[Exclusion]),
        row(
            "the same, but if one other replies, the silent master counts as unused",
            after(Fault::Flush, Admission::OneReply),
        )
        .breaks(&[Exclusion]),
        row(
            "a master is restarted with an old snapshot, and admitted by the rule",
            after(Fault::OldData, Admission::Rule),
        ),
        row(
            "the same, but it is admitted at once because its server now syncs each write",
            after(Fault::OldData, Admission::CurrentSetting),
        )
        .breaks(&[Exclusion]),
        row(
            "a master is made a replica of an old copy of itself, and then a master again; admitted by the rule",
            after(Fault::OldCopy, Admission::Rule),
        ),
        row(
            "the same, but its record fits because its process was not restarted",
            after(Fault::OldCopy, Admission::SameProcess),
        )
        .breaks(&[Exclusion]),
        row(
            "masters that were never used are admitted, and one is flushed",
            first(Admission::Rule),
        ),
        row(
            "the same, but one is admitted by a decision from before it was flushed",
            first(Admission::Unchecked),
        )
        .breaks(&[Exclusion]),
    ]
}

/// The allowance for drift is two ticks here, so a lease of four is relied on for two.
fn drift(setup: Setup) -> Vec<Row> {
    let fine = Setup {
        tick: Duration::from_millis(1),
        ttl: 4,
        ..setup
    };
    let fast = |gain| Setup { gain, ..fine };
    vec![
        over::<3>(
            "every master's clock gains as much as the rule allows for",
            fast(2),
        )
        .independent("5: 25,023,503"),
        over::<3>(
            "the same, and a master is restarted empty and kept out by the rule",
            Setup {
                faults: 1,
                ..fast(2)
            },
        ),
        over::<3>("every master's clock gains a tick more than that", fast(3)).breaks(&[Exclusion]),
        over::<3>(
            "every master's clock gains a tick, and deadlines do not allow for it",
            Setup {
                deadline: Deadline::WithoutMargin,
                ..fast(1)
            },
        )
        .breaks(&[Exclusion])
        .independent("4: 3,862,114"),
    ]
}

fn renewals(setup: Setup) -> Vec<Row> {
    let renewed = Setup {
        renewed: true,
        ..setup
    };
    let after = |fault| Setup {
        faults: 1,
        fault,
        ..renewed
    };
    vec![
        over::<3>(
            "leases are renewed, and acquired again where they were lost",
            renewed,
        )
        .independent("12: 4,627,886"),
        over::<3>(
            "the same, and a master is restarted empty and kept out by the rule",
            after(Fault::Restart),
        )
        .independent("13: 26,189,677"),
        over::<3>(
            "the same, and the clock of a master jumps",
            after(Fault::Jump),
        )
        .breaks(&[Exclusion])
        .independent("14: 1,037,426"),
        over::<3>(
            "the same, and every master's clock gains as much as the rule allows for",
            Setup {
                tick: Duration::from_millis(1),
                ttl: 4,
                gain: 2,
                ..renewed
            },
        ),
    ]
}
