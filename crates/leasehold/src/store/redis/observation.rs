//! Observations: the state of a name, read over a connection that is notified of its next change.
//!
//! The server tracks each key that was read, and reports its next change once. Each command is tracked by itself, not
//! by a transaction or a script: these need further rights, and fail in a slot of a cluster that is being migrated. So
//! an observation may mix two states of a name; then the change between them completes it.

use std::time::Duration;

use leasehold_core::{AnnotationKind, LeaseId, StoreTime};
use redis::{Pipeline, Value, cmd};

use super::annotations;
use super::codec::{record, text, time_left};
use super::connect::is_replica;
use super::connection_manager::ConnectionManager;
use super::errors;
use super::inspect::{Query, Reader, is_wrong_type, parsed, query, wrong_type};
use super::keys::{annotation_key, queue_key, record_key, revoked_key};
use super::observers::ServerObservers;
use super::tracking::START;
use crate::Result;
use crate::store::api::{Changed, Key, Observation};

/// A server or cluster that executes queries and tracks their keys.
pub(super) trait TrackingReader: Reader {
    /// Those who are notified of changes.
    fn observers(&self) -> &ServerObservers;

    /// The replies of a master, as [`Reader::read`], and whether the next change of each key is reported.
    fn read_tracked(
        &self,
        queries: Vec<Query>,
    ) -> impl Future<Output = Result<(Vec<Value>, bool)>> + Send;
}

impl TrackingReader for ConnectionManager {
    fn observers(&self) -> &ServerObservers {
        self.notifications().observers()
    }

    async fn read_tracked(&self, queries: Vec<Query>) -> Result<(Vec<Value>, bool)> {
        let (session, deadline) = self.settled(Duration::ZERO).await?;
        let tracked = session.subscriptions.tracks();
        let mut pipeline = Pipeline::with_capacity(1 + 2 * queries.len());
        // A server before 6.0 does not know this command, and says nothing about its role.
        pipeline.cmd("HELLO");
        for (_, query) in queries {
            if tracked {
                pipeline.cmd(START[0]).arg(&START[1..]);
            }
            pipeline.add_command(query);
        }
        let (count, mut connection) = (pipeline.len(), session.connection.clone());
        let sent = connection.send_packed_commands(&pipeline, 0, count);
        let replies = self.await_reply(&session, deadline, sent).await?;
        let mut replies = replies.into_iter();
        if replies.next().is_some_and(|hello| is_replica(&hello)) {
            return Err(self.check_demoted(errors::replica()));
        }
        // The replies to START are skipped.
        let replies = match tracked {
            true => replies.skip(1).step_by(2).collect(),
            false => replies.collect(),
        };
        Ok((replies, tracked))
    }
}

/// Reads the state of a name, and has its next change notified if the server can.
pub(super) async fn observe(
    reader: &impl TrackingReader,
    key: &Key,
    kind: &AnnotationKind,
) -> Result<Observation> {
    // Before the name is read, so that no change is missed.
    let changed = reader.observers().add(key);
    let read = reader.read_tracked(queries(key, kind)).await;
    let observed = match read {
        Ok((replies, tracked)) => {
            let observed = observation(key, kind, &replies, tracked.then_some(changed));
            match observed {
                Err(error) if replies.first().is_some_and(is_wrong_type) => {
                    Err(wrong_type(reader, key, error).await)
                }
                observed => observed,
            }
        }
        Err(error) => Err(error),
    };
    observed.map_err(|error| reader.name_error(error.for_lock(&key.name)))
}

/// The record first: an annotation that was written under it, and the revocation that has removed it, are read with it.
fn queries(key: &Key, kind: &AnnotationKind) -> Vec<Query> {
    let record = record_key(key).to_string();
    vec![
        query("GET", record.clone()),
        query("PTTL", record.clone()),
        query("LLEN", queue_key(key).to_string()),
        query("GET", annotation_key(key, kind).to_string()),
        query("GET", revoked_key(key).to_string()),
        // Of the node that has the record.
        (record, cmd("TIME")),
    ]
}

fn observation(
    key: &Key,
    kind: &AnnotationKind,
    replies: &[Value],
    changed: Option<Changed>,
) -> Result<Observation> {
    let [record, ttl, waiters, annotation, revoked, time] = replies else {
        return Err(errors::invalid_reply());
    };
    let record_key = record_key(key).to_string();
    let annotation_key = annotation_key(key, kind).to_string();
    for (command, key, reply) in [
        ("GET", &*record_key, record),
        ("PTTL", &record_key, ttl),
        ("GET", &annotation_key, annotation),
        ("TIME", "", time),
    ] {
        if let Value::ServerError(error) = reply {
            return Err(errors::command_error(command, key, error));
        }
    }
    let annotation = match annotation {
        Value::Nil => None,
        value => {
            let foreign = || errors::foreign_value(&annotation_key);
            Some(annotations::parse(value).ok_or_else(foreign)?)
        }
    };
    Ok(Observation {
        now: parse_time(time).ok_or_else(errors::invalid_reply)?,
        holder: holder(&record_key, record, ttl)?,
        // A value that cannot be read only makes a revocation look like a release.
        revoked: text(revoked).and_then(|lease| lease.parse().ok()),
        // Zero also for a queue that cannot be read, as in a listing.
        waiters: match waiters {
            Value::Int(elements) => usize::try_from(*elements).unwrap_or_default() / 2,
            _ => 0,
        },
        annotation,
        changed,
    })
}

fn holder(key: &str, value: &Value, ttl: &Value) -> Result<Option<(LeaseId, Duration)>> {
    match (value, ttl) {
        // It may have expired between the two reads.
        (Value::Nil, _) | (_, Value::Int(-2)) => Ok(None),
        (value, Value::Int(ttl)) => {
            let (lease, _) = record(value).ok_or_else(|| errors::foreign_value(key))?;
            Ok(Some((lease, time_left(*ttl))))
        }
        _ => Err(errors::invalid_reply()),
    }
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
