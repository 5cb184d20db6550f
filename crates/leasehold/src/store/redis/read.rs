//! Reads the state of names and clients: no rule depends on it.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::{Annotation, ClientId, LeaseId, Name, Slot, StoreTime, Token};
use redis::{Value, cmd};

use super::codec::{record, text, time_left};
use super::connection_manager::ConnectionManager;
use super::errors;
use super::keys::{
    annotation_key, client_key, completion_pattern, counter_key, parse_completion, parse_record,
    queue_key, record_key, record_pattern, revoked_key,
};
use super::reader::{
    KeyedCommand, READ_MAX, Reader, TrackingReader, Unreadable, checked, command, parsed, scan,
};
use super::{annotations, latch_status, latches};
use crate::store::api::{
    ClientInfo, HolderInfo, Key, Keyspace, Page, Parts, Query, View, WaiterInfo,
};
use crate::{Error, Result};

/// The reply to a query, other than one about replicas. `servers` are those on which names may be.
pub(super) async fn page(
    reader: &impl TrackingReader,
    servers: Vec<&ConnectionManager>,
    query: Query,
) -> Result<Page> {
    match query {
        Query::Name { key, parts, watch } => {
            let read = name(reader, &key, &parts, watch).await;
            read.map_err(|error| reader.name_error(error.for_lock(&key.name)))
        }
        Query::Names(space) => list(reader, servers, &space).await.map(Page::listed),
        Query::Completions(space) => {
            let completions = completions(reader, servers, &space).await;
            completions.map(Page::listed)
        }
        Query::Client(space, client) => Ok(Page {
            client: client_of(reader, &space, client).await?,
            ..Page::default()
        }),
        Query::Durability(_) => Ok(Page::default()),
    }
}

/// The completions of a keyspace on any of these servers, by name and kind.
async fn completions(
    reader: &impl Reader,
    servers: Vec<&ConnectionManager>,
    space: &Keyspace,
) -> Result<Vec<View>> {
    let pattern = completion_pattern(space);
    let mut names = BTreeSet::<(Name, Slot)>::new();
    for server in servers {
        let add = |key: &[u8]| names.extend(parse_completion(space, key));
        scan(server, &pattern, add).await?;
    }
    let named = names
        .into_iter()
        .map(|(name, kind)| (space.key(name), kind));
    let named: Vec<_> = named.collect();
    let mut found = Vec::new();
    for part in named.chunks(READ_MAX) {
        let commands = part.iter();
        let commands =
            commands.map(|(key, kind)| command("GET", annotation_key(key, kind).to_string()));
        for ((key, kind), reply) in part.iter().zip(reader.fetch(commands.collect()).await?) {
            match &reply {
                Value::ServerError(error) if error.code() != "WRONGTYPE" => {
                    let name = annotation_key(key, kind).to_string();
                    let error = errors::command_error("GET", &name, error);
                    return Err(reader.name_error(error));
                }
                // It has expired meanwhile.
                Value::Nil => {}
                reply => {
                    let mut view = View::of(key.clone());
                    match annotations::parse(reply) {
                        Some(annotation) => view.annotations.push((kind.clone(), annotation)),
                        None => view.unreadable = Some(kind.clone()),
                    }
                    found.push(view);
                }
            }
        }
    }
    Ok(found)
}

/// Reads parts of the state of a name, and has its next change notified if the server can.
async fn name(reader: &impl TrackingReader, key: &Key, parts: &Parts, watch: bool) -> Result<Page> {
    let commands = commands(key, parts);
    let (replies, changed) = match watch {
        true => {
            // Before the name is read, so that no change is missed.
            let changed = reader.observers().add(key);
            let (replies, tracked) = reader.fetch_tracked(commands).await?;
            (replies, tracked.then_some(changed))
        }
        false => (reader.fetch(commands).await?, None),
    };
    let mut view = match view(key, parts, &replies) {
        Ok(view) => view,
        Err(Unreadable::Foreign(_)) if *parts == Parts::Latch => {
            return Err(latches::wrong_type(reader, key).await);
        }
        Err(Unreadable::Foreign(error)) => return Err(wrong_type(reader, key, error).await),
        Err(Unreadable::Refused(error)) => return Err(error),
    };
    if let Parts::Holder | Parts::Waiters = parts {
        add_clients(reader, std::slice::from_mut(&mut view)).await?;
    }
    Ok(Page::of(view, changed))
}

/// The error of a lock whose key has another type, as a reading of it found: that of a latch if it is one.
async fn wrong_type(reader: &impl Reader, key: &Key, error: Error) -> Error {
    match reader
        .fetch(vec![latch_status::command(key)])
        .await
        .as_deref()
    {
        Ok([value]) if latch_status::parse(value).is_some() => errors::used_as_latch(),
        Ok(_) => error,
        Err(other) => other.clone(),
    }
}

/// The locks of a keyspace that are held on any of these servers, by name.
async fn list(
    reader: &impl Reader,
    servers: Vec<&ConnectionManager>,
    space: &Keyspace,
) -> Result<Vec<View>> {
    let mut all = BTreeSet::new();
    for server in servers {
        all.append(&mut names(server, space).await?);
    }
    let keys: Vec<_> = all.into_iter().map(|name| space.key(name)).collect();
    let mut listed = Vec::new();
    for part in keys.chunks(READ_MAX) {
        for view in views(reader, part).await? {
            match view {
                Ok(view) => listed.extend(Some(view).filter(|view| view.holder.is_some())),
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

/// The states of locks with their waiters, without the clients behind them. As many results as keys.
async fn views(reader: &impl Reader, keys: &[Key]) -> Result<Vec<Result<View, Unreadable>>> {
    let commands: Vec<_> = keys
        .iter()
        .flat_map(|key| commands(key, &Parts::Waiters))
        .collect();
    let each = commands.len() / keys.len().max(1);
    let replies = reader.fetch(commands).await?;
    let views = keys.iter().zip(replies.chunks(each.max(1)));
    let views = views.map(|(key, replies)| view(key, &Parts::Waiters, replies));
    Ok(views.collect())
}

/// The commands that read parts of the state of a name.
///
/// The record comes first: an annotation that was written under it, and the revocation that has removed it, are read
/// with it. And a waiter that has become the holder meanwhile is not listed as both.
fn commands(key: &Key, parts: &Parts) -> Vec<KeyedCommand> {
    if *parts == Parts::Latch {
        return vec![latch_status::command(key)];
    }
    let record = record_key(key).to_string();
    let annotation = |kind| command("GET", annotation_key(key, kind).to_string());
    let mut commands = vec![
        command("GET", record.clone()),
        command("PTTL", record.clone()),
    ];
    match parts {
        Parts::Lease | Parts::Holder | Parts::Waiters => {
            commands.push(command("GET", counter_key(key).to_string()));
        }
        Parts::Annotation(kind) => commands.push(annotation(kind)),
        Parts::State(kind) => commands.extend([
            annotation(kind),
            command("LLEN", queue_key(key).to_string()),
            command("GET", revoked_key(key).to_string()),
            // Of the node that has the record.
            (record, cmd("TIME")),
        ]),
        Parts::Latch => {}
    }
    if *parts == Parts::Waiters {
        let (queue, mut waiters) = command("LRANGE", queue_key(key).to_string());
        waiters.arg(0).arg(2 * View::WAITERS_MAX - 1);
        commands.push((queue, waiters));
    }
    commands
}

/// Adds the descriptions of the clients that hold the locks and of those that wait for them.
async fn add_clients(reader: &impl Reader, views: &mut [View]) -> Result<()> {
    let mut clients = BTreeMap::<ClientId, String>::new();
    for view in views.iter() {
        let waiting = view.waiters.iter().map(|waiter| waiter.lease);
        let holding = view.holder.iter().map(|holder| holder.lease);
        for LeaseId { client, .. } in waiting.chain(holding) {
            let key = || client_key(&view.key.space, client).to_string();
            clients.entry(client).or_insert_with(key);
        }
    }
    let clients: Vec<_> = clients.into_iter().collect();
    let mut found = BTreeMap::<ClientId, ClientInfo>::new();
    for part in clients.chunks(READ_MAX) {
        let commands = part.iter().map(|(_, key)| command("GET", key.clone()));
        let replies = reader.fetch(commands.collect()).await?;
        let read = part.iter().zip(&replies);
        found.extend(read.filter_map(|((client, _), reply)| Some((*client, client_info(reply)?))));
    }
    for view in views {
        if let Some(holder) = &mut view.holder {
            holder.client = found.get(&holder.lease.client).cloned();
        }
        for waiter in &mut view.waiters {
            waiter.client = found.get(&waiter.lease.client).cloned();
        }
    }
    Ok(())
}

/// The description of a client.
async fn client_of(
    reader: &impl Reader,
    space: &Keyspace,
    client: ClientId,
) -> Result<Option<ClientInfo>> {
    let key = client_key(space, client).to_string();
    let replies = reader.fetch(vec![command("GET", key.clone())]).await?;
    match replies.first() {
        Some(Value::ServerError(error)) => {
            let error = errors::command_error("GET", &key, error);
            Err(reader.name_error(error))
        }
        reply => Ok(reply.and_then(client_info)),
    }
}

/// The parts of the state of a name in the replies to its [`commands`].
pub(super) fn view(key: &Key, parts: &Parts, replies: &[Value]) -> Result<View, Unreadable> {
    let view = View::of(key.clone());
    match (parts, replies) {
        (Parts::Latch, [status]) => Ok(View {
            latch: latches::status(key, status)?,
            ..view
        }),
        (Parts::Lease | Parts::Holder | Parts::Waiters, [record, ttl, counter, queue @ ..]) => {
            let waiters = queue.first().map(waiters).unwrap_or_default();
            Ok(View {
                holder: holder(key, record, ttl)?,
                token: parsed(checked("GET", &counter_key(key), counter)?).and_then(Token::new),
                waiters,
                ..view
            })
        }
        (Parts::Annotation(kind), [record, ttl, annotation]) => Ok(View {
            holder: holder(key, record, ttl)?,
            annotations: stored(key, kind, annotation)?,
            ..view
        }),
        (Parts::State(kind), [record, ttl, annotation, queue, revoked, time]) => Ok(View {
            now: Some(parse_time(checked("TIME", &"", time)?).ok_or_else(strange)?),
            holder: holder(key, record, ttl)?,
            // Zero also for a queue that cannot be read, as in a listing.
            queue_length: match queue {
                Value::Int(elements) => usize::try_from(*elements).unwrap_or_default() / 2,
                _ => 0,
            },
            // A value that cannot be read only makes a revocation look like a release.
            revoked: parsed(revoked),
            annotations: stored(key, kind, annotation)?,
            ..view
        }),
        _ => Err(strange()),
    }
}

fn strange() -> Unreadable {
    Unreadable::Refused(errors::invalid_reply())
}

fn holder(key: &Key, value: &Value, ttl: &Value) -> Result<Option<HolderInfo>, Unreadable> {
    let key = record_key(key);
    let value = checked("GET", &key, value)?;
    let Value::Int(ttl) = checked("PTTL", &key, ttl)? else {
        return Err(strange());
    };
    // It may have expired between the two reads.
    if *value == Value::Nil || *ttl == -2 {
        return Ok(None);
    }
    let foreign = || Unreadable::Foreign(errors::foreign_value(&key.to_string()));
    let (lease, count) = record(value).ok_or_else(foreign)?;
    Ok(Some(HolderInfo {
        lease,
        is_reserved: count == 0,
        count: count.max(1),
        time_left: time_left(*ttl),
        client: None,
    }))
}

/// The annotation of a name, if it has one.
fn stored(key: &Key, kind: &Slot, value: &Value) -> Result<Vec<(Slot, Annotation)>, Unreadable> {
    let key = annotation_key(key, kind).to_string();
    let value = match checked("GET", &key, value) {
        Err(Unreadable::Foreign(error)) => return Err(Unreadable::Refused(error)),
        value => value?,
    };
    if *value == Value::Nil {
        return Ok(Vec::new());
    }
    let foreign = || Unreadable::Refused(errors::foreign_value(&key));
    let annotation = annotations::parse(value).ok_or_else(foreign)?;
    Ok(vec![(kind.clone(), annotation)])
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
    ClientInfo::from_text(&text(reply)?)
}

/// The reply to `TIME`: seconds and microseconds.
fn parse_time(reply: &Value) -> Option<StoreTime> {
    let Value::Array(parts) = reply else {
        return None;
    };
    let [seconds, micros] = parts.as_slice() else {
        return None;
    };
    let (seconds, micros): (u64, u64) = (parsed(seconds)?, parsed(micros)?);
    let micros = seconds.checked_mul(1_000_000)?.checked_add(micros)?;
    Some(StoreTime::from_micros(micros))
}
