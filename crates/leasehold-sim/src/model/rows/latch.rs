//! The variants on latches.

use super::{Row, Variant};
use crate::model::latch::Latch;

pub(super) fn rows() -> Vec<Row> {
    let rule = Latch::RULE;
    table! {
        "three members arrive at a latch that two open": rule;
        "but each arrival counts a number down": rule, counts_down = true;
    }
}
