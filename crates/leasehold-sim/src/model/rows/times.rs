//! The variants on exclusion.

use std::time::Duration;

use super::{Extent, Row, Variant};
use crate::model::times::{Admission, Deadline, Fault, Times};

pub(super) fn rows(extent: Extent) -> Vec<Row> {
    let attempts = match extent {
        Extent::Short => 2,
        Extent::Full => 3,
    };
    let rule = Times::<3>::RULE.with(|setup| setup.attempts = attempts);
    let one_store = Times::<1>::RULE.with(|setup| setup.attempts = attempts);
    let by = |deadline| rule.with(|setup| setup.deadline = deadline);
    let after = |fault| rule.with(|setup| (setup.faults, setup.fault) = (1, fault));
    // A master that may be empty is admitted by the replies of some others.
    let admitted = |fault, admission| after(fault).with(|setup| setup.admission = admission);
    let unused = |admission| admitted(Fault::Flush, admission).with(|setup| setup.unused = true);
    // The allowance for drift is two ticks here, so a lease of four is relied on for two.
    let fast = |gain| {
        let tick = Duration::from_millis(1);
        rule.with(|setup| (setup.tick, setup.ttl, setup.gain) = (tick, 4, gain))
    };
    let renewed = |setup: Times<3>| setup.with(|setup| setup.renewed = true);
    let mut rows = vec![
        one_store.row("one store, deadlines by the rule"),
        rule.row("three masters, deadlines by the rule"),
        by(Deadline::FromReply).row("the deadline counts from the arrival of the reply"),
        by(Deadline::Never).row("holders do not read their clocks; only tokens help"),
        after(Fault::Restart).row("a master is restarted empty and kept out by the rule"),
        after(Fault::RestartAtOnce).row("a master is restarted empty and goes on at once"),
        after(Fault::RestartEarly)
            .row("a master is restarted empty and kept out for a tick less than the ttl"),
        after(Fault::Jump).row("the clock of a master jumps"),
        one_store
            .with(|setup| (setup.faults, setup.fault) = (1, Fault::RestartAtOnce))
            .row("one store is restarted empty and goes on at once"),
        admitted(Fault::Flush, Admission::Rule)
            .row("a master is flushed, or exchanged for a server that has run for long; admitted by the rule"),
        admitted(Fault::Flush, Admission::NoReply)
            .row("the same, but if no other replies, silent masters count as unused"),
        admitted(Fault::Flush, Admission::OneReply)
            .row("the same, but if one other replies, the silent master counts as unused"),
        admitted(Fault::OldData, Admission::Rule)
            .row("a master is restarted with an old snapshot, and admitted by the rule"),
        admitted(Fault::OldData, Admission::CurrentSetting)
            .row("the same, but it is admitted at once because its server now syncs each write"),
        admitted(Fault::OldCopy, Admission::Rule)
            .row("a master is made a replica of an old copy of itself, and then a master again; admitted by the rule"),
        admitted(Fault::OldCopy, Admission::SameProcess)
            .row("the same, but its record fits because its process was not restarted"),
        unused(Admission::Rule)
            .row("masters that were never used are admitted, and one is flushed"),
        unused(Admission::Unchecked)
            .row("the same, but one is admitted by a decision from before it was flushed"),
        fast(2).row("every master's clock gains as much as the rule allows for"),
        fast(2)
            .with(|setup| setup.faults = 1)
            .row("the same, and a master is restarted empty and kept out by the rule"),
        fast(3).row("every master's clock gains a tick more than that"),
        fast(1)
            .with(|setup| setup.deadline = Deadline::WithoutMargin)
            .row("every master's clock gains a tick, and deadlines do not allow for it"),
        renewed(rule).row("leases are renewed, and acquired again where they were lost"),
        renewed(after(Fault::Restart))
            .row("the same, and a master is restarted empty and kept out by the rule"),
        renewed(after(Fault::Jump)).row("the same, and the clock of a master jumps"),
        renewed(fast(2))
            .row("the same, and every master's clock gains as much as the rule allows for"),
    ];
    rows.extend(proposed(rule, fast(2)));
    rows
}

/// Every master that grants takes the proposal. The clocks of `fast` gain as much as the rule allows for.
fn proposed(rule: Times<3>, fast: Times<3>) -> Vec<Row> {
    let rule = rule.with(|setup| setup.proposed = true);
    let fast = fast.with(|setup| (setup.proposed, setup.faults) = (true, 1));
    let after = |fault| rule.with(|setup| (setup.faults, setup.fault) = (1, fault));
    vec![
        rule.row("proposals are taken, deadlines by the rule"),
        rule.with(|setup| setup.deadline = Deadline::FromReply)
            .row("the same, but the deadline counts from the arrival of the reply"),
        after(Fault::Restart)
            .row("proposals are taken, and a master is restarted empty and kept out by the rule"),
        after(Fault::RestartAtOnce).row("the same, but it goes on at once"),
        fast.row("the same, kept out by the rule, and every master's clock gains as much as that allows for"),
        after(Fault::Restart)
            .with(|setup| setup.renewed = true)
            .row("proposals are taken, leases are renewed, and a master is restarted empty and kept out by the rule"),
    ]
}
