//! The variants on tokens.

use super::{Extent, Row, Variant};
use crate::model::tokens::{Mutation, Recovery, Tokens};

fn base<const N: usize>(extent: Extent) -> Tokens<N> {
    match extent {
        // A third attempt could have written these counters.
        Extent::Short => Tokens::<N>::RULE.with(|setup| (setup.attempts, setup.counters) = (2, 2)),
        Extent::Full => Tokens::RULE,
    }
}

pub(super) fn rows(extent: Extent) -> Vec<Row> {
    let rule = base::<3>(extent);
    let without = |mutation| rule.with(|setup| setup.mutation = Some(mutation));
    // Fewer initial counters: an empty master also makes them differ.
    let restarted = rule.with(|setup| (setup.faults, setup.counters) = (1, 1));
    let after = |recovery| restarted.with(|setup| setup.recovery = recovery);
    let mut rows = table! {
        "one store that keeps its data": base::<1>(extent);
        "three masters": rule;
        "winners repeat their acquires on masters that do not have their lease": rule, refill = true;
        // The second phase.
        "the largest token of the grants is used": without(Mutation::NoSecondPhase);
        "the token is written to all masters, not only to those of the first phase": without(Mutation::WriteEverywhere);
        "the token is stored where it is larger, whatever the holder": without(Mutation::WriteUnheld);
        "the token is stored where it is larger or equal, whatever the holder":
            without(Mutation::WriteUnheldOrEqual);
        "a token is used without knowing that a majority has stored it": without(Mutation::InDoubt);
        // The first phase.
        "counters are read before the grants, which reserve nothing": without(Mutation::ReadBefore);
        "with `>=` for `>`": without(Mutation::ReadBeforeOrEqual);
        // Only a third attempt notices that the order in real time breaks.
        "and the token is stored whatever the counter":
            Tokens::<3>::RULE, mutation = Some(Mutation::ReadBeforeOrAny);
        "an acquire is repeated after its grant was over": without(Mutation::IdTwice), faults = 1;
        "a master restarts with its data, kept out and admitted": after(Recovery::WithData);
        "a master restarts empty, kept out and admitted": restarted;
        "a master restarts empty and goes on immediately": after(Recovery::AtOnce);
        "a master restarts empty, and only kept out": after(Recovery::AfterTtl);
        "a master restarts empty, and only admitted by the others": after(Recovery::CaughtUp);
        "two of three restart together, with their data; two attempts":
            after(Recovery::WithData), attempts = 2, faults = 2, together = true;
    };
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
        let two = |setup: &mut Tokens<3>| {
            (setup.attempts, setup.proposals, setup.counters) = (2, 2, 1);
            (setup.faults, setup.recovery) = (1, recovery);
        };
        proposed.with(two)
    };
    table! {
        "attempts propose tokens": proposed;
        "and winners repeat their acquires; two attempts": proposed, attempts = 2, refill = true;
        "a proposal is taken with `>=` for `>`": without(Mutation::TakeEqual);
        "a proposal is used although only a minority has taken it": without(Mutation::TakenByMinority);
        "a proposal counts as taken where it was taken for another lease": without(Mutation::TakenForAnother);
        "two attempts propose tokens, and a master restarts empty": after(Recovery::Rule);
        "and a proposal is used after its deadline": after(Recovery::Rule), mutation = Some(Mutation::UseLate);
        "and the master goes on immediately": after(Recovery::AtOnce);
        "and the master is only kept out": after(Recovery::AfterTtl);
        "and the master is only admitted by the others": after(Recovery::CaughtUp);
    }
}

fn larger() -> Vec<Row> {
    let three = Tokens::<3>::RULE;
    let five = Tokens::<5>::RULE.with(|setup| setup.attempts = 2);
    // The smallest model that shows it: two of five are empty, and a third does not reply.
    let minority = five.with(|setup| (setup.faults, setup.counters, setup.together) = (2, 0, true));
    table! {
        "two of five restart empty together; two attempts, counters from 0": minority;
        "but masters that are not admitted count among the others":
            minority, recovery = Recovery::AdmittedByAll;
        "three masters, four attempts": three, attempts = 4;
        "two masters restart empty, one after the other; two attempts":
            three, attempts = 2, faults = 2;
        "five masters, two attempts": five;
        "five masters, two attempts that propose tokens": five, proposals = 3;
        "one of five restarts empty and goes on immediately": five, faults = 1, recovery = Recovery::AtOnce;
    }
}
