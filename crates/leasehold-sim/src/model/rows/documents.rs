//! The variants on documents.

use std::time::Duration;

use super::{Extent, Row, Variant};
use crate::model::documents::{Documents, Mutation};

pub(super) fn rows(extent: Extent) -> Vec<Row> {
    let rule = Documents::RULE;
    let without = |mutation| rule.with(|setup| setup.mutation = Some(mutation));
    // The allowance for drift is two ticks here.
    let fast = |gain| {
        let tick = Duration::from_millis(1);
        rule.with(|setup| (setup.tick, setup.ttl, setup.gain, setup.queue) = (tick, 4, gain, false))
    };
    let removed = rule.with(|setup| setup.removals = 1);
    // Old writes are states of their own. Without renewals and a queue there are fewer.
    let small = removed.with(|setup| (setup.queue, setup.renews) = (false, false));
    let mut rows = table! {
        "a lock in a document, and two clients": rule;
        "and the clients poll": rule, queue = false;
        "but a client counts from when it received an earlier version": without(Mutation::OtherVersion);
        "but the wall clock moves the time on while somebody holds the lock": without(Mutation::WallWhileHeld);
        "but a request without a reply counts as refused, and the next has another lease": without(Mutation::OtherLease);
        "but a holder counts from the arrival of the reply": without(Mutation::FromReply);
        "but a holder's request that changes nothing is not written":
            without(Mutation::UnwrittenHold);
        "but a waiter's request that changes nothing is not written": without(Mutation::UnwrittenWait);
        "but a lease ends by the time of the last version only": without(Mutation::LastVersion);
        "but a stamp changes only with the end of the lease": without(Mutation::KeptStamp);
        "but a waiter relies on its notice, and does not poll": without(Mutation::NeverPolls);
        "the store replies with the age of a document": rule, ages = true;
        "but the age is a tick more": without(Mutation::OlderAge), ages = true;
    };
    if extent == Extent::Full {
        rows.extend(table! {
            "but the wall clock moves the time on while clients wait": without(Mutation::WallWhileWaiting);
            "a document is removed while nobody holds or waits": removed;
            "but the wall clock decides that": removed, mutation = Some(Mutation::RemovedByWall);
            "and clients poll and do not renew": small;
            "the clocks of two clients of a document gain what the rule allows": fast(2);
            "and they gain a tick more": fast(3);
            "they gain a tick, which deadlines do not allow for": fast(1), mutation = Some(Mutation::WithoutDrift);
        });
    }
    rows
}
