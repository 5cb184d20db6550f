//! Reads the state of names and clients: no rule depends on it.
//!
//! A reading may be tracked: then the server reports the next change of each key that was read, once. Each command is
//! tracked by itself, not by a transaction or a script: these need further rights, and fail in a slot of a cluster that
//! is being migrated. So a reading may mix two states of a name; if it is tracked, the change between them completes it.

mod listing;
mod semaphore;

use leasehold_core::record::{Kind, LeaseKind};
use leasehold_core::{Annotation, LatchStatus, Mismatch, Slot, Token};
use redis::{Cmd, Value, cmd};

use self::semaphore::Shared;
use super::RedisStore;
use super::errors;
use super::link::connect::is_replica;
use super::topology::Topology;
use super::topology::call::{Call, CallResult};
use super::wire::command::command;
use super::wire::decode::latch_status;
use super::wire::keys::{annotation_key, counter_key, queue_key, record_key, revoked_key};
use super::wire::note;
use super::wire::reply::{is_error, parsed, record, time, time_left};
use crate::store::api::{HolderInfo, Key, Page, Parts, Query, View, WaiterInfo, mismatch};
use crate::{Durability, Error, Result};

/// The field of a hash that says what it is: the status of a latch, or the kind of a lock.
const STATUS_FIELD: &str = ".";

/// Why a record cannot be read.
pub(super) enum Unreadable {
    /// Its key holds a value that is not a record of this library.
    Foreign(Error),
    /// The server refused.
    Refused(Error),
}

/// A command that reads, and its key.
type KeyedCommand = (String, Cmd);

/// The reply to a command that reads.
struct Reading {
    reply: Value,
    /// The session over which it was executed.
    session: u64,
    /// Whether the next change of its key is reported.
    tracked: bool,
}

impl RedisStore {
    /// The reply to a query.
    pub(super) async fn page(&self, query: Query) -> Result<Page> {
        match query {
            Query::Name { key, parts, watch } => {
                let read = self.name(&key, &parts, watch).await;
                read.map_err(|error| error.for_lock(&key.name))
            }
            Query::Names(space) => self.list(&space).await.map(Page::listed),
            Query::Completions(space) => self.completions(&space).await.map(Page::listed),
            Query::Client(space, client) => Ok(Page {
                client: self.client(&space, client).await?,
                ..Page::default()
            }),
            Query::Durability(durability) => {
                if let (Durability::Replicas { count, .. }, Some(replicas)) =
                    (durability, &self.replicas)
                {
                    replicas.check(count).await?;
                }
                Ok(Page::default())
            }
        }
    }

    /// Reads parts of the state of a name, and has its next change notified if the server can.
    async fn name(&self, key: &Key, parts: &Parts, watch: bool) -> Result<Page> {
        let commands = commands(key, parts);
        let (replies, changed) = match watch {
            true => {
                // Before the name is read, so that no change is missed.
                let changed = self.topology.clients().observers.add(key);
                let (replies, tracked) = self.fetch_tracked(commands).await?;
                (replies, tracked.then_some(changed))
            }
            false => (self.fetch(commands).await?, None),
        };
        let shared = self.shared(&[(key, &replies[..])]).await?;
        let shared = shared.into_values().next();
        let mut view = match view(key, parts, &replies, shared) {
            Ok(view) => view,
            Err(Unreadable::Foreign(error)) => return Err(self.used_otherwise(key, error).await),
            Err(Unreadable::Refused(error)) => return Err(error),
        };
        if let Parts::Holder | Parts::Waiters = parts {
            self.add_clients(std::slice::from_mut(&mut view)).await?;
        }
        Ok(Page::of(view, changed))
    }

    /// The error of a name whose key has another type than was expected: usually it is used as the other kind.
    async fn used_otherwise(&self, key: &Key, error: Error) -> Error {
        let record_key = record_key(key);
        let commands = vec![
            keyed("GET", record_key.clone(), &[]),
            keyed("HGET", record_key, &[STATUS_FIELD]),
        ];
        let kind = match self.fetch(commands).await.as_deref() {
            Ok([value, _]) if record(value).is_some() => Some(Kind::Leases(LeaseKind::Mutex)),
            Ok([_, status]) if latch_status(status).is_some() => Some(Kind::Latch),
            Ok([_, status]) => semaphore::kind(status).map(Kind::Leases),
            Ok(_) => None,
            Err(other) => return other.clone(),
        };
        kind.map_or(error, |kind| mismatch(Mismatch::Kind(kind)))
    }

    /// The replies to commands, in their order.
    async fn fetch(&self, commands: Vec<KeyedCommand>) -> Result<Vec<Value>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let readings = self.readings(commands, false).await?.into_iter();
        Ok(readings.map(|reading| reading.reply).collect())
    }

    /// The same of a master, and whether the next change of each key is reported.
    async fn fetch_tracked(&self, commands: Vec<KeyedCommand>) -> Result<(Vec<Value>, bool)> {
        let mut readings = self.readings(commands.clone(), true).await?;
        let session = readings.first().map_or(0, |reading| reading.session);
        if readings.iter().any(|reading| reading.session != session) {
            // The slot has moved, and the time is that of its former owner. The slot map is up to date by now.
            readings = self.readings(commands, true).await?;
        }
        let tracked = readings.iter().all(|reading| reading.tracked);
        let replies = readings.into_iter().map(|reading| reading.reply);
        Ok((replies.collect(), tracked))
    }

    /// Executes commands that read.
    async fn readings(&self, commands: Vec<KeyedCommand>, tracked: bool) -> Result<Vec<Reading>> {
        let count = commands.len();
        let calls = commands.into_iter().enumerate();
        let mut calls: Vec<_> = calls
            .map(|(position, (key, cmd))| Call::reading(&key, cmd, position, tracked))
            .collect();
        if let (Topology::One(_), true) = (&*self.topology, tracked) {
            // A node of a cluster would redirect; this server says what it is, unless it is older than 6.0.
            calls.insert(0, Call::reading("", cmd("HELLO"), count, false));
        }
        let mut readings: Vec<Option<Reading>> = Vec::new();
        readings.resize_with(count, || None);
        for (call, result) in self.topology.call(calls).await {
            let (reply, session) = match result {
                CallResult::Replied(reply, session) => (reply, session),
                CallResult::NotApplied(error) | CallResult::NoReply(error) => {
                    return Err(error);
                }
            };
            match call.positions.first().and_then(|at| readings.get_mut(*at)) {
                Some(reading) => {
                    *reading = Some(Reading {
                        reply,
                        session: session.id,
                        tracked: call.tracked && session.subscriptions.tracking.is_on(),
                    });
                }
                None if is_replica(&reply) => {
                    return Err(session.check_demotion(errors::replica()));
                }
                None => {}
            }
        }
        let readings: Option<Vec<_>> = readings.into_iter().collect();
        readings.ok_or_else(errors::invalid_reply)
    }
}

/// A command with a key, and with further arguments.
fn keyed(name: &str, key: String, args: &[&str]) -> KeyedCommand {
    let command = command(name, &key, args);
    (key, command)
}

/// The commands that read parts of the state of a name.
///
/// The record comes first: an annotation that was written under it, and the revocation that has removed it, are read
/// with it. And a waiter that has become the holder meanwhile is not listed as both.
fn commands(key: &Key, parts: &Parts) -> Vec<KeyedCommand> {
    let record = record_key(key);
    let get = |key: String| keyed("GET", key, &[]);
    let annotation = |slot| get(annotation_key(key, slot));
    let queue = || queue_key(key);
    let mut commands = vec![get(record.clone()), keyed("PTTL", record.clone(), &[])];
    match parts {
        Parts::Lease | Parts::Holder | Parts::Waiters => {
            commands.push(get(counter_key(key)));
        }
        Parts::Annotation(slot) => commands.push(annotation(slot)),
        Parts::State(slot) => commands.extend([
            annotation(slot),
            keyed("LLEN", queue(), &[]),
            get(revoked_key(key)),
            // Of the node that has the record.
            (record, cmd("TIME")),
        ]),
        Parts::Latch => commands = vec![keyed("HGET", record, &[STATUS_FIELD])],
    }
    if *parts == Parts::Waiters {
        let last = (2 * View::WAITERS_MAX - 1).to_string();
        commands.push(keyed("LRANGE", queue(), &["0", &last]));
    }
    commands
}

/// The parts of the state of a name in the replies to its [`commands`], and in those of a lock with several holders.
pub(super) fn view(
    key: &Key,
    parts: &Parts,
    replies: &[Value],
    shared: Option<Shared>,
) -> Result<View, Unreadable> {
    let view = View::of(key.clone());
    // A lock with several holders has a record of another type.
    let holder = |record, ttl| match shared {
        Some(_) => Ok(None),
        None => holder(key, record, ttl),
    };
    let mut view = match (parts, replies) {
        (Parts::Latch, [status]) => View {
            latch: latch(key, status)?,
            ..view
        },
        (Parts::Lease | Parts::Holder | Parts::Waiters, [record, ttl, counter, queue @ ..]) => {
            let waiters = queue.first().map(waiters).unwrap_or_default();
            View {
                holder: holder(record, ttl)?,
                token: parsed(checked("GET", &counter_key(key), counter)?).and_then(Token::new),
                waiters,
                ..view
            }
        }
        (Parts::Annotation(slot), [record, ttl, annotation]) => View {
            holder: holder(record, ttl)?,
            annotations: stored(key, slot, annotation)?,
            ..view
        },
        (Parts::State(slot), [record, ttl, annotation, queue, revoked, now]) => View {
            now: Some(time(checked("TIME", "", now)?).ok_or_else(invalid)?),
            holder: holder(record, ttl)?,
            // Zero also for a queue that cannot be read, as in a listing.
            queue_length: match queue {
                Value::Int(elements) => usize::try_from(*elements).unwrap_or_default() / 2,
                _ => 0,
            },
            // A value that cannot be read only makes a revocation look like a release.
            revoked: parsed(revoked),
            annotations: stored(key, slot, annotation)?,
            ..view
        },
        _ => return Err(invalid()),
    };
    if let Some(shared) = shared {
        shared.complete(&mut view);
    }
    Ok(view)
}

fn invalid() -> Unreadable {
    Unreadable::Refused(errors::invalid_reply())
}

fn foreign(key: &str) -> Unreadable {
    Unreadable::Foreign(errors::foreign_value(key))
}

/// The status of a latch. `None`: it has no record.
fn latch(key: &Key, status: &Value) -> Result<Option<LatchStatus>, Unreadable> {
    let record = record_key(key);
    match checked("HGET", &record, status)? {
        Value::Nil => Ok(None),
        status => latch_status(status)
            .ok_or_else(|| foreign(&record))
            .map(Some),
    }
}

fn holder(key: &Key, value: &Value, ttl: &Value) -> Result<Option<HolderInfo>, Unreadable> {
    let key = record_key(key);
    let value = checked("GET", &key, value)?;
    let Value::Int(ttl) = checked("PTTL", &key, ttl)? else {
        return Err(invalid());
    };
    // It may have expired between the two reads.
    if *value == Value::Nil || *ttl == -2 {
        return Ok(None);
    }
    let (lease, count) = record(value).ok_or_else(|| foreign(&key))?;
    Ok(Some(HolderInfo::new(lease, count, time_left(*ttl))))
}

/// The annotation of a name, if it has one.
fn stored(key: &Key, slot: &Slot, value: &Value) -> Result<Vec<(Slot, Annotation)>, Unreadable> {
    let key = annotation_key(key, slot);
    let refused = |unreadable| match unreadable {
        Unreadable::Foreign(error) | Unreadable::Refused(error) => Unreadable::Refused(error),
    };
    let value = checked("GET", &key, value).map_err(refused)?;
    if *value == Value::Nil {
        return Ok(Vec::new());
    }
    let annotation = note::parse(value).ok_or_else(|| refused(foreign(&key)))?;
    Ok(vec![(slot.clone(), annotation)])
}

/// The leases in a queue: every second element. Empty also for a queue that cannot be read, which hides no lock.
fn waiters(queue: &Value) -> Vec<WaiterInfo> {
    let elements = queue.as_sequence().unwrap_or_default();
    let leases = elements.iter().skip(1).step_by(2).filter_map(parsed);
    let waiter = |lease| WaiterInfo {
        lease,
        client: None,
    };
    leases.map(waiter).collect()
}

/// The reply to a command, unless it is an error.
fn checked<'a>(command: &str, key: &str, reply: &'a Value) -> Result<&'a Value, Unreadable> {
    let Value::ServerError(error) = reply else {
        return Ok(reply);
    };
    let described = errors::command_error(command, key, error);
    Err(match is_error(reply, "WRONGTYPE") {
        true => Unreadable::Foreign(described),
        false => Unreadable::Refused(described),
    })
}
