//! The variants on holders that share a lock.

use super::{Extent, Row, Variant};
use crate::model::shares::{Mutation, Shares};

pub(super) fn rows(extent: Extent) -> Vec<Row> {
    let rule = Shares::RULE;
    let without = |mutation| rule.with(|setup| setup.mutation = Some(mutation));
    let permits = rule.with(|setup| (setup.sizes, setup.counts) = ([2, 2, 1], true));
    let mut rows = table! {
        "a reader, an upgradable reader and a writer": rule;
        "but a request that fits is granted although others wait": without(Mutation::PastTheHead);
        "but any reader may wait for an upgrade": without(Mutation::AnyWaits);
        "but the first reader gets the token of the last writer": without(Mutation::TokenOfWriter);
        "but each reader gets a token of its own": without(Mutation::TokenOfReader);
        "but a writer that becomes a reader keeps its token": without(Mutation::DowngradeKeepsToken);
        "but an upgradable reader becomes a reader with a token of its own": without(Mutation::DowngradeRenewsToken);
        "but a grant does not bring the earliest end forward": without(Mutation::EarliestStays);
        "but a late conversion is applied whatever tokens the lease has": without(Mutation::ConvertsAnyToken);
        "but a repeated request gets a token of its own": without(Mutation::RepeatRenewsToken);
        "but a release grants nothing to the waiters": without(Mutation::LeavesWaiters);
        "but a late release ends the lease of another client": without(Mutation::EndsAnother);
        "three clients take two, two and one of three permits": permits;
        "but the limit counts holders, not permits": permits,
            faults = 0, mutation = Some(Mutation::CountsHolders);
    };
    if extent == Extent::Full {
        rows.extend(table! { "two upgradable readers and a reader": rule, sizes = [2, 2, 1]; });
    }
    rows
}
