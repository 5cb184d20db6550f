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
    let after = |fault| rule.with(|setup| (setup.faults, setup.fault) = (1, fault));
    // The allowance for drift is two ticks here, so a lease of four is relied on for two.
    let fast = |gain| {
        let tick = Duration::from_millis(1);
        rule.with(|setup| (setup.tick, setup.ttl, setup.gain) = (tick, 4, gain))
    };
    table! {
        "one store, deadlines by the rule": one_store;
        "three masters, deadlines by the rule": rule;
        "the deadline counts from the arrival of the reply": rule, deadline = Deadline::FromReply;
        "holders do not read their clocks; only tokens help": rule, deadline = Deadline::Never;
        "a master restarts empty and is kept out": after(Fault::Restart);
        "a master restarts empty and goes on immediately": after(Fault::RestartAtOnce);
        "a master restarts empty and is kept out for a tick less than the ttl": after(Fault::RestartEarly);
        "the clock of a master jumps": after(Fault::Jump);
        "one store restarts empty and goes on immediately": one_store, faults = 1, fault = Fault::RestartAtOnce;
        // A master that may be empty is admitted by the replies of some others.
        "a master is flushed, or replaced by a server that has run for long; admitted":
            after(Fault::Flush);
        "but without another reply, silent masters count as unused":
            after(Fault::Flush), admission = Admission::NoReply;
        "but with one other reply, the silent master counts as unused":
            after(Fault::Flush), admission = Admission::OneReply;
        "a master restarts with an old snapshot, and is admitted": after(Fault::OldData);
        "but admitted immediately because its server now syncs each write":
            after(Fault::OldData), admission = Admission::CurrentSetting;
        "a master becomes a replica of an old copy of itself, and a master again; admitted":
            after(Fault::OldCopy);
        "but its record fits because its process did not restart":
            after(Fault::OldCopy), admission = Admission::SameProcess;
        "masters that were never used are admitted, and one is flushed": after(Fault::Flush), unused = true;
        "but one is admitted by a decision from before it was flushed":
            after(Fault::Flush), unused = true, admission = Admission::Unchecked;
        "every master's clock gains what the rule allows": fast(2);
        "and a master restarts empty and is kept out": fast(2), faults = 1;
        "every master's clock gains a tick more than that": fast(3);
        "every master's clock gains a tick, and deadlines do not allow for it":
            fast(1), deadline = Deadline::WithoutMargin;
        "leases are renewed, and acquired again where they were lost": rule, renewed = true;
        "and a master restarts empty and is kept out": after(Fault::Restart), renewed = true;
        "but only if it forgets the lease of an owner": after(Fault::RestartUnowned), renewed = true;
        "and the clock of a master jumps": after(Fault::Jump), renewed = true;
        "and every master's clock gains what the rule allows": fast(2), renewed = true;
        // Without a second phase, an attempt can own the lock after a master has forgotten its lease.
        "proposals are taken, leases are renewed, and a master restarts empty and is kept out":
            after(Fault::Restart), proposed = true, renewed = true;
        "but only if it forgets the lease of an owner":
            after(Fault::RestartUnowned), proposed = true, renewed = true;
    }
}
