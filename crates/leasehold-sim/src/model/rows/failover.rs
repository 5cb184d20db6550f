//! The variants on failover.

use super::Row;
use crate::model::explore::Property::{self, Ownership, RealTime, Unique};
use crate::model::failover::{Failover, Setup};

const ALL: [Property; 3] = [Unique, RealTime, Ownership];

pub(super) fn rows() -> Vec<Row> {
    let promoted = Setup {
        promotions: 1,
        // As far as tokens can be ahead of the clock: one grant less than there are.
        gap: 2,
        ..Setup::new()
    };
    let row = |what, setup| Row::new(what, Failover::new(setup));
    vec![
        row(
            "a replica without the last grants is promoted; tokens by counter and clock",
            promoted,
        ),
        row(
            "the same with tokens by the counter alone",
            Setup {
                clock: false,
                ..promoted
            },
        )
        .breaks(&ALL),
        row(
            "tokens by counter and clock, but the promotion takes no time",
            Setup { gap: 0, ..promoted },
        )
        .breaks(&ALL),
        row(
            "the replica's clock is behind by a tick more than the promotion takes",
            Setup {
                behind: 3,
                ..promoted
            },
        )
        .breaks(&ALL),
        row(
            "the replica is promoted, and the old store goes on",
            Setup {
                split_brain: true,
                ..promoted
            },
        )
        .breaks(&ALL),
    ]
}
