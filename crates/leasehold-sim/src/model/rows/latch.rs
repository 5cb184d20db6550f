//! The variants on latches.

use super::{Row, Variant};
use crate::model::latch::{Latch, Mutation};

pub(super) fn rows() -> Vec<Row> {
    let rule = Latch { mutation: None };
    let with = |mutation| rule.with(|setup| setup.mutation = Some(mutation));
    vec![
        rule.row("three members arrive at a latch that two open, by the rule"),
        with(Mutation::CountsDown).row("the same, but each arrival counts a number down"),
    ]
}
