//! Annotations over many masters: each keeps its own copy, and a majority decides.
//!
//! Only the values of leaders are kept. A completion must never be forgotten while a run is known as complete, but
//! masters that are restarted forget theirs one after the other, and no later run writes it again.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::quorum::{Size, Verdict, Vote};
use leasehold_core::{Annotation, AnnotationKind, Loss, Outcome};

use super::fan_out::{WaitLimits, fan_out};
use super::master::Master;
use super::read::replies;
use super::tally::no_quorum;
use crate::Result;
use crate::store::api::{Key, Store};

/// How long a silent master may delay the result.
const LIMITS: WaitLimits = WaitLimits {
    majority: None,
    others: Duration::from_millis(250),
};

/// Stores the value of a leader at all masters. It counts if a majority has stored it.
pub(super) async fn annotate(
    nodes: &[Arc<Master>],
    size: Size,
    (key, kind): (&Key, &AnnotationKind),
    annotation: &Annotation,
    keep: Duration,
) -> Result<Result<(), Loss>> {
    let calls = nodes
        .iter()
        .map(|node| node.store.annotate(key, kind, annotation, keep));
    let mut vote = Vote::new(size);
    let mut errors = Vec::new();
    let mut verdict = None;
    let results = fan_out(calls, size, LIMITS).await;
    for (master, result) in results.into_iter().enumerate() {
        let outcome = match result {
            // A vote counts what a holder has done, whatever that is.
            Some(Ok(Ok(()))) => Some(Outcome::Kept),
            Some(Ok(Err(loss))) => Some(Outcome::Lost(loss)),
            Some(Err(error)) => {
                errors.push(error);
                None
            }
            None => None,
        };
        verdict = verdict.or(vote.handle_reply(master, outcome));
    }
    match verdict {
        Some(Verdict::Done) => Ok(Ok(())),
        Some(Verdict::Lost(loss)) => Ok(Err(loss)),
        Some(Verdict::NoQuorum) | None => Err(no_quorum(size, &errors, None)),
    }
}

/// Removes the value of a leader at all masters, of which a majority must reply.
pub(super) async fn remove(
    nodes: &[Arc<Master>],
    size: Size,
    key: &Key,
    kind: &AnnotationKind,
) -> Result<bool> {
    let calls = nodes
        .iter()
        .map(|node| node.store.remove_annotation(key, kind));
    let (removed, _) = replies(size, fan_out(calls, size, LIMITS).await)?;
    Ok(removed.contains(&true))
}
