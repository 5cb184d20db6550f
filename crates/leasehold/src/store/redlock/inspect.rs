//! Reads the records of all masters, for people: no rule depends on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::quorum::Size;
use leasehold_core::{ClientId, LeaseId, Token};

use super::fan_out::{WaitLimits, fan_out};
use super::master::Master;
use super::tally::no_quorum;
use crate::store::api::{ClientInfo, Detail, Entry, Key, Keyspace, Store};
use crate::{Error, ErrorKind, Result};

/// A person waits for the reply, even if a master is silent.
const LIMITS: WaitLimits = WaitLimits {
    majority: None,
    others: Duration::from_millis(250),
};

/// The lease that holds a lock at a majority. An error if that depends on masters that did not reply.
pub(super) async fn inspect(
    nodes: &[Arc<Master>],
    size: Size,
    key: &Key,
    detail: Detail,
) -> Result<Option<Entry>> {
    // The masters have no queues.
    let detail = detail.min(Detail::Holder);
    let calls = nodes
        .iter()
        .map(|node| node.store.inspect_with(key, detail));
    let (found, errors) = replies(size, fan_out(calls, size, LIMITS).await)?;
    let leases: Vec<_> = found.iter().map(holder).collect();
    if is_open(size, &leases) {
        return Err(no_quorum(size, &errors, None));
    }
    Ok(held(size, found.into_iter().flatten().collect()))
}

/// The locks that are held at a majority of all masters, by name, as far as the masters replied.
pub(super) async fn list(
    nodes: &[Arc<Master>],
    size: Size,
    space: &Keyspace,
) -> Result<Vec<Entry>> {
    let calls = nodes.iter().map(|node| node.store.list(space));
    let (found, _) = replies(size, fan_out(calls, size, LIMITS).await)?;
    let mut names = BTreeMap::<_, Vec<Entry>>::new();
    for entry in found.into_iter().flatten() {
        names.entry(entry.key.name.clone()).or_default().push(entry);
    }
    let held = names.into_values().filter_map(|found| held(size, found));
    Ok(held.collect())
}

/// The description of a client at any master: it is written at all of them.
pub(super) async fn client(
    nodes: &[Arc<Master>],
    size: Size,
    space: &Keyspace,
    client: ClientId,
) -> Result<Option<ClientInfo>> {
    let calls = nodes
        .iter()
        .map(|node| node.store.client_info(space, client));
    let (found, _) = replies(size, fan_out(calls, size, LIMITS).await)?;
    Ok(found.into_iter().flatten().next())
}

fn holder(entry: &Option<Entry>) -> Option<LeaseId> {
    entry.as_ref().map(|entry| entry.lease)
}

/// The replies, of at least a majority, and the errors of the others.
pub(super) fn replies<T>(
    size: Size,
    results: Vec<Option<Result<T>>>,
) -> Result<(Vec<T>, Vec<Error>)> {
    let (mut replies, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Some(Ok(reply)) => replies.push(reply),
            Some(Err(error)) => errors.push(error),
            None => errors.push(Error::new(
                ErrorKind::Unreachable,
                "a master did not reply in time",
            )),
        }
    }
    if replies.len() < size.majority() {
        return Err(no_quorum(size, &errors, None));
    }
    Ok((replies, errors))
}

/// Whether a lease has no majority among the replies, but could have one with the masters that did not reply.
pub(super) fn is_open(size: Size, replies: &[Option<LeaseId>]) -> bool {
    let silent = size.masters() - replies.len();
    let mut leases = BTreeMap::<LeaseId, usize>::new();
    for lease in replies.iter().flatten() {
        *leases.entry(*lease).or_default() += 1;
    }
    let most = leases.into_values().max().unwrap_or_default();
    most > 0 && most < size.majority() && most + silent >= size.majority()
}

/// The lease that a majority has. It expires when the majority expires. Its hold count is the one that a
/// majority has at least: a master that was unreachable may have missed a change.
fn held(size: Size, found: Vec<Entry>) -> Option<Entry> {
    let mut leases = BTreeMap::<LeaseId, Vec<Entry>>::new();
    for entry in found {
        leases.entry(entry.lease).or_default().push(entry);
    }
    let mut entries = leases
        .into_values()
        .find(|entries| entries.len() >= size.majority())?;
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.time_left));
    let time_left = entries.get(size.majority() - 1)?.time_left;
    let mut counts: Vec<_> = entries.iter().map(|entry| entry.count).collect();
    counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
    let count = *counts.get(size.majority() - 1)?;
    // A master may have a larger one, from a grant that won no majority.
    let tokens: Vec<_> = entries.iter().filter_map(|entry| entry.token).collect();
    let alike = |token: &Token| tokens.iter().filter(|other| *other == token).count();
    let token = tokens
        .iter()
        .copied()
        .max_by_key(|token| (alike(token), *token));
    let client = entries.iter().find_map(|entry| entry.client.clone());
    Some(Entry {
        time_left,
        count,
        token,
        client,
        // The masters have no queues.
        waiters: Vec::new(),
        ..entries.pop()?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::api::fixture;

    fn entry(lease: u64, count: u32) -> Option<Entry> {
        Some(Entry {
            key: fixture::key("n"),
            lease: fixture::lease(lease),
            count,
            time_left: Duration::from_secs(u64::from(count)),
            token: None,
            client: None,
            waiters: Vec::new(),
        })
    }

    #[test]
    fn a_hold_count_is_what_a_majority_has_at_least() {
        let size = Size::new(3).unwrap();
        let count = |counts: &[u32]| {
            let found = counts.iter().filter_map(|count| entry(1, *count));
            held(size, found.collect()).map(|entry| entry.count)
        };
        assert_eq!(count(&[1, 1, 2]), Some(1));
        assert_eq!(count(&[2, 1, 2]), Some(2));
        assert_eq!(count(&[1, 3]), Some(1));
        assert_eq!(count(&[3]), None);
    }

    #[test]
    fn a_lock_is_free_only_if_silent_masters_could_not_make_it_a_majority() {
        let is_open =
            |masters, replies: &[Option<LeaseId>]| is_open(Size::new(masters).unwrap(), replies);
        let [x, y] = [1, 2].map(|number| Some(fixture::lease(number)));
        assert!(is_open(3, &[x, None]));
        assert!(is_open(3, &[x, y]));
        assert!(!is_open(3, &[x, x]));
        assert!(!is_open(3, &[None, None]));
        assert!(!is_open(3, &[x, y, None]));
        assert!(!is_open(5, &[x, y, None, None]));
        assert!(is_open(5, &[x, x, None, None]));
    }
}
