//! The variants on tokens.

use super::{Extent, Row, Variant};
use crate::model::tokens::{Mutation, Recovery, Tokens};

fn base<const N: usize>(extent: Extent) -> Tokens<N> {
    match extent {
        Extent::Short => Tokens {
            attempts: 2,
            // A third attempt could have written this.
            counters: 2,
            ..Tokens::RULE
        },
        Extent::Full => Tokens::RULE,
    }
}

pub(super) fn rows(extent: Extent) -> Vec<Row> {
    let rule = base::<3>(extent);
    let without = |mutation| rule.with(|setup| setup.mutation = Some(mutation));
    let fenced = |setup: Tokens<3>| setup.with(|setup| setup.resource = true);
    // Fewer initial counters: an empty master makes them differ, too.
    let restarted = rule.with(|setup| (setup.faults, setup.counters) = (1, 1));
    let after = |recovery| restarted.with(|setup| setup.recovery = recovery);
    let mut rows = vec![
        base::<1>(extent).row("one store that keeps its data"),
        rule.row("three masters, by the rule"),
        rule.with(|setup| setup.refill = true)
            .row("winners repeat their acquires on masters that do not have their lease"),
        fenced(rule).row("winners write to a resource that refuses older tokens"),
        // The second phase.
        without(Mutation::NoSecondPhase).row("the largest token of the grants is used"),
        without(Mutation::WriteEverywhere)
            .row("the token is written to all masters, not only to those of the first phase"),
        without(Mutation::WriteUnheld)
            .row("the token is stored where it is larger, whatever lease holds the lock"),
        fenced(without(Mutation::WriteUnheld)).row("the same, and winners write to a resource"),
        without(Mutation::WriteUnheldOrEqual)
            .row("the token is stored where it is larger or equal, whatever lease holds the lock"),
        without(Mutation::InDoubt)
            .row("a token is used although it is unknown whether a majority has stored it"),
        // The first phase.
        without(Mutation::ReadBefore)
            .row("counters are read before the grants, which reserve nothing"),
        without(Mutation::ReadBeforeOrEqual).row("the same with `>=` for `>`"),
        // Only a third attempt notices that the order in real time breaks.
        Tokens::RULE
            .with(|setup: &mut Tokens<3>| setup.mutation = Some(Mutation::ReadBeforeOrAny))
            .row("the same, and the token is stored whatever the counter"),
        without(Mutation::IdTwice)
            .with(|setup| setup.faults = 1)
            .row("an acquire is repeated after its grant was over"),
        after(Recovery::WithData).row("a master is restarted with its data, kept out and admitted"),
        restarted.row("a master is restarted empty, kept out and admitted: by the rule"),
        after(Recovery::AtOnce).row("a master is restarted empty and goes on at once"),
        fenced(after(Recovery::AtOnce)).row("the same, and winners write to a resource"),
        after(Recovery::AfterTtl).row("a master is restarted empty, and only kept out"),
        after(Recovery::CaughtUp)
            .row("a master is restarted empty, and only admitted by the others"),
        after(Recovery::WithData)
            .with(|setup| (setup.attempts, setup.faults, setup.together) = (2, 2, true))
            .row("two of three are restarted at once, with their data; two attempts"),
    ];
    rows.extend(proposed(rule));
    if extent == Extent::Full {
        rows.extend(larger());
    }
    rows
}

/// Attempts that propose tokens.
fn proposed(rule: Tokens<3>) -> Vec<Row> {
    let proposed = rule.with(|setup| setup.proposals = 3);
    let without = |mutation| proposed.with(|setup| setup.mutation = Some(mutation));
    let after = |recovery| {
        proposed.with(|setup| {
            (setup.attempts, setup.proposals, setup.counters) = (2, 2, 1);
            (setup.faults, setup.recovery) = (1, recovery);
        })
    };
    vec![
        proposed.row("attempts propose tokens, by the rule"),
        proposed
            .with(|setup| (setup.attempts, setup.refill) = (2, true))
            .row("the same, and winners repeat their acquires; two attempts"),
        proposed
            .with(|setup| setup.resource = true)
            .row("attempts propose tokens, and winners write to a resource"),
        without(Mutation::TakeEqual).row("a proposal is taken with `>=` for `>`"),
        without(Mutation::TakenByMinority)
            .row("a proposal is used although only a minority has taken it"),
        without(Mutation::TakenForAnother)
            .row("a proposal counts as taken where it was taken for another lease"),
        after(Recovery::Rule)
            .row("two attempts propose tokens, and a master is restarted empty: by the rule"),
        after(Recovery::Rule)
            .with(|setup| setup.mutation = Some(Mutation::UseLate))
            .row("the same, and a proposal is used after its deadline"),
        after(Recovery::AtOnce).row("the same, and the master goes on at once"),
        after(Recovery::AfterTtl).row("the same, and the master is only kept out"),
        after(Recovery::CaughtUp).row("the same, and the master is only admitted by the others"),
    ]
}

fn larger() -> Vec<Row> {
    let five = Tokens::<5>::RULE.with(|setup| setup.attempts = 2);
    // The smallest model that shows it: two of five are empty, and a third does not reply.
    let minority = five.with(|setup| (setup.faults, setup.counters, setup.together) = (2, 0, true));
    let three = Tokens::<3>::RULE;
    vec![
        minority.row(
            "two of five are restarted empty together, by the rule; two attempts, counters from 0",
        ),
        minority
            .with(|setup| setup.recovery = Recovery::AdmittedByAll)
            .row("the same, but masters that are not admitted count among the others"),
        three
            .with(|setup| setup.attempts = 4)
            .row("three masters, by the rule, four attempts"),
        three
            .with(|setup| (setup.attempts, setup.faults) = (2, 2))
            .row("two masters are restarted empty, one after the other, by the rule; two attempts"),
        five.row("five masters, two attempts"),
        five.with(|setup| setup.proposals = 3)
            .row("five masters, two attempts that propose tokens"),
        five.with(|setup| (setup.faults, setup.recovery) = (1, Recovery::AtOnce))
            .row("one of five is restarted empty and goes on at once"),
    ]
}
