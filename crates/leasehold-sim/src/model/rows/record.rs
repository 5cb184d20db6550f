//! The variants on minimum holds.

use std::time::Duration;

use super::{Extent, Row, Variant};
use crate::model::record::{Mutation, Record};

pub(super) fn rows(extent: Extent) -> Vec<Row> {
    let rule = Record::RULE;
    let without = |mutation| rule.with(|setup| setup.mutation = Some(mutation));
    // The allowance for drift is two ticks here.
    let fast = |gain| {
        let tick = Duration::from_millis(1);
        rule.with(|setup| (setup.tick, setup.ttl, setup.gain) = (tick, 4, gain))
    };
    let mut rows = table! {
        "two clients and a minimum hold": rule;
        "but a late renewal renews the minimum hold": without(Mutation::RenewalLengthens);
        "but a late enter makes the ended lease the holder again": without(Mutation::EnterRevives);
        "but a release frees the lock immediately": without(Mutation::FreesEarly);
        "but a late release ends the lease of any holder": without(Mutation::ReleasesAny);
        "but the release of a lost lease begins a minimum hold": without(Mutation::AfterLoss);
        "a minimum hold, and every client's clock gains what the rule allows": fast(2);
        "every client's clock gains a tick, which the rest does not allow for":
            fast(1), mutation = Some(Mutation::WithoutDrift);
    };
    if extent == Extent::Full {
        rows.extend(table! { "three clients and a minimum hold": rule, clients = 3; });
    }
    rows
}
