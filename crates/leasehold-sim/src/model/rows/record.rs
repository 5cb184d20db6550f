//! The variants on minimum holds, and on the completion of a run.

use std::time::Duration;

use super::{Extent, Row, Variant};
use crate::model::record::{Mutation, Record};

pub(super) fn rows(extent: Extent) -> Vec<Row> {
    let rule = Record::RULE;
    let with = |mutation| rule.with(|setup| setup.mutation = Some(mutation));
    // The allowance for drift is two ticks here.
    let fast = |gain, mutation| {
        let tick = Duration::from_millis(1);
        rule.with(|setup| {
            (setup.tick, setup.gain, setup.mutation) = (tick, gain, mutation);
            setup.ttl = 4;
        })
    };
    let mut rows = vec![
        rule.row("two clients and a minimum hold"),
        with(Mutation::RenewalLengthens).row("but a late renewal renews the minimum hold"),
        with(Mutation::EnterRevives).row("but a late enter makes the ended lease the holder again"),
        with(Mutation::FreesEarly).row("but a release frees the lock immediately"),
        with(Mutation::ReleasesAny).row("but a late release ends the lease of any holder"),
        with(Mutation::AfterLoss).row("but the release of a lost lease begins a minimum hold"),
        fast(2, None).row("a minimum hold, and every client's clock gains what the rule allows"),
        fast(1, Some(Mutation::WithoutDrift))
            .row("every client's clock gains a tick, which the rest does not allow for"),
    ];
    rows.extend(runs());
    if extent == Extent::Full {
        rows.push(
            rule.with(|setup| setup.clients = 3)
                .row("three clients and a minimum hold"),
        );
    }
    rows
}

/// Three clients and a run, which each lease that lasts for two ticks may complete.
fn runs() -> Vec<Row> {
    let rule = Record {
        clients: 3,
        ttl: 2,
        min_hold: 0,
        runs: true,
        revocations: 0,
        ..Record::RULE
    };
    let with = |mutation| rule.with(|setup| setup.mutation = Some(mutation));
    vec![
        rule.row("three clients run a job once"),
        with(Mutation::CompletesUnheld)
            .row("but the completion record is written whatever the holder"),
        with(Mutation::DecidesOnce)
            .row("but a waiting client does not ask again whether the run is complete"),
    ]
}
