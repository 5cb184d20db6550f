//! One store and its replica.

use super::Row;
use crate::model::explore::Property::{self, Ownership, RealTime, Unique};
use crate::model::forgetting::{Forgetting, Setup};

const ALL: [Property; 3] = [Unique, RealTime, Ownership];

pub(super) fn rows() -> Vec<Row> {
    let promoted = Setup {
        promotions: 1,
        // As many as tokens can be ahead of the clock: a grant less than there are.
        gap: 2,
        ..Setup::new()
    };
    let row = |key, what, setup| Row::new(key, what, Forgetting::new(setup));
    vec![
        row(
            "replica",
            "a replica without the last grants takes over; tokens by counter and clock",
            promoted,
        ),
        row(
            "replica, no clock",
            "the same with tokens by the counter alone",
            Setup {
                clock: false,
                ..promoted
            },
        )
        .breaks(&ALL),
        row(
            "replica, at once",
            "tokens by counter and clock, but the replica takes over in no time",
            Setup { gap: 0, ..promoted },
        )
        .breaks(&ALL),
        row(
            "replica, clock behind",
            "the replica's clock is behind by a tick more than it takes to take over",
            Setup {
                behind: 3,
                ..promoted
            },
        )
        .breaks(&ALL),
        row(
            "replica, old store woken",
            "the replica takes over, and the old store goes on",
            Setup {
                woken: true,
                ..promoted
            },
        )
        .breaks(&ALL),
    ]
}
