//! Reads a history and tells what in it must not be.
//!
//! It shares no code with the library. It knows what holders were told and when, what the records
//! and the fenced resource said, and when the store was made to forget; each rule stands in a file of
//! its own and names the promise of `docs/guarantees.md` that it looks after.

mod counts;
mod endings;
mod exclusion;
mod facts;
mod fencing;
mod losses;
mod margins;
mod pauses;
mod releases;
mod tokens;
mod verdict;

#[cfg(test)]
mod tests;

pub(crate) use self::verdict::{Figures, Verdict};

use self::facts::Facts;
use crate::history::History;

/// Judges the history of one world.
pub(crate) fn judge(history: &History) -> Verdict {
    let facts = Facts::of(history);
    let mut verdict = Verdict::default();
    facts.count(&mut verdict.figures);
    exclusion::check(&facts, &mut verdict);
    losses::check(&facts, &mut verdict);
    margins::check(&facts, &mut verdict);
    pauses::check(&facts, &mut verdict);
    tokens::check(&facts, &mut verdict);
    fencing::check(&facts, &mut verdict);
    releases::check(&facts, &mut verdict);
    counts::check(&facts, &mut verdict);
    endings::check(&facts, &mut verdict);
    verdict
}
