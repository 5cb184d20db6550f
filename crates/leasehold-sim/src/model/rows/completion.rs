//! The variants on completion records.

use super::{Row, Variant};
use crate::model::completion::{Completion, Mutation};

pub(super) fn rows() -> Vec<Row> {
    let rule = Completion { mutation: None };
    let with = |mutation| rule.with(|setup| setup.mutation = Some(mutation));
    vec![
        rule.row("three clients run a job once, by the rule"),
        with(Mutation::CompletesUnheld)
            .row("the same, but the completion record is written whatever lease holds the lock"),
        with(Mutation::ReadsOnlyBefore)
            .row("the same, but the completion record is not read again under the lock"),
    ]
}
