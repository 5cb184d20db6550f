//! Watching records: the server tells when somebody else changes one that it was asked to watch.
//!
//! It watches what was read on a connection until the next change, one's own included. So each
//! operation of a holder ends it, and the record has to be read again. That is not done with the
//! operation, for it would make every short lock dearer, but a moment later, for all that is held
//! still. The answers tell of what was lost until then.
//!
//! Nor is it done by the script: servers before 7.2 watch all keys of a script anew at each of its
//! reads, which takes time with the square of a batch, and would tell of counters and queues.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{LeaseId, Op, Outcome};
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisResult, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::keys::RecordKey;
use super::notifications::Notifications;
use crate::store::api::{Key, Reply, Request};

/// How long a lease must be held to be worth watching. Many are not, and the store is asked for
/// nothing then; to learn of a loss so much later harms nobody.
const MOMENT: Duration = Duration::from_millis(10);

/// How many records are read in one round trip.
const READ_MAX: usize = 256;

/// How many renewed leases are watched anew in a second at most. Watching costs the server about as
/// much as the renewal, and its room for what it watches is bounded. That is every lease of a process
/// with 5,000 of them and a ttl of 30 s; of more, the rest learns of a loss at the next renewal.
const RENEWED_MAX: u32 = 500;

/// Asks the server to watch the keys of the next command.
pub(super) const START: [&str; 3] = ["CLIENT", "CACHING", "YES"];

/// The records that the server is to watch on one connection, and does not yet.
#[derive(Debug, Default)]
pub(super) struct KeyTracking {
    /// Whether the server does so at all.
    on: AtomicBool,
    due: Mutex<Due>,
    noted: Notify,
}

#[derive(Debug, Default)]
struct Due {
    keys: HashMap<Key, Noted>,
    notes: u64,
    /// How many renewed ones were noted since this instant.
    renewed: (Option<Instant>, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Noted {
    why: Why,
    /// Which note it was: the same lease may be noted again.
    nth: u64,
    /// Whether it was renewed just now, so that it need not be looked at very closely.
    renewed: bool,
}

/// Why a record is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// A lease of ours holds it.
    Held(LeaseId),
    /// Another does, and somebody waits for it outside of the queue.
    Awaited,
}

impl KeyTracking {
    /// From now on what is noted is watched.
    pub(super) fn turn_on(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    /// Notes what came of a batch.
    pub(super) fn note(&self, requests: &[Request], replies: &[Reply]) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let mut due = self.due();
        let mut noted = false;
        for (request, reply) in requests.iter().zip(replies) {
            let Reply::Applied { outcome, .. } = reply else {
                continue;
            };
            match (request.op, outcome) {
                (Op::Renew { lease, .. }, Outcome::Renewed) => {
                    noted |= due.note_renewed(&request.key, lease, now);
                }
                (Op::Acquire { lease, .. }, Outcome::Granted { .. })
                | (Op::Enter { lease, .. }, Outcome::Entered { .. })
                | (Op::SetToken { lease, .. }, Outcome::Fenced | Outcome::Outdated)
                | (Op::Release { lease, .. }, Outcome::Released { count: 1.. }) => {
                    due.note(&request.key, Why::Held(lease));
                    noted = true;
                }
                (Op::Acquire { wait: true, .. }, Outcome::Refused { place: None, .. }) => {
                    due.note(&request.key, Why::Awaited);
                    noted = true;
                }
                (
                    Op::Enter { lease, .. }
                    | Op::SetToken { lease, .. }
                    | Op::Renew { lease, .. }
                    | Op::Release { lease, .. },
                    _,
                ) => {
                    due.strike(&request.key, lease);
                }
                (Op::Acquire { .. } | Op::Revoke, _) => {}
            }
        }
        drop(due);
        if noted {
            self.noted.notify_one();
        }
    }

    /// Notes that a lease was granted a lock by a message.
    pub(super) fn note_grant(&self, key: &Key, lease: LeaseId) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        self.due().note(key, Why::Held(lease));
        self.noted.notify_one();
    }

    /// Lets the server watch all that is noted, a moment later, as long as the connection stands.
    pub(super) async fn run(
        &self,
        mut connection: MultiplexedConnection,
        notifications: &Notifications,
    ) {
        loop {
            self.noted.notified().await;
            tokio::time::sleep(MOMENT).await;
            let due = self.due().all();
            for part in due.chunks(READ_MAX) {
                let apart = !notifications.node().is_empty();
                let Ok(changed) = read(&mut connection, part, apart).await else {
                    return;
                };
                let done = self.due().done(part);
                let told = part.iter().zip(done.iter().zip(changed));
                for ((key, _), _) in told.filter(|(_, (done, changed))| **done && *changed) {
                    notifications.tell_change(key);
                }
            }
        }
    }

    fn due(&self) -> MutexGuard<'_, Due> {
        // No panic can leave it half changed: each change is one call.
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Due {
    /// Notes a lease that was renewed, if it is not one of too many. `now` is the same for a batch.
    fn note_renewed(&mut self, key: &Key, lease: LeaseId, now: Instant) -> bool {
        let (since, count) = self.renewed;
        let (since, count) = match since {
            Some(since) if now.duration_since(since) < Duration::from_secs(1) => (since, count),
            _ => (now, 0),
        };
        self.renewed = (Some(since), count + 1);
        if count >= RENEWED_MAX {
            return false;
        }
        self.notes += 1;
        let noted = Noted {
            why: Why::Held(lease),
            nth: self.notes,
            renewed: true,
        };
        self.keys.insert(key.clone(), noted);
        true
    }

    fn note(&mut self, key: &Key, why: Why) {
        self.notes += 1;
        let noted = Noted {
            why,
            nth: self.notes,
            renewed: false,
        };
        match self.keys.entry(key.clone()) {
            // What is watched for its holder is watched.
            Entry::Occupied(_) if why == Why::Awaited => {}
            Entry::Occupied(mut entry) => drop(entry.insert(noted)),
            Entry::Vacant(entry) => drop(entry.insert(noted)),
        }
    }

    /// A lease does not hold a lock any more.
    fn strike(&mut self, key: &Key, lease: LeaseId) {
        if let Some(noted) = self.keys.get(key)
            && noted.why == Why::Held(lease)
        {
            self.keys.remove(key);
        }
    }

    fn all(&self) -> Vec<(Key, Noted)> {
        let keys = self.keys.iter();
        keys.map(|(key, noted)| (key.clone(), *noted)).collect()
    }

    /// Takes out what was read, and answers for each whether it was still to be: what was noted
    /// again or struck meanwhile is another matter.
    fn done(&mut self, read: &[(Key, Noted)]) -> Vec<bool> {
        let mut done = |(key, noted): &(Key, Noted)| {
            let same = self.keys.get(key) == Some(noted);
            if same {
                self.keys.remove(key);
            }
            same
        };
        read.iter().map(&mut done).collect()
    }
}

/// Reads records, which the server watches from then on. Answers for each whether it is not any more
/// as it was when it was noted.
///
/// Those that were renewed just now are read all at once, whether they are there. Only if some are
/// not, each is looked at. A node of a cluster answers only for each `apart`.
async fn read(
    connection: &mut MultiplexedConnection,
    due: &[(Key, Noted)],
    apart: bool,
) -> RedisResult<Vec<bool>> {
    let renewed: Vec<_> = due
        .iter()
        .filter(|(_, noted)| noted.renewed)
        .map(|(key, _)| key)
        .collect();
    let all_there = !apart && (renewed.is_empty() || all_exist(connection, &renewed).await?);
    let looked_at = |noted: &Noted| !(noted.renewed && all_there);
    let mut pipeline = Pipeline::with_capacity(due.len() * 2);
    for (key, noted) in due.iter().filter(|(_, noted)| looked_at(noted)) {
        pipeline.cmd(START[0]).arg(&START[1..]);
        let record = RecordKey(key).to_string();
        match noted.why {
            Why::Held(lease) => pipeline.cmd("HGET").arg(record).arg(lease.to_string()),
            Why::Awaited => pipeline.cmd("PTTL").arg(record),
        };
    }
    let count = pipeline.len();
    let answers = match count {
        0 => Vec::new(),
        _ => connection.send_packed_commands(&pipeline, 0, count).await?,
    };
    // Every other answer is that it watches.
    let mut answers = answers.iter().skip(1).step_by(2);
    let mut look = |(_, noted): &(Key, Noted)| {
        looked_at(noted)
            && answers
                .next()
                .is_some_and(|answer| changed(noted.why, answer))
    };
    Ok(due.iter().map(&mut look).collect())
}

/// Whether there is a record under each of these keys, which the server watches from then on.
async fn all_exist(connection: &mut MultiplexedConnection, keys: &[&Key]) -> RedisResult<bool> {
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.cmd(START[0]).arg(&START[1..]);
    let exists = pipeline.cmd("EXISTS");
    for key in keys {
        exists.arg(RecordKey(key).to_string());
    }
    let answers = connection.send_packed_commands(&pipeline, 0, 2).await?;
    let there = match answers.last() {
        Some(Value::Int(there)) => usize::try_from(*there).ok(),
        _ => None,
    };
    Ok(there == Some(keys.len()))
}

fn changed(why: Why, answer: &Value) -> bool {
    match (why, answer) {
        (Why::Held(_), Value::Nil) | (Why::Awaited, Value::Int(-2)) => true,
        // It is no record any more.
        (_, Value::ServerError(error)) => error.code() == "WRONGTYPE",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{ClientId, Name, ScopeName};

    use super::*;
    use crate::store::api::Keyspace;

    fn key(name: &str) -> Key {
        let scope = |text| ScopeName::parse(text).unwrap();
        Keyspace::new(scope("app"), scope("t")).key(Name::parse(name).unwrap())
    }

    fn lease(number: u64) -> LeaseId {
        let client = ClientId::from_random([0; 16]);
        LeaseId { client, number }
    }

    #[test]
    fn what_changes_during_a_read_is_read_again() {
        let mut due = Due::default();
        let names = ["same", "again", "struck", "other", "late"];
        let [same, again, struck, other, late] = names.map(key);
        for key in [&same, &again, &struck, &other] {
            due.note(key, Why::Held(lease(1)));
        }
        let read = due.all();
        due.note(&again, Why::Held(lease(1)));
        due.strike(&struck, lease(1));
        due.strike(&other, lease(1));
        due.note(&other, Why::Held(lease(2)));
        due.note(&late, Why::Awaited);
        for ((key, _), done) in read.iter().zip(due.done(&read)) {
            assert_eq!(done, *key == same, "{key:?}");
        }
        let mut left: Vec<_> = due.keys.keys().cloned().collect();
        left.sort();
        assert_eq!(left, [again, late, other]);
    }

    #[test]
    fn of_very_many_that_were_renewed_some_are_watched() {
        let mut due = Due::default();
        let now = Instant::now();
        for number in 0..RENEWED_MAX {
            assert!(due.note_renewed(&key("a"), lease(number.into()), now));
        }
        assert!(!due.note_renewed(&key("b"), lease(1), now));
        due.note(&key("c"), Why::Held(lease(2)));
        assert!(due.note_renewed(&key("d"), lease(3), now + Duration::from_secs(1)));
        assert_eq!(due.keys.len(), 3);
    }

    #[test]
    fn a_holder_counts_more_than_who_waits() {
        let mut due = Due::default();
        let key = key("a");
        for why in [Why::Awaited, Why::Held(lease(1)), Why::Awaited] {
            due.note(&key, why);
        }
        assert_eq!(due.keys[&key].why, Why::Held(lease(1)));
        due.strike(&key, lease(2));
        assert_eq!(due.keys.len(), 1);
        due.strike(&key, lease(1));
        assert!(due.keys.is_empty());
    }
}
