//! The variants on failover.

use super::{Row, Variant};
use crate::model::failover::Failover;

pub(super) fn rows() -> Vec<Row> {
    let rule = Failover {
        clock: true,
        // As far as tokens can be ahead of the clock: one grant less than there are.
        gap: 2,
        behind: 0,
        split_brain: false,
    };
    vec![
        rule.row("a replica without the last grants is promoted; tokens by counter and clock"),
        rule.with(|setup| setup.clock = false)
            .row("the same with tokens by the counter alone"),
        rule.with(|setup| setup.gap = 0)
            .row("tokens by counter and clock, but the promotion takes no time"),
        rule.with(|setup| setup.behind = 3)
            .row("the replica's clock is behind by a tick more than the promotion takes"),
        rule.with(|setup| setup.split_brain = true)
            .row("the replica is promoted, and the old store goes on"),
    ]
}
