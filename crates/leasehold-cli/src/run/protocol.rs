//! The messages between a runner and its guardian: lines of JSON.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The hidden subcommand that starts a guardian.
pub(super) const COMMAND: &str = "__guard";

/// Its first argument, as `pidof` and `ps` show it.
pub(super) const FIRST_ARGUMENT: &str = "leasehold-guardian";

/// A message from the runner.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToGuardian {
    /// The first message.
    Start(Order),
    /// Has the command live longer.
    Allow(Allowance),
    /// Dismisses the guardian.
    Dismiss,
}

/// The deadline of the command if the runner falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Allowance {
    pub(super) until_ns: u64,
    /// How long that is before the end of the lease.
    pub(super) reserve: Duration,
}

/// The order to start a command. It is not in the guardian's arguments, where `pkill -f` would match it instead of the
/// command.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    /// The ids of the leases.
    pub(super) leases: Vec<String>,
    /// The socket of the watchdog on this machine.
    pub(super) socket: Option<OsString>,
    /// The process group of the command. 0: one of its own.
    pub(super) group: i32,
    /// `None`: the command may go on without the lock.
    pub(super) allowance: Option<Allowance>,
    pub(super) command: Vec<OsString>,
}

/// A message from the guardian.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum GuardianReport {
    /// The command runs as this process.
    Running(i32),
    /// It could not be started, by the number of the error.
    Failed(i32),
    /// No process of the command is left. Comes before `Ended` if the command was the last.
    Empty,
    /// The command itself has ended, with this wait status.
    Ended(i32),
}

/// A message as a line.
pub(super) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// The message in a line. `None`: it was cut off.
pub(super) fn decode<T: DeserializeOwned>(line: &str) -> Option<T> {
    serde_json::from_str(line).ok()
}
