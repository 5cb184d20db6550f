//! What people and programs read.

use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use leasehold::LockInfo;
use serde::Serialize;

use crate::duration;
use crate::exit::Failure;

/// A held lock for programs. Field names and units stay as they are.
#[derive(Debug, Serialize)]
pub(crate) struct Lock {
    name: String,
    lease: String,
    /// A number below 2^53, exact in every JSON reader.
    token: Option<u64>,
    count: u32,
    time_left_ms: u64,
    since: Option<String>,
    holder: Option<Holder>,
}

/// Who holds it.
#[derive(Debug, Serialize)]
struct Holder {
    host: String,
    pid: u32,
    program: String,
    label: String,
    connected: String,
}

impl From<&LockInfo> for Lock {
    fn from(info: &LockInfo) -> Self {
        Self {
            name: info.name.clone(),
            lease: info.lease.to_string(),
            token: info.token.map(|token| token.get()),
            count: info.count,
            time_left_ms: u64::try_from(info.time_left.as_millis()).unwrap_or(u64::MAX),
            since: info.since.map(rfc3339),
            holder: info.client.as_ref().map(|client| Holder {
                host: client.host.clone(),
                pid: client.pid,
                program: client.program.clone(),
                label: client.label.clone(),
                connected: rfc3339(client.since),
            }),
        }
    }
}

/// Who holds a lock, in a few words.
pub(crate) fn holder(info: &LockInfo) -> String {
    match &info.client {
        Some(client) => {
            let mut text = format!("{} pid {} {}", client.host, client.pid, client.program);
            if !client.label.is_empty() {
                text = format!("{text} ({})", client.label);
            }
            printable(&text)
        }
        None => "a client that did not say who it is".to_owned(),
    }
}

/// How long ago a lock was taken.
pub(crate) fn age(info: &LockInfo) -> String {
    let ago = |since: SystemTime| since.elapsed().unwrap_or(Duration::ZERO);
    info.since
        .map_or_else(|| "-".to_owned(), |since| duration::show(ago(since)))
}

pub(crate) fn token(info: &LockInfo) -> String {
    info.token
        .map_or_else(|| "-".to_owned(), |token| token.to_string())
}

/// What others wrote must not steer a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

pub(crate) fn rfc3339(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(|_| String::new(), |time| format!("{time:.3}"))
}

pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_vec_pretty(value)
        .map_err(|error| Failure::own("the answer cannot be written as JSON", error))?;
    text.push(b'\n');
    write(&text)
}

pub(crate) fn line(text: &str) -> Result<(), Failure> {
    write(format!("{text}\n").as_bytes())
}

pub(crate) fn to_stderr(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes to stdout. A reader who has left does not make the command fail.
pub(crate) fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::own("stdout cannot be written", error))
        }
        _ => Ok(()),
    }
}
