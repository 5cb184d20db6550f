//! A server or cluster that executes commands which read.
//!
//! A reading may be tracked: then the server reports the next change of each key that was read, once. Each command is
//! tracked by itself, not by a transaction or a script: these need further rights, and fail in a slot of a cluster that
//! is being migrated. So a reading may mix two states of a name; if it is tracked, the change between them completes it.

use std::str::FromStr;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value, cmd};

use super::codec::text;
use super::connect::is_replica;
use super::connection_manager::ConnectionManager;
use super::errors;
use super::observers::ServerObservers;
use super::tracking::START;
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
pub(super) type KeyedCommand = (String, Cmd);

/// A server or cluster that executes commands.
pub(super) trait Reader: Sync {
    /// The replies, one per command and in the same order.
    fn fetch(&self, commands: Vec<KeyedCommand>)
    -> impl Future<Output = Result<Vec<Value>>> + Send;

    /// Adds the store to an error.
    fn name_error(&self, error: Error) -> Error;
}

/// A server or cluster that executes commands and tracks their keys.
pub(super) trait TrackingReader: Reader {
    /// Those who are notified of changes.
    fn observers(&self) -> &ServerObservers;

    /// The replies of a master, as [`Reader::fetch`], and whether the next change of each key is reported.
    fn fetch_tracked(
        &self,
        commands: Vec<KeyedCommand>,
    ) -> impl Future<Output = Result<(Vec<Value>, bool)>> + Send;
}

impl Reader for ConnectionManager {
    async fn fetch(&self, commands: Vec<KeyedCommand>) -> Result<Vec<Value>> {
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for (_, cmd) in commands {
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

impl TrackingReader for ConnectionManager {
    fn observers(&self) -> &ServerObservers {
        self.notifications().observers()
    }

    async fn fetch_tracked(&self, commands: Vec<KeyedCommand>) -> Result<(Vec<Value>, bool)> {
        let (session, deadline) = self.settled(Duration::ZERO).await?;
        let tracked = session.subscriptions.tracks();
        let mut pipeline = Pipeline::with_capacity(1 + 2 * commands.len());
        // A server before 6.0 does not know this command, and says nothing about its role.
        pipeline.cmd("HELLO");
        for (_, command) in commands {
            if tracked {
                pipeline.cmd(START[0]).arg(&START[1..]);
            }
            pipeline.add_command(command);
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

/// A command with a key as its only argument.
pub(super) fn command(name: &str, key: String) -> KeyedCommand {
    let mut command = cmd(name);
    command.arg(&key);
    (key, command)
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

/// Whether a key has a value of another type than the command is for.
pub(super) fn is_wrong_type(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "WRONGTYPE")
}

/// The reply to a command, unless it is an error.
pub(super) fn checked<'a>(
    command: &str,
    key: &impl ToString,
    reply: &'a Value,
) -> Result<&'a Value, Unreadable> {
    let Value::ServerError(error) = reply else {
        return Ok(reply);
    };
    let described = errors::command_error(command, &key.to_string(), error);
    Err(match is_wrong_type(reply) {
        true => Unreadable::Foreign(described),
        false => Unreadable::Refused(described),
    })
}

/// A value in the text of a reply. `None` if it has none.
pub(super) fn parsed<T: FromStr>(value: &Value) -> Option<T> {
    text(value)?.parse().ok()
}
