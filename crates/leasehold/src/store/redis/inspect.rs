//! Reads records, for people: no rule depends on it.

use std::collections::{BTreeSet, HashMap};
use std::str::FromStr;

use leasehold_core::{ClientId, LeaseId, Name, Token};
use redis::{Cmd, Pipeline, Value, cmd};

use super::codec::{text, time_left};
use super::connection_manager::{ConnectionManager, ExchangeError};
use super::errors;
use super::keys::{ClientKey, CounterKey, RecordKey, RecordPattern, parse_record};
use crate::store::api::{ClientInfo, Entry, Key, Keyspace};
use crate::{Error, ErrorKind, Result};

/// The number of keys that one step of a listing scans, which takes about half a millisecond.
const SCAN_COUNT: u32 = 1_000;

/// The number of records read in one round trip.
const READ_MAX: usize = 256;

const READS_EACH: usize = 3;

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
    /// The answers, one per query and in the same order.
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
        let answers = self
            .exchange(|mut connection| async move {
                connection.send_packed_commands(&pipeline, 0, count).await
            })
            .await
            .map_err(plain)?;
        if answers.len() == count {
            Ok(answers)
        } else {
            Err(self.name_error(errors::strange_answer()))
        }
    }

    fn name_error(&self, error: Error) -> Error {
        error.at_store(self.target())
    }
}

/// The lease that holds a lock.
pub(super) async fn inspect(reader: &impl Reader, key: &Key) -> Result<Option<Entry>> {
    let mut found = entries(reader, std::slice::from_ref(key)).await?;
    match found.pop() {
        Some(Ok(Some(mut entry))) => {
            add_client(reader, std::slice::from_mut(&mut entry)).await?;
            Ok(Some(entry))
        }
        Some(Ok(None)) | None => Ok(None),
        Some(Err(Unreadable::Foreign(error) | Unreadable::Refused(error))) => {
            Err(reader.name_error(error.for_lock(&key.name)))
        }
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
        for found in entries(reader, part).await? {
            match found {
                Ok(entry) => listed.extend(entry),
                Err(Unreadable::Foreign(_)) => {}
                Err(Unreadable::Refused(error)) => return Err(reader.name_error(error)),
            }
        }
    }
    for part in listed.chunks_mut(READ_MAX) {
        add_client(reader, part).await?;
    }
    Ok(listed)
}

/// The names that have a record, in order.
async fn names(manager: &ConnectionManager, space: &Keyspace) -> Result<BTreeSet<Name>> {
    let pattern = RecordPattern(space).to_string();
    let mut names = BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg(&pattern);
        scan.arg("COUNT").arg(SCAN_COUNT);
        let answer = manager
            .exchange(|mut connection| async move { connection.send_packed_command(&scan).await })
            .await
            .map_err(plain)?;
        let (next, keys) = match answer {
            Value::Array(answer) => match <[Value; 2]>::try_from(answer) {
                Ok([next, Value::Array(keys)]) => (text(&next), keys),
                _ => return Err(errors::strange_answer().at_store(manager.target())),
            },
            Value::ServerError(error) => {
                let error = errors::command_error("SCAN", &pattern, &error);
                return Err(error.at_store(manager.target()));
            }
            _ => return Err(errors::strange_answer().at_store(manager.target())),
        };
        names.extend(keys.iter().filter_map(|key| match key {
            Value::BulkString(key) => parse_record(space, key),
            _ => None,
        }));
        match next {
            Some(next) if next != "0" => cursor = next,
            Some(_) => return Ok(names),
            None => return Err(errors::strange_answer().at_store(manager.target())),
        }
    }
}

/// Reads records, without the clients behind them. As many results as keys.
async fn entries(
    reader: &impl Reader,
    keys: &[Key],
) -> Result<Vec<Result<Option<Entry>, Unreadable>>> {
    let mut queries = Vec::with_capacity(keys.len() * READS_EACH);
    for key in keys {
        let (record, counter) = (RecordKey(key).to_string(), CounterKey(key).to_string());
        queries.push(query("HGETALL", record.clone()));
        queries.push(query("PTTL", record));
        queries.push(query("GET", counter));
    }
    let answers = reader.read(queries).await?;
    let entries = keys.iter().zip(answers.chunks(READS_EACH));
    Ok(entries.map(|(key, answers)| entry(key, answers)).collect())
}

fn query(command: &str, key: String) -> Query {
    let mut query = cmd(command);
    query.arg(&key);
    (key, query)
}

/// Adds the descriptions of the clients to the entries.
async fn add_client(reader: &impl Reader, entries: &mut [Entry]) -> Result<()> {
    let clients: HashMap<ClientId, String> = entries
        .iter()
        .map(|entry| {
            let client = entry.lease.client;
            (client, ClientKey(&entry.key.space, client).to_string())
        })
        .collect();
    if clients.is_empty() {
        return Ok(());
    }
    let mut queries = Vec::with_capacity(clients.len());
    let mut asked = Vec::with_capacity(clients.len());
    for (client, key) in clients {
        queries.push(query("HGETALL", key));
        asked.push(client);
    }
    let answers = reader.read(queries).await?;
    let clients = asked.into_iter().zip(answers.iter().map(client_info));
    let clients: HashMap<ClientId, Option<ClientInfo>> = clients.collect();
    for entry in entries {
        entry.client = clients.get(&entry.lease.client).cloned().flatten();
    }
    Ok(())
}

/// For queries it makes no difference whether they were sent.
pub(super) fn plain(trouble: ExchangeError) -> Error {
    match trouble {
        ExchangeError::NotSent(error) | ExchangeError::Unanswered(error) => error,
    }
}

pub(super) fn entry(key: &Key, answers: &[Value]) -> Result<Option<Entry>, Unreadable> {
    let strange = || Unreadable::Refused(errors::strange_answer());
    let [record, ttl, counter] = answers else {
        return Err(strange());
    };
    for (name, answer) in [("HGETALL", record), ("PTTL", ttl), ("GET", counter)] {
        if let Value::ServerError(error) = answer {
            let key_name = match name {
                "GET" => CounterKey(key).to_string(),
                _ => RecordKey(key).to_string(),
            };
            let described = errors::command_error(name, &key_name, error);
            return Err(match error.code() {
                "WRONGTYPE" => Unreadable::Foreign(described),
                _ => Unreadable::Refused(described),
            });
        }
    }
    let (Some(fields), Value::Int(ttl)) = (fields(record), ttl) else {
        return Err(strange());
    };
    // It may have expired between the two reads.
    if fields.is_empty() || *ttl == -2 {
        return Ok(None);
    }
    let held = match fields.as_slice() {
        [(lease, count)] => parsed::<LeaseId>(lease).zip(parsed::<u32>(count)),
        _ => None,
    };
    let Some((lease, count)) = held else {
        let record = RecordKey(key).to_string();
        let message = format!("the key {record:?} holds a hash that leasehold did not write");
        return Err(Unreadable::Foreign(Error::new(ErrorKind::Store, message)));
    };
    Ok(Some(Entry {
        key: key.clone(),
        lease,
        count,
        time_left: time_left(*ttl),
        token: parsed(counter).and_then(Token::new),
        client: None,
    }))
}

pub(super) fn client_info(answer: &Value) -> Option<ClientInfo> {
    let fields = fields(answer).filter(|fields| !fields.is_empty())?;
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

/// The fields of a hash, in either protocol. `None` if it is not a hash.
pub(super) fn fields(answer: &Value) -> Option<Vec<(&Value, &Value)>> {
    match answer {
        Value::Map(fields) => Some(fields.iter().map(|(name, value)| (name, value)).collect()),
        Value::Array(flat) => Some(
            flat.chunks_exact(2)
                .map(|pair| (&pair[0], &pair[1]))
                .collect(),
        ),
        _ => None,
    }
}

pub(super) fn parsed<T: FromStr>(value: &Value) -> Option<T> {
    text(value)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use leasehold_core::ScopeName;
    use proptest::prelude::*;

    use super::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::Int),
            any::<Vec<u8>>().prop_map(Value::BulkString),
            prop::sample::select(vec!["00000000000000000000000000000000:1", "1", "pid"])
                .prop_map(|text| Value::BulkString(text.into())),
            Just(Value::Nil),
        ];
        leaf.prop_recursive(2, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
                prop::collection::vec((inner.clone(), inner), 0..3).prop_map(Value::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_answer_breaks_it(answers in prop::collection::vec(any_value(), 0..5)) {
            let scope = |text| ScopeName::parse(text).unwrap();
            let key = Keyspace::new(scope("a"), scope("t")).key(Name::parse("n").unwrap());
            if let Ok(Some(entry)) = entry(&key, &answers) {
                prop_assert!(entry.time_left <= time_left(-1));
            }
            for answer in &answers {
                client_info(answer);
            }
        }
    }
}
