//! Key tracking: the server notifies this connection when another client changes a record.
//!
//! The server tracks a key that was read on a connection until its next change, own changes included. So
//! each operation of a holder ends the tracking, and the record has to be read again. This does not happen
//! with the operation, as it would make every short lock more expensive, but a moment later, for all mutexes
//! that are still held. The replies show which were lost until then.
//!
//! A semaphore is not tracked for its holders: each would be notified of the renewals of all others. They learn of a
//! revocation by a message, and of any other loss by their next renewal.
//!
//! It does not happen in the script either: servers before 7.2 track all keys of a script again at each of
//! its reads, which is quadratic in the size of a batch, and would report counters and queues.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::{Claim, LeaseId, Op, Outcome};
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisResult, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::notifications::Notifications;
use crate::store::api::{Key, Reply, Request};
use crate::store::lock::lock;
use crate::store::redis::wire::keys::record_key;
use crate::store::redis::wire::reply::{is_error, record};

/// A lease is tracked once it has been held for this to twice this time. Shorter ones cost no request. A loss in that
/// time is noticed later.
const DELAY: Duration = Duration::from_millis(10);

/// The number of records read in one round trip.
const READ_MAX: usize = 256;

/// The number of renewed leases that are tracked again per second. Tracking costs the server about as much as
/// the renewal, and its tracking table is limited. This covers every lease of a process with 5,000 of them
/// and a ttl of 30 s; with more, the loss of the others is noticed at their next renewal.
const RENEWED_MAX: u32 = 500;

/// Starts tracking of the keys of the next command.
pub(crate) const START: [&str; 3] = ["CLIENT", "CACHING", "YES"];

/// The records to track on one connection that are not tracked yet.
#[derive(Debug, Default)]
pub(crate) struct KeyTracking {
    /// Whether the server supports it.
    on: AtomicBool,
    due: Mutex<Due>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Due {
    keys: HashMap<Key, Tracked>,
    /// The number of entries added so far.
    added: u64,
    /// The number of renewed leases added since this instant.
    renewed: (Option<Instant>, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tracked {
    reason: Reason,
    /// Distinguishes entries of the same lease.
    nth: u64,
    /// Whether it was just renewed, so that it is enough to check that it exists.
    renewed: bool,
}

/// Reason a record is tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// A lease of this process holds it.
    Held(LeaseId),
    /// Another lease holds it, and a client waits for it without a queue.
    Awaited,
}

impl KeyTracking {
    /// Whether the server supports it, as far as is known: it reports the next change of a key that is read behind
    /// [`START`].
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Starts collecting records.
    pub(crate) fn turn_on(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    /// Adds the records of a batch by its replies, without renewals of permits.
    pub(crate) fn add<'a>(&self, replied: impl Iterator<Item = (&'a Request, &'a Reply)>) {
        if !self.is_on() {
            return;
        }
        let now = Instant::now();
        let mut due = lock(&self.due);
        let mut tracked = false;
        for (request, reply) in replied {
            let Ok(outcome) = reply.outcome() else {
                continue;
            };
            let (key, op) = (&request.key, &request.op);
            let reason = match (op, outcome, op.lease()) {
                (Op::Renew { count: None, .. }, Outcome::Kept, Some(lease)) => {
                    tracked |= due.add_renewed(key, lease, now);
                    continue;
                }
                (Op::Acquire(acquire), Outcome::Granted { .. }, Some(lease))
                    if acquire.claim == Claim::Mutex =>
                {
                    Reason::Held(lease)
                }
                (Op::Renew { .. }, Outcome::Kept, Some(lease))
                | (Op::SetToken { .. }, Outcome::Stored | Outcome::Outdated, Some(lease)) => {
                    Reason::Held(lease)
                }
                (Op::Acquire(acquire), Outcome::Refused { queue_position, .. }, _)
                    if acquire.wait && queue_position.is_none() =>
                {
                    Reason::Awaited
                }
                (Op::SetToken { .. } | Op::Renew { .. } | Op::Release { .. }, _, Some(lease)) => {
                    due.remove(key, lease);
                    continue;
                }
                _ => continue,
            };
            due.add(key, reason);
            tracked = true;
        }
        drop(due);
        if tracked {
            self.added.notify_one();
        }
    }

    /// Adds the record of a lease that was granted a mutex by a message.
    pub(crate) fn add_grant(&self, key: &Key, lease: LeaseId) {
        if !self.is_on() {
            return;
        }
        lock(&self.due).add(key, Reason::Held(lease));
        self.added.notify_one();
    }

    /// Tracks the added records, each after a short delay, until the connection breaks.
    pub(crate) async fn run(
        &self,
        mut connection: MultiplexedConnection,
        notifications: &Notifications,
    ) {
        loop {
            self.added.notified().await;
            // Those that are added later have notified again.
            let last = lock(&self.due).added;
            tokio::time::sleep(DELAY).await;
            let due = lock(&self.due).added_until(last);
            for part in due.chunks(READ_MAX) {
                let apart = !notifications.node().is_empty();
                let Ok(changed) = read(&mut connection, part, apart).await else {
                    return;
                };
                for ((key, tracked), changed) in part.iter().zip(changed) {
                    let was_due = lock(&self.due).done(key, tracked);
                    if was_due && changed {
                        notifications.notify_changed(key);
                    }
                }
            }
        }
    }
}

impl Due {
    /// Adds a renewed lease, unless there are too many. `now` is the same for a batch.
    fn add_renewed(&mut self, key: &Key, lease: LeaseId, now: Instant) -> bool {
        let (since, count) = self.renewed;
        let (since, count) = match since {
            Some(since) if now.duration_since(since) < Duration::from_secs(1) => (since, count),
            _ => (now, 0),
        };
        self.renewed = (Some(since), count + 1);
        if count >= RENEWED_MAX {
            return false;
        }
        self.insert(key, Reason::Held(lease), true);
        true
    }

    fn add(&mut self, key: &Key, reason: Reason) {
        // It may be tracked for its holder already.
        if reason != Reason::Awaited || !self.keys.contains_key(key) {
            self.insert(key, reason, false);
        }
    }

    fn insert(&mut self, key: &Key, reason: Reason, renewed: bool) {
        self.added += 1;
        let tracked = Tracked {
            reason,
            nth: self.added,
            renewed,
        };
        self.keys.insert(key.clone(), tracked);
    }

    /// Removes the record of a lease that no longer holds the lock.
    fn remove(&mut self, key: &Key, lease: LeaseId) {
        if let Entry::Occupied(tracked) = self.keys.entry(key.clone())
            && tracked.get().reason == Reason::Held(lease)
        {
            tracked.remove();
        }
    }

    /// The entries up to the `last` number.
    fn added_until(&self, last: u64) -> Vec<(Key, Tracked)> {
        let keys = self.keys.iter();
        let keys = keys.filter(|(_, tracked)| tracked.nth <= last);
        keys.map(|(key, tracked)| (key.clone(), *tracked)).collect()
    }

    /// Removes a record that was read. Returns whether it was still due: it may have been added again or removed
    /// meanwhile.
    fn done(&mut self, key: &Key, read: &Tracked) -> bool {
        let was_due = self.keys.get(key) == Some(read);
        if was_due {
            self.keys.remove(key);
        }
        was_due
    }
}

/// Reads records, which starts their tracking. Returns for each whether it has changed since it was added.
///
/// Just renewed records are first checked together for existence, and read one by one only if some are
/// missing. A node of a cluster can only be asked for each key `apart`.
async fn read(
    connection: &mut MultiplexedConnection,
    due: &[(Key, Tracked)],
    apart: bool,
) -> RedisResult<Vec<bool>> {
    let renewed: Vec<_> = due
        .iter()
        .filter(|(_, tracked)| tracked.renewed)
        .map(|(key, _)| key)
        .collect();
    let all_there = !apart && (renewed.is_empty() || all_exist(connection, &renewed).await?);
    let is_read = |tracked: &Tracked| !(tracked.renewed && all_there);
    let mut pipeline = Pipeline::with_capacity(due.len() * 2);
    for (key, tracked) in due.iter().filter(|(_, tracked)| is_read(tracked)) {
        pipeline.cmd(START[0]).arg(&START[1..]);
        let record = record_key(key);
        match tracked.reason {
            Reason::Held(_) => pipeline.cmd("GET").arg(record),
            Reason::Awaited => pipeline.cmd("PTTL").arg(record),
        };
    }
    let count = pipeline.len();
    let replies = match count {
        0 => Vec::new(),
        _ => connection.send_packed_commands(&pipeline, 0, count).await?,
    };
    // The replies to START are skipped.
    let mut replies = replies.iter().skip(1).step_by(2);
    let mut check = |(_, tracked): &(Key, Tracked)| {
        is_read(tracked)
            && replies
                .next()
                .is_some_and(|reply| changed(tracked.reason, reply))
    };
    Ok(due.iter().map(&mut check).collect())
}

/// Whether all of these records exist. This starts their tracking.
async fn all_exist(connection: &mut MultiplexedConnection, keys: &[&Key]) -> RedisResult<bool> {
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.cmd(START[0]).arg(&START[1..]);
    let exists = pipeline.cmd("EXISTS");
    for key in keys {
        exists.arg(record_key(key));
    }
    let replies = connection.send_packed_commands(&pipeline, 0, 2).await?;
    let there = match replies.last() {
        Some(Value::Int(there)) => usize::try_from(*there).ok(),
        _ => None,
    };
    Ok(there == Some(keys.len()))
}

fn changed(reason: Reason, reply: &Value) -> bool {
    match (reason, reply) {
        (Reason::Held(_), Value::Nil) | (Reason::Awaited, Value::Int(-2)) => true,
        (Reason::Held(lease), Value::BulkString(_)) => {
            record(reply).is_none_or(|(holder, _)| holder != lease)
        }
        // The key has another type now.
        (_, reply) => is_error(reply, "WRONGTYPE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::api::fixture::{key, lease};

    #[test]
    fn a_record_that_changes_during_its_read_is_read_again() {
        let mut due = Due::default();
        let names = ["same", "again", "removed", "other", "young", "late"];
        let [same, again, removed, other, young, late] = names.map(key);
        for key in [&same, &again, &removed, &other] {
            due.add(key, Reason::Held(lease(1)));
        }
        let last = due.added;
        due.add(&young, Reason::Held(lease(1)));
        let read = due.added_until(last);
        due.add(&again, Reason::Held(lease(1)));
        due.remove(&removed, lease(1));
        due.remove(&other, lease(1));
        due.add(&other, Reason::Held(lease(2)));
        due.add(&late, Reason::Awaited);
        for (key, tracked) in &read {
            assert_eq!(due.done(key, tracked), *key == same, "{key:?}");
        }
        let mut left: Vec<_> = due.keys.keys().cloned().collect();
        left.sort();
        assert_eq!(left, [again, late, other, young]);
    }

    #[test]
    fn the_number_of_renewed_leases_that_are_tracked_is_limited() {
        let mut due = Due::default();
        let now = Instant::now();
        for number in 0..RENEWED_MAX {
            assert!(due.add_renewed(&key("a"), lease(number.into()), now));
        }
        assert!(!due.add_renewed(&key("b"), lease(1), now));
        due.add(&key("c"), Reason::Held(lease(2)));
        assert!(due.add_renewed(&key("d"), lease(3), now + Duration::from_secs(1)));
        assert_eq!(due.keys.len(), 3);
    }

    #[test]
    fn a_holder_takes_precedence_over_a_waiter() {
        let mut due = Due::default();
        let key = key("a");
        for reason in [Reason::Awaited, Reason::Held(lease(1)), Reason::Awaited] {
            due.add(&key, reason);
        }
        assert_eq!(due.keys[&key].reason, Reason::Held(lease(1)));
        due.remove(&key, lease(2));
        assert_eq!(due.keys.len(), 1);
        due.remove(&key, lease(1));
        assert!(due.keys.is_empty());
    }
}
