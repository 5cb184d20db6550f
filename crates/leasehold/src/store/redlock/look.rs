//! Looking at the records of all masters: for people, no rule depends on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::quorum::Size;
use leasehold_core::{LeaseId, Token};

use super::ballot::no_quorum;
use super::gather::{Patience, gather};
use super::node::Node;
use crate::Result;
use crate::store::{Entry, Key, Space, Store};

/// Whoever looks wants to know soon, also while one of them is silent.
const PATIENCE: Patience = Patience {
    majority: None,
    others: Duration::from_millis(250),
};

/// Who holds a lock: whom a majority has.
pub(super) async fn inspect(nodes: &[Arc<Node>], size: Size, key: &Key) -> Result<Option<Entry>> {
    let asked = nodes.iter().map(|node| node.store.inspect(key));
    let found = answers(size, gather(asked, size, PATIENCE).await)?;
    Ok(held(size, found.into_iter().flatten().collect()))
}

/// The locks that a majority has, by name.
pub(super) async fn list(nodes: &[Arc<Node>], size: Size, space: &Space) -> Result<Vec<Entry>> {
    let asked = nodes.iter().map(|node| node.store.list(space));
    let found = answers(size, gather(asked, size, PATIENCE).await)?;
    let mut names = BTreeMap::<_, Vec<Entry>>::new();
    for entry in found.into_iter().flatten() {
        names.entry(entry.key.name.clone()).or_default().push(entry);
    }
    let held = names.into_values().filter_map(|found| held(size, found));
    Ok(held.collect())
}

/// What a majority answered at least.
fn answers<T>(size: Size, asked: Vec<Option<Result<T>>>) -> Result<Vec<T>> {
    let (mut answers, mut errors) = (Vec::new(), Vec::new());
    for answer in asked.into_iter().flatten() {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(error) => errors.push(error),
        }
    }
    if answers.len() < size.majority() {
        return Err(no_quorum(size, &errors, None));
    }
    Ok(answers)
}

/// What one lease has at a majority. It ends when the majority does.
fn held(size: Size, found: Vec<Entry>) -> Option<Entry> {
    let mut leases = BTreeMap::<LeaseId, Vec<Entry>>::new();
    for entry in found {
        leases.entry(entry.lease).or_default().push(entry);
    }
    let mut entries = leases
        .into_values()
        .find(|entries| entries.len() >= size.majority())?;
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.left));
    let left = entries.get(size.majority() - 1)?.left;
    let count = entries.iter().map(|entry| entry.count).max()?;
    // A master may have a larger one, that it gave to somebody who won no majority.
    let tokens: Vec<_> = entries.iter().filter_map(|entry| entry.token).collect();
    let alike = |token: &Token| tokens.iter().filter(|other| *other == token).count();
    let token = tokens
        .iter()
        .copied()
        .max_by_key(|token| (alike(token), *token));
    let client = entries.iter().find_map(|entry| entry.client.clone());
    Some(Entry {
        left,
        count,
        token,
        client,
        ..entries.pop()?
    })
}
