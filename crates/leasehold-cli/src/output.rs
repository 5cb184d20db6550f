//! The output for people and for programs.

use std::fmt;
use std::io::{self, Write};
use std::ops::RangeBounds;
use std::time::{Duration, SystemTime};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use jiff::Timestamp;
use leasehold::LockInfo;
use rustix::termios::tcgetwinsize;
use serde::Serialize;

use crate::duration;
use crate::exit::Failure;

/// A held lock in JSON. Its field names, their order and units are stable.
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

/// The holder of a lock in JSON.
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

/// The holder of a lock in one line.
pub(crate) fn holder(info: &LockInfo) -> String {
    match &info.client {
        Some(it) => client(&it.host, it.pid, &it.program, &it.label),
        None => "a client without client info".to_owned(),
    }
}

/// A client in one line.
pub(crate) fn client(host: &str, pid: u32, program: &str, label: &str) -> String {
    let label = match label {
        "" => String::new(),
        label => format!(" ({label})"),
    };
    printable(&format!("{host} pid {pid} {program}{label}"))
}

/// A number of things, such as `1 lease` or `2 leases`.
pub(crate) fn count(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// A table without lines, in which these columns are aligned to the right.
pub(crate) fn table<const COLUMNS: usize>(
    header: [&str; COLUMNS],
    rows: impl Iterator<Item = [String; COLUMNS]>,
    right: impl RangeBounds<usize>,
) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header)
        .add_rows(rows);
    if let Ok(size) = tcgetwinsize(io::stdout())
        && size.ws_col > 0
    {
        table.set_width(size.ws_col);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
        if right.contains(&column.index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
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

/// A text from others with its invisible characters escaped as `\u{202e}`: control characters, changes of direction
/// and characters without width could make one lock look like another.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c == ' ' || c.is_ascii_graphic() {
            shown.push(c);
        } else {
            // Behind another character, so that a combining mark is not escaped.
            shown.extend(format!(" {c}").escape_debug().skip(1));
        }
    }
    shown
}

/// The same for a text of several lines.
fn printable_lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    lines.join("\n")
}

pub(crate) fn rfc3339(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(|_| String::new(), |time| format!("{time:.3}"))
}

pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_vec_pretty(value)
        .map_err(|error| Failure::own("the output cannot be written as JSON", error))?;
    text.push(b'\n');
    write(&text)
}

pub(crate) fn line(text: &str) -> Result<(), Failure> {
    write(format!("{text}\n").as_bytes())
}

pub(crate) fn to_stderr(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", printable_lines(&text.to_string()));
}

/// The standard error stream for lines of a log.
pub(crate) struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = printable_lines(&String::from_utf8_lossy(bytes));
        io::stderr().write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Writes to stdout. A closed pipe is not an error.
pub(crate) fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::own("stdout cannot be written", error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_escaped() {
        for range in [
            '\u{0}'..='\u{1f}',
            '\u{7f}'..='\u{9f}',
            '\u{ad}'..='\u{ad}',
            '\u{61c}'..='\u{61c}',
            '\u{200b}'..='\u{200f}',
            '\u{2028}'..='\u{202e}',
            '\u{2060}'..='\u{2069}',
            '\u{feff}'..='\u{feff}',
            '\u{fff9}'..='\u{fff9}',
            '\u{1d173}'..='\u{1d173}',
            '\u{e0000}'..='\u{e007f}',
        ] {
            for c in range {
                let shown = printable(&format!("a{c}b"));
                assert!(shown.starts_with("a\\") && shown.ends_with('b'), "{shown}");
                assert!(shown.bytes().all(|byte| byte.is_ascii_graphic()), "{shown}");
            }
        }
        assert_eq!(printable("pay\u{202e}llor"), "pay\\u{202e}llor");
        assert_eq!(printable_lines("a\u{200b}\nb"), "a\\u{200b}\nb");
    }

    #[test]
    fn what_can_be_seen_stays() {
        for text in [
            "",
            "jobs/nightly \"x\" 'y' \\z",
            "größe",
            "e\u{301}te\u{301}",
            "नमस्ते",
            "日本語",
            "שלום",
            "🔒",
        ] {
            assert_eq!(printable(text), text);
        }
    }
}
