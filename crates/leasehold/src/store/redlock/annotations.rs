//! Annotations and observations over many masters: each keeps its own copy, and a majority decides.
//!
//! Only the values of leaders are kept. A completion must never be forgotten while a run is known as complete, but
//! masters that are restarted forget theirs one after the other, and no later run writes it again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use leasehold_core::quorum::{Size, Verdict, Vote};
use leasehold_core::{Annotation, AnnotationKind, LeaseId, Loss, Outcome, Proclamation};
use tokio::sync::oneshot;

use super::fan_out::{WaitLimits, fan_out};
use super::inspect::{is_open, replies};
use super::master::Master;
use super::tally::no_quorum;
use crate::store::api::{Changed, Key, Observation, Store};
use crate::{Error, Result};

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
            Some(Ok(Ok(()))) => Some(Outcome::Renewed),
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

/// The lease that holds a lock at a majority, and the value. An error if the holder depends on masters that did not
/// reply.
pub(super) async fn observe(
    nodes: &[Arc<Master>],
    size: Size,
    key: &Key,
    kind: &AnnotationKind,
) -> Result<Observation> {
    let calls = nodes.iter().map(|node| node.store.observe(key, kind));
    let (observations, errors): (_, Vec<Error>) =
        replies(size, fan_out(calls, size, LIMITS).await)?;
    let leases: Vec<_> = observations
        .iter()
        .map(|it: &Observation| it.holder.map(|(lease, _)| lease))
        .collect();
    match is_open(size, &leases) {
        true => Err(no_quorum(size, &errors, None)),
        false => Ok(combined(size, observations)),
    }
}

fn combined(size: Size, observations: Vec<Observation>) -> Observation {
    let majority = size.majority();
    let mut leases = BTreeMap::<LeaseId, Vec<Duration>>::new();
    for (lease, time_left) in observations.iter().filter_map(|it| it.holder) {
        leases.entry(lease).or_default().push(time_left);
    }
    let holder = leases.into_iter().find_map(|(lease, mut times)| {
        times.sort_unstable_by(|a, b| b.cmp(a));
        // It expires when the majority expires.
        Some((lease, *times.get(majority - 1)?))
    });
    Observation {
        revoked: revoked(&observations, majority),
        now: observations
            .iter()
            .map(|it| it.now)
            .max()
            .unwrap_or_default(),
        holder,
        // The masters have no queues.
        waiters: 0,
        annotation: value(&observations, holder.map(|(lease, _)| lease)),
        changed: first_of(observations, majority),
    }
}

/// The lease that has lost its majority by a revocation: with the masters that have revoked it, it would have one.
fn revoked(observations: &[Observation], majority: usize) -> Option<LeaseId> {
    let masters = |lease: &LeaseId| {
        let held = |it: &&Observation| it.holder.is_some_and(|(holder, _)| holder == *lease);
        let had = observations
            .iter()
            .filter(|it| it.revoked == Some(*lease) || held(it));
        had.count()
    };
    let mut leases = observations.iter().filter_map(|it| it.revoked);
    leases.find(|lease| masters(lease) >= majority)
}

/// The value of the holder, or without one of the last leader. A leader is held by a majority before it writes, so each
/// copy is that of a leader. The latest value of that leader counts, as a master may have missed it.
fn value(observations: &[Observation], holder: Option<LeaseId>) -> Option<Annotation> {
    let mut copies = BTreeMap::new();
    for it in observations.iter().filter_map(|it| it.annotation.as_ref()) {
        let number = Proclamation::parse(&it.text).map(|value| value.number);
        let rank = (Some(it.lease) == holder, it.token, number);
        copies.insert(rank, it);
    }
    let (_, latest) = copies.pop_last()?;
    Some(latest.clone())
}

/// The first change at any master. `None` if too few masters report changes: a majority could change without them.
fn first_of(observations: Vec<Observation>, majority: usize) -> Option<Changed> {
    let changes: Vec<_> = observations
        .into_iter()
        .filter_map(|it| it.changed)
        .collect();
    let runtime = tokio::runtime::Handle::try_current().ok();
    let runtime = runtime.filter(|_| changes.len() >= majority)?;
    let (mut sender, changed) = oneshot::channel();
    runtime.spawn(async move {
        tokio::select! {
            // The sender is dropped, which is a change as well.
            _ = select_all(changes) => {}
            () = sender.closed() => {}
        }
    });
    Some(changed)
}

#[cfg(test)]
mod tests {
    use leasehold_core::{StoreTime, Token};

    use super::*;
    use crate::store::api::fixture::lease;

    /// The holder and the lease and the text of the annotation at one master.
    fn at_master(holder: Option<u64>, value: Option<(u64, &str)>) -> Observation {
        Observation {
            now: StoreTime::default(),
            holder: holder.map(|number| (lease(number), Duration::from_secs(number))),
            revoked: None,
            waiters: 0,
            annotation: value.map(|(number, text)| Annotation {
                lease: lease(number),
                token: Token::new(number).unwrap(),
                text: text.into(),
            }),
            changed: None,
        }
    }

    #[test]
    fn a_value_is_that_of_the_holder_or_of_the_last_leader() {
        let (old, new) = (Some((1, "9 old")), Some((2, "2 new")));
        let later = Some((2, "10 later"));
        for (masters, holder, text) in [
            ([(None, None), (None, None), (None, None)], None, None),
            ([(Some(1), old), (Some(1), old), (None, None)], Some(1), old),
            // A minority has missed the end of the former term.
            (
                [(Some(1), old), (Some(2), new), (Some(2), new)],
                Some(2),
                new,
            ),
            (
                [(Some(2), old), (Some(2), old), (Some(2), new)],
                Some(2),
                new,
            ),
            (
                [(Some(2), new), (Some(2), new), (Some(2), later)],
                Some(2),
                later,
            ),
            (
                [(Some(2), later), (Some(2), later), (Some(2), new)],
                Some(2),
                later,
            ),
            (
                [(Some(3), new), (Some(3), old), (Some(3), old)],
                Some(3),
                new,
            ),
            ([(None, old), (None, old), (None, new)], None, new),
            // No majority holds it.
            ([(Some(1), old), (Some(2), new), (None, old)], None, new),
        ] {
            let observations = masters.map(|(holder, value)| at_master(holder, value));
            let found = combined(Size::new(3).unwrap(), observations.into());
            let leases = found.holder.map(|(lease, _)| lease.number);
            let annotation = found.annotation.as_ref();
            let found = (leases, annotation.map(|it| &*it.text));
            let text = text.map(|(_, text)| text);
            assert_eq!(found, (holder, text), "{masters:?}");
        }
    }

    /// Also while the other masters have not applied it yet. A revocation at a minority ends no lease: if its holder
    /// releases it later, it was released.
    #[test]
    fn a_lease_is_revoked_if_that_has_ended_its_majority() {
        let at_master = |(holder, revoked): (Option<u64>, Option<u64>)| Observation {
            revoked: revoked.map(lease),
            ..at_master(holder, None)
        };
        for (masters, expected) in [
            (vec![(None, None), (None, None), (None, None)], None),
            (
                vec![(None, Some(1)), (None, Some(1)), (None, Some(1))],
                Some(1),
            ),
            (
                vec![(None, Some(1)), (None, Some(1)), (None, None)],
                Some(1),
            ),
            (
                vec![(None, Some(1)), (Some(1), None), (None, None)],
                Some(1),
            ),
            (
                vec![(Some(2), Some(1)), (Some(2), Some(1)), (Some(1), None)],
                Some(1),
            ),
            (vec![(None, Some(1)), (None, None), (None, None)], None),
            (vec![(None, Some(1)), (None, Some(2)), (None, None)], None),
            (
                vec![(Some(2), Some(1)), (Some(2), Some(2)), (None, Some(2))],
                Some(2),
            ),
            // One of them did not reply.
            (vec![(None, Some(1)), (None, Some(1))], Some(1)),
        ] {
            let observations = masters.iter().copied().map(at_master).collect();
            let found = combined(Size::new(3).unwrap(), observations).revoked;
            assert_eq!(found, expected.map(lease), "{masters:?}");
        }
    }

    #[tokio::test]
    async fn the_first_change_at_any_master_counts_if_a_majority_reports_changes() {
        let observed = |changes: usize| {
            let (mut senders, mut observations) = (Vec::new(), Vec::new());
            for nth in 0..3 {
                let mut observation = at_master(None, None);
                if nth < changes {
                    let (sender, changed) = oneshot::channel();
                    senders.push(sender);
                    observation.changed = Some(changed);
                }
                observations.push(observation);
            }
            (
                senders,
                combined(Size::new(3).unwrap(), observations).changed,
            )
        };
        assert!(observed(1).1.is_none());
        let (mut senders, changed) = observed(2);
        let _ = senders.remove(1).send(());
        // Completed or dropped.
        let _ = changed.unwrap().await;
        let (senders, changed) = observed(3);
        drop(changed);
        for mut sender in senders {
            sender.closed().await;
        }
    }
}
