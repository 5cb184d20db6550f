//! The variants on failover.

use super::{Row, Variant};
use crate::model::failover::Failover;

pub(super) fn rows() -> Vec<Row> {
    let rule = Failover::RULE;
    table! {
        "a replica without the last grants is promoted; tokens by counter and clock": rule;
        "with tokens by the counter alone": rule, clock = false;
        "tokens by counter and clock, but the promotion takes no time": rule, gap = 0;
        "the replica's clock is behind by a tick more than the promotion takes": rule, behind = 3;
        "the replica is promoted, and the old store goes on": rule, split_brain = true;
    }
}
