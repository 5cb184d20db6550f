//! Reads the state of names at all masters: no rule depends on it. A majority decides.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use leasehold_core::quorum::Size;
use leasehold_core::{Annotation, LeaseId, Proclamation, Slot, StoreTime, Token};
use tokio::sync::oneshot;

use super::fan_out::{WaitLimits, fan_out};
use super::master::Master;
use super::no_quorum::no_quorum;
use crate::store::api::{Changed, HolderInfo, Page, Parts, Query, Store, View};
use crate::{Error, ErrorKind, Result};

/// A silent master delays the result for so long.
const LIMITS: WaitLimits = WaitLimits {
    majority: None,
    others: Duration::from_millis(250),
};

/// The reply to a query about names or a client.
pub(super) async fn page(nodes: &[Arc<Master>], size: Size, query: &Query) -> Result<Page> {
    let mut query = query.clone();
    // The masters have no queues.
    if let Query::Name { parts, .. } = &mut query
        && *parts == Parts::Waiters
    {
        *parts = Parts::Holder;
    }
    let calls = nodes.iter().map(|node| node.store.read(query.clone()));
    let (pages, errors) = replies(size, fan_out(calls, size, LIMITS).await)?;
    match query {
        Query::Name { .. } => name(size, pages, &errors),
        Query::Names(_) => Ok(Page::listed(listed(size, pages))),
        // It is written at all of them.
        Query::Client(..) => Ok(Page {
            client: pages.into_iter().find_map(|page| page.client),
            ..Page::default()
        }),
        Query::Completions(_) | Query::Durability(_) => Ok(Page::default()),
    }
}

/// The state of a name at a majority. An error if the holder depends on masters that did not reply.
fn name(size: Size, pages: Vec<Page>, errors: &[Error]) -> Result<Page> {
    let (mut views, mut changes) = (Vec::new(), Vec::new());
    for page in pages {
        views.extend(page.views);
        changes.extend(page.changed);
    }
    let Some(key) = views.first().map(|view| view.key.clone()) else {
        return Ok(Page::default());
    };
    let held = held(size, &views);
    if held.is_none() && is_open(size, &views) {
        return Err(no_quorum(size, errors, None));
    }
    let majority = size.majority();
    let holder = held.as_ref().and_then(lease);
    let view = View {
        now: now(&views, majority),
        revoked: revoked(&views, majority),
        annotations: value(&views, holder).into_iter().collect(),
        ..held.unwrap_or_else(|| View::of(key))
    };
    Ok(Page::of(view, first_of(changes, majority)))
}

/// The locks that are held at a majority of all masters, by name, as far as the masters replied.
fn listed(size: Size, pages: Vec<Page>) -> Vec<View> {
    let mut names = BTreeMap::<_, Vec<View>>::new();
    for view in pages.into_iter().flat_map(|page| page.views) {
        names.entry(view.key.name.clone()).or_default().push(view);
    }
    let held = names.into_values().filter_map(|views| held(size, &views));
    held.collect()
}

fn lease(view: &View) -> Option<LeaseId> {
    view.holder.as_ref().map(|holder| holder.lease)
}

/// The replies, of at least a majority, and the errors of the others.
fn replies<T>(size: Size, results: Vec<Option<Result<T>>>) -> Result<(Vec<T>, Vec<Error>)> {
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

/// The masters that have a lease, for the lease that most of them have.
fn most(views: &[View]) -> Vec<(&View, &HolderInfo)> {
    let mut leases = BTreeMap::<_, Vec<_>>::new();
    for view in views {
        if let Some(holder) = &view.holder {
            leases.entry(holder.lease).or_default().push((view, holder));
        }
    }
    leases
        .into_values()
        .max_by_key(Vec::len)
        .unwrap_or_default()
}

/// Whether a lease without a majority among the replies could have one with the masters that did not reply.
fn is_open(size: Size, views: &[View]) -> bool {
    let (most, silent) = (most(views).len(), size.masters() - views.len());
    most > 0 && most + silent >= size.majority()
}

/// The state of a lock whose lease a majority has. It expires when the majority expires. Its hold count is the one that a
/// majority has at least: a master that was unreachable may have missed a change. It is in its minimum hold unless a
/// majority has missed the begin of that: the holder has released it.
fn held(size: Size, views: &[View]) -> Option<View> {
    let mut held = most(views);
    held.sort_by_key(|(_, holder)| Reverse(holder.time_left));
    let (view, last) = *held.get(size.majority() - 1)?;
    let mut counts: Vec<_> = held.iter().map(|(_, holder)| holder.count).collect();
    counts.sort_unstable_by_key(|count| Reverse(*count));
    let count = *counts.get(size.majority() - 1)?;
    let active = held.iter().filter(|(_, holder)| !holder.is_reserved);
    // A master may have a larger one, from a grant that won no majority.
    let tokens: Vec<_> = held.iter().filter_map(|(view, _)| view.token).collect();
    let alike = |token: &Token| tokens.iter().filter(|other| *other == token).count();
    Some(View {
        holder: Some(HolderInfo {
            is_reserved: active.count() < size.majority(),
            client: held.iter().find_map(|(_, holder)| holder.client.clone()),
            ..HolderInfo::new(last.lease, count, last.time_left)
        }),
        token: tokens
            .iter()
            .copied()
            .max_by_key(|token| (alike(token), *token)),
        ..View::of(view.key.clone())
    })
}

/// The time that the clocks of a majority have reached: that of a master that replies late, or is ahead, does not count.
fn now(views: &[View], majority: usize) -> Option<StoreTime> {
    let mut times: Vec<_> = views.iter().filter_map(|view| view.now).collect();
    times.sort_unstable_by_key(|time| Reverse(*time));
    times.get(majority - 1).copied()
}

/// The lease that has lost its majority by a revocation: with the masters that have revoked it, it would have one.
fn revoked(views: &[View], majority: usize) -> Option<LeaseId> {
    let masters = |lease: &LeaseId| {
        let had = |view: &&View| view.revoked == Some(*lease) || self::lease(view) == Some(*lease);
        views.iter().filter(had).count()
    };
    let mut leases = views.iter().filter_map(|view| view.revoked);
    leases.find(|lease| masters(lease) >= majority)
}

/// The value of the holder, or without one of the last leader. A leader is held by a majority before it writes, so each
/// copy is that of a leader. The latest value of that leader counts, as a master may have missed it.
fn value(views: &[View], holder: Option<LeaseId>) -> Option<(Slot, Annotation)> {
    let mut copies = BTreeMap::new();
    for copy in views.iter().flat_map(|view| &view.annotations) {
        let (_, it) = copy;
        let number = Proclamation::parse(&it.text).map(|value| value.number);
        let rank = (Some(it.lease) == holder, it.token, number);
        copies.insert(rank, copy);
    }
    let (_, latest) = copies.pop_last()?;
    Some(latest.clone())
}

/// The first change at any master. `None` if too few masters report changes: a majority could change without them.
fn first_of(changes: Vec<Changed>, majority: usize) -> Option<Changed> {
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
    use super::*;
    use crate::store::api::fixture;

    fn view(lease: Option<u64>, count: u32) -> View {
        View {
            holder: lease.map(|number| {
                let time_left = Duration::from_secs(u64::from(count));
                HolderInfo::new(fixture::lease(number), count, time_left)
            }),
            ..View::of(fixture::key("n"))
        }
    }

    /// A hold count of 0 is a minimum hold: some masters have missed the release, or have forgotten the lease.
    #[test]
    fn a_hold_count_is_what_a_majority_has_at_least_and_a_minimum_hold_keeps_the_lock() {
        let size = Size::new(3).unwrap();
        for (counts, expected) in [
            (&[1, 1, 2][..], Some((1, false))),
            (&[2, 1, 2], Some((2, false))),
            (&[1, 3], Some((1, false))),
            (&[3], None),
            (&[0, 1], Some((1, true))),
            (&[0, 0, 1], Some((1, true))),
            (&[0, 1, 1], Some((1, false))),
            (&[0], None),
        ] {
            let views: Vec<_> = counts.iter().map(|count| view(Some(1), *count)).collect();
            let found = held(size, &views).and_then(|view| view.holder);
            let found = found.map(|holder| (holder.count, holder.is_reserved));
            assert_eq!(found, expected, "{counts:?}");
        }
    }

    #[test]
    fn one_clock_that_is_ahead_does_not_decide() {
        // Of a bare majority, the clock that is behind decides.
        for (times, expected) in [
            (&[7, 9, 800][..], 9),
            (&[800, 9], 9),
            (&[0, 9, 8], 8),
            (&[0, 9], 0),
        ] {
            let at = |micros: &u64| View {
                now: Some(StoreTime::from_micros(*micros)),
                ..view(None, 1)
            };
            let views: Vec<_> = times.iter().map(at).collect();
            assert_eq!(now(&views, 2), Some(StoreTime::from_micros(expected)));
        }
    }

    #[test]
    fn a_lock_is_free_only_if_silent_masters_could_not_make_it_a_majority() {
        let is_open = |masters, holders: &[Option<u64>]| {
            let (size, views) = (Size::new(masters).unwrap(), holders.iter());
            let views: Vec<_> = views.map(|holder| view(*holder, 1)).collect();
            held(size, &views).is_none() && is_open(size, &views)
        };
        let [x, y] = [Some(1), Some(2)];
        assert!(is_open(3, &[x, None]));
        assert!(is_open(3, &[x, y]));
        assert!(!is_open(3, &[x, x]));
        assert!(!is_open(3, &[None, None]));
        assert!(!is_open(3, &[x, y, None]));
        assert!(!is_open(5, &[x, y, None, None]));
        assert!(is_open(5, &[x, x, None, None]));
    }

    /// One master: the number of its holder, 0 for none, and the lease and the text of its annotation.
    fn at_master(holder: u64, value: Option<(u64, &str)>) -> View {
        let annotation = |(number, text): (u64, &str)| {
            let annotation = Annotation {
                lease: fixture::lease(number),
                token: Token::new(number).unwrap(),
                text: text.into(),
            };
            (Slot::Value, annotation)
        };
        View {
            annotations: value.map(annotation).into_iter().collect(),
            ..view((holder > 0).then_some(holder), 1)
        }
    }

    #[test]
    fn a_value_is_that_of_the_holder_or_of_the_last_leader() {
        let (old, new) = (Some((1, "9 old")), Some((2, "2 new")));
        let later = Some((2, "10 later"));
        for (masters, holder, text) in [
            ([(0, None), (0, None), (0, None)], 0, None),
            ([(1, old), (1, old), (0, None)], 1, old),
            // A minority has missed the end of the former term.
            ([(1, old), (2, new), (2, new)], 2, new),
            ([(2, old), (2, old), (2, new)], 2, new),
            ([(2, new), (2, new), (2, later)], 2, later),
            ([(2, later), (2, later), (2, new)], 2, later),
            ([(3, new), (3, old), (3, old)], 3, new),
            ([(0, old), (0, old), (0, new)], 0, new),
            // No majority holds it.
            ([(1, old), (2, new), (0, old)], 0, new),
        ] {
            let views = masters.map(|(holder, value)| at_master(holder, value));
            let pages = views.into_iter().map(|view| Page::of(view, None));
            let page = name(Size::new(3).unwrap(), pages.collect(), &[]).unwrap();
            let found = &page.views[0];
            let number = lease(found).map_or(0, |lease| lease.number);
            let found = (number, found.annotation().map(|it| &*it.text));
            let text = text.map(|(_, text)| text);
            assert_eq!(found, (holder, text), "{masters:?}");
        }
    }

    /// Also while the other masters have not applied it yet. A revocation at a minority ends no lease: if its holder
    /// releases it later, it was released.
    #[test]
    fn a_lease_is_revoked_if_that_has_ended_its_majority() {
        let known = |number: u64| (number > 0).then(|| fixture::lease(number));
        let at_master = |(holder, revoked): &(u64, u64)| View {
            revoked: known(*revoked),
            ..at_master(*holder, None)
        };
        for (masters, expected) in [
            (&[(0, 0), (0, 0), (0, 0)][..], 0),
            (&[(0, 1), (0, 1), (0, 1)], 1),
            (&[(0, 1), (0, 1), (0, 0)], 1),
            (&[(0, 1), (1, 0), (0, 0)], 1),
            (&[(2, 1), (2, 1), (1, 0)], 1),
            (&[(0, 1), (0, 0), (0, 0)], 0),
            (&[(0, 1), (0, 2), (0, 0)], 0),
            (&[(2, 1), (2, 2), (0, 2)], 2),
            // One of them did not reply.
            (&[(0, 1), (0, 1)], 1),
        ] {
            let views: Vec<_> = masters.iter().map(at_master).collect();
            assert_eq!(revoked(&views, 2), known(expected), "{masters:?}");
        }
    }

    #[tokio::test]
    async fn the_first_change_at_any_master_counts_if_a_majority_reports_changes() {
        let observed = |changes: usize| {
            let channels = (0..changes).map(|_| oneshot::channel::<()>());
            let (senders, changes): (Vec<_>, Vec<_>) = channels.unzip();
            (senders, first_of(changes, 2))
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
