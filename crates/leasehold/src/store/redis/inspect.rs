//! Reads records, for people: no rule depends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::time::Duration;

use leasehold_core::{ClientId, LeaseId, Name, Token};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value, cmd};

use super::codec::{fields, record, text, time_left};
use super::connection_manager::ConnectionManager;
use super::errors;
use super::keys::{client_key, counter_key, parse_record, queue_key, record_key, record_pattern};
use super::latch_status;
use crate::store::api::{ClientInfo, Detail, Entry, Key, Keyspace, WaiterInfo};
use crate::{Error, Result};

/// The number of keys that one step of a listing scans, which takes about half a millisecond.
const SCAN_COUNT: u32 = 1_000;

/// The number of records read in one round trip.
pub(super) const READ_MAX: usize = 256;

/// Why a record cannot be read.
pub(super) enum Unreadable {
    /// Its key holds a value that is not a record of this library.
    Foreign(Error),
    /// The server refused.
    Refused(Error),
}

/// A command that reads, and its key.
pub(super) type Query = (String, Cmd);

/// A server or cluster that executes queries.
pub(super) trait Reader: Sync {
    /// The replies, one per query and in the same order.
    fn read(&self, queries: Vec<Query>) -> impl Future<Output = Result<Vec<Value>>> + Send;

    /// Adds the store to an error.
    fn name_error(&self, error: Error) -> Error;
}

impl Reader for ConnectionManager {
    async fn read(&self, queries: Vec<Query>) -> Result<Vec<Value>> {
        let mut pipeline = Pipeline::with_capacity(queries.len());
        for (_, cmd) in queries {
            pipeline.add_command(cmd);
        }
        let count = pipeline.len();
        let send = |mut connection: MultiplexedConnection| async move {
            connection.send_packed_commands(&pipeline, 0, count).await
        };
        let replies = self.exchange(Duration::ZERO, send).await?;
        if replies.len() == count {
            Ok(replies)
        } else {
            Err(self.name_error(errors::invalid_reply()))
        }
    }

    fn name_error(&self, error: Error) -> Error {
        error.at_store(self.target())
    }
}

/// The lease that holds a lock.
pub(super) async fn inspect(
    reader: &impl Reader,
    key: &Key,
    detail: Detail,
) -> Result<Option<Entry>> {
    let mut found = entries(reader, std::slice::from_ref(key), detail).await?;
    match found.pop() {
        Some(Ok(Some(mut entry))) => {
            if detail >= Detail::Holder {
                add_clients(reader, std::slice::from_mut(&mut entry)).await?;
            }
            Ok(Some(entry))
        }
        Some(Ok(None)) | None => Ok(None),
        Some(Err(unreadable)) => {
            let error = match unreadable {
                Unreadable::Foreign(error) => wrong_type(reader, key, error).await,
                Unreadable::Refused(error) => error,
            };
            Err(reader.name_error(error.for_lock(&key.name)))
        }
    }
}

/// Whether a key has a value of another type than the command is for.
pub(super) fn is_wrong_type(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "WRONGTYPE")
}

/// The error of a lock whose key has another type, as a reading of it found: that of a latch if it is one.
pub(super) async fn wrong_type(reader: &impl Reader, key: &Key, error: Error) -> Error {
    match reader.read(vec![latch_status::query(key)]).await.as_deref() {
        Ok([value]) if latch_status::parse(value).is_some() => errors::used_as_latch(),
        Ok(_) => error,
        Err(other) => other.clone(),
    }
}

/// The locks of a keyspace that are held on any of these servers, by name.
pub(super) async fn list(
    reader: &impl Reader,
    servers: Vec<&ConnectionManager>,
    space: &Keyspace,
) -> Result<Vec<Entry>> {
    let mut all = BTreeSet::new();
    for server in servers {
        all.append(&mut names(server, space).await?);
    }
    let keys: Vec<_> = all.into_iter().map(|name| space.key(name)).collect();
    let mut listed = Vec::new();
    for part in keys.chunks(READ_MAX) {
        for found in entries(reader, part, Detail::Waiters).await? {
            match found {
                Ok(entry) => listed.extend(entry),
                Err(Unreadable::Foreign(_)) => {}
                Err(Unreadable::Refused(error)) => return Err(reader.name_error(error)),
            }
        }
    }
    add_clients(reader, &mut listed).await?;
    Ok(listed)
}

/// The names that have a record, in order.
async fn names(manager: &ConnectionManager, space: &Keyspace) -> Result<BTreeSet<Name>> {
    let mut names = BTreeSet::new();
    let add = |key: &[u8]| names.extend(parse_record(space, key));
    scan(manager, &record_pattern(space), add).await?;
    Ok(names)
}

/// Passes each key of a server that matches a pattern to a function, some more than once.
pub(super) async fn scan(
    manager: &ConnectionManager,
    pattern: &str,
    mut each: impl FnMut(&[u8]),
) -> Result<()> {
    let mut cursor = "0".to_owned();
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg(pattern);
        scan.arg("COUNT").arg(SCAN_COUNT);
        let (next, keys) = scanned(manager.query(scan).await?, pattern)
            .map_err(|error| error.at_store(manager.target()))?;
        for key in &keys {
            if let Value::BulkString(key) = key {
                each(key);
            }
        }
        if next == "0" {
            return Ok(());
        }
        cursor = next;
    }
}

/// The next cursor and the keys in a reply to `SCAN`.
fn scanned(reply: Value, pattern: &str) -> Result<(String, Vec<Value>)> {
    let parts = match reply {
        Value::ServerError(error) => {
            return Err(errors::command_error("SCAN", pattern, &error));
        }
        Value::Array(parts) => <[Value; 2]>::try_from(parts).ok(),
        _ => None,
    };
    match parts {
        Some([next, Value::Array(keys)]) => text(&next).zip(Some(keys)),
        _ => None,
    }
    .ok_or_else(errors::invalid_reply)
}

/// Reads records, without the clients behind them. As many results as keys.
async fn entries(
    reader: &impl Reader,
    keys: &[Key],
    detail: Detail,
) -> Result<Vec<Result<Option<Entry>, Unreadable>>> {
    let mut queries = Vec::new();
    for key in keys {
        let (record, counter) = (record_key(key).to_string(), counter_key(key).to_string());
        queries.push(query("GET", record.clone()));
        queries.push(query("PTTL", record));
        queries.push(query("GET", counter));
        if detail >= Detail::Waiters {
            // After the record: a waiter that has become the holder meanwhile is not listed as both.
            let (queue, mut waiters) = query("LRANGE", queue_key(key).to_string());
            waiters.arg(0).arg(2 * Entry::WAITERS_MAX - 1);
            queries.push((queue, waiters));
        }
    }
    let each = queries.len() / keys.len().max(1);
    let replies = reader.read(queries).await?;
    let entries = keys.iter().zip(replies.chunks(each.max(1)));
    Ok(entries.map(|(key, replies)| entry(key, replies)).collect())
}

/// A command with a key as its only argument.
pub(super) fn query(command: &str, key: String) -> Query {
    let mut query = cmd(command);
    query.arg(&key);
    (key, query)
}

/// Adds the descriptions of the clients that hold the locks and of those that wait for them.
async fn add_clients(reader: &impl Reader, entries: &mut [Entry]) -> Result<()> {
    let mut clients = BTreeMap::<ClientId, String>::new();
    for entry in entries.iter() {
        let waiting = entry.waiters.iter().map(|waiter| waiter.lease);
        for LeaseId { client, .. } in waiting.chain([entry.lease]) {
            let key = || client_key(&entry.key.space, client).to_string();
            clients.entry(client).or_insert_with(key);
        }
    }
    let clients: Vec<_> = clients.into_iter().collect();
    let mut found = BTreeMap::<ClientId, ClientInfo>::new();
    for part in clients.chunks(READ_MAX) {
        let queries = part.iter().map(|(_, key)| query("HGETALL", key.clone()));
        let replies = reader.read(queries.collect()).await?;
        let read = part.iter().zip(&replies);
        found.extend(read.filter_map(|((client, _), reply)| Some((*client, client_info(reply)?))));
    }
    for entry in entries {
        entry.client = found.get(&entry.lease.client).cloned();
        for waiter in &mut entry.waiters {
            waiter.client = found.get(&waiter.lease.client).cloned();
        }
    }
    Ok(())
}

/// The description of a client.
pub(super) async fn client(
    reader: &impl Reader,
    space: &Keyspace,
    client: ClientId,
) -> Result<Option<ClientInfo>> {
    let key = client_key(space, client).to_string();
    let replies = reader.read(vec![query("HGETALL", key.clone())]).await?;
    match replies.first() {
        Some(Value::ServerError(error)) => {
            let error = errors::command_error("HGETALL", &key, error);
            Err(reader.name_error(error))
        }
        reply => Ok(reply.and_then(client_info)),
    }
}

pub(super) fn entry(key: &Key, replies: &[Value]) -> Result<Option<Entry>, Unreadable> {
    let strange = || Unreadable::Refused(errors::invalid_reply());
    let [value, ttl, counter, queue @ ..] = replies else {
        return Err(strange());
    };
    let (record_key, counter_key) = (record_key(key).to_string(), counter_key(key).to_string());
    for (command, key, reply) in [
        ("GET", &record_key, value),
        ("PTTL", &record_key, ttl),
        ("GET", &counter_key, counter),
    ] {
        if let Value::ServerError(error) = reply {
            let described = errors::command_error(command, key, error);
            return Err(match error.code() {
                "WRONGTYPE" => Unreadable::Foreign(described),
                _ => Unreadable::Refused(described),
            });
        }
    }
    let Value::Int(ttl) = ttl else {
        return Err(strange());
    };
    // It may have expired between the two reads.
    if *value == Value::Nil || *ttl == -2 {
        return Ok(None);
    }
    let Some((lease, count)) = record(value) else {
        return Err(Unreadable::Foreign(errors::foreign_value(&record_key)));
    };
    Ok(Some(Entry {
        key: key.clone(),
        lease,
        count,
        time_left: time_left(*ttl),
        token: parsed(counter).and_then(Token::new),
        client: None,
        waiters: queue.first().map(waiters).unwrap_or_default(),
    }))
}

/// The leases in a queue: every second element. Empty also for a queue that cannot be read, which hides no lock.
fn waiters(queue: &Value) -> Vec<WaiterInfo> {
    let Value::Array(elements) = queue else {
        return Vec::new();
    };
    let leases = elements.iter().skip(1).step_by(2).filter_map(parsed);
    let waiter = |lease| WaiterInfo {
        lease,
        client: None,
    };
    leases.map(waiter).collect()
}

pub(super) fn client_info(reply: &Value) -> Option<ClientInfo> {
    let fields = fields(reply).filter(|fields| !fields.is_empty())?;
    let mut info = ClientInfo::default();
    for (name, value) in fields {
        let value = text(value).unwrap_or_default();
        match text(name)?.as_str() {
            "host" => info.host = value,
            "pid" => info.pid = value.parse().unwrap_or_default(),
            "program" => info.program = value,
            "label" => info.label = value,
            "since" => info.set_since_millis(value.parse().unwrap_or_default()),
            _ => {}
        }
    }
    Some(info)
}

pub(super) fn parsed<T: FromStr>(value: &Value) -> Option<T> {
    text(value)?.parse().ok()
}
