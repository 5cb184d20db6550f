//! The output for people: descriptions, tables, and writes to stdout and stderr.

use std::fmt;
use std::io;
use std::ops::RangeBounds;
use std::thread;
use std::time::SystemTime;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use leasehold::{ClientInfo, LockInfo};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::tcgetwinsize;
use tokio::sync::oneshot;

use crate::duration;
use crate::exit::Failure;
use crate::stderr;

/// The width to which a column is cut at most.
const CUT_WIDTH_MIN: u16 = 20;

/// The holder of a lock in words, such as `ci-7, pid 812, deploy.sh ("#42")`, perhaps with ` and 2 others`.
pub(crate) fn holder(info: &LockInfo) -> String {
    let first = client(info.client.as_ref());
    match info.others.len() {
        0 => first,
        others => format!("{first} and {}", count(others, "other")),
    }
}

/// The same as it is listed: a lock in its minimum hold has no holder.
pub(crate) fn listed_holder(info: &LockInfo) -> String {
    match info.min_hold {
        true => format!("minimum hold of {}", holder(info)),
        false => holder(info),
    }
}

/// A client in words.
pub(crate) fn client(client: Option<&ClientInfo>) -> String {
    match client {
        Some(it) => process(&it.host, it.pid, &it.program, &it.label),
        None => "a client without client info".to_owned(),
    }
}

/// The process of a client in words.
pub(crate) fn process(host: &str, pid: u32, program: &str, label: &str) -> String {
    printable(&format!(
        "{host}, pid {pid}, {program}{}",
        in_parentheses(label)
    ))
}

/// A label behind the program that has it. An empty one is left out.
pub(crate) fn in_parentheses(label: &str) -> String {
    match label {
        "" => String::new(),
        label => format!(" (\"{label}\")"),
    }
}

/// A value behind some words, or nothing without a value.
pub(crate) fn optional(words: &str, value: Option<impl fmt::Display>) -> String {
    value.map_or_else(String::new, |value| format!("{words}{value}"))
}

/// A number of things, such as `1 lease` or `2 leases`.
pub(crate) fn count(number: usize, thing: &str) -> String {
    let plural = match number {
        1 => "",
        _ if thing.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {thing}{plural}")
}

/// Lines of a name and a value.
pub(crate) fn rows(rows: &[(&str, String)]) -> String {
    let lines: Vec<_> = rows
        .iter()
        .map(|(name, value)| format!("{name:<10} {value}"))
        .collect();
    lines.join("\n")
}

/// A table without lines, in which these columns are aligned to the right.
pub(crate) fn table<const COLUMNS: usize>(
    header: [&str; COLUMNS],
    rows: impl Iterator<Item = [String; COLUMNS]>,
    right: impl RangeBounds<usize>,
) -> Table {
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
    table
}

/// Gives each row one line. At a terminal this column is cut to the width that is left, but not below a minimum.
pub(crate) fn cut_to_lines(table: &mut Table, cut: usize) {
    for row in table.row_iter_mut() {
        row.max_height(1);
    }
    for column in table.column_iter_mut() {
        column.set_constraint(match column.index == cut {
            true => ColumnConstraint::LowerBoundary(Width::Fixed(CUT_WIDTH_MIN)),
            false => ColumnConstraint::ContentWidth,
        });
        // No cell has one, so that none is cut between two words.
        column.set_delimiter('\n');
    }
}

/// How long ago a lock was acquired.
pub(crate) fn age(info: &LockInfo) -> String {
    let age = |since: SystemTime| duration::format(since.elapsed().unwrap_or_default());
    or_dash(info.since.map(age))
}

/// A value, or a dash without a value.
pub(crate) fn or_dash(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A text from others with its invisible characters escaped as `\u{202e}`: control characters, changes of direction
/// and characters without width could make one lock look like another.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_visible(c) {
            shown.push(c);
        } else {
            shown.extend(c.escape_debug());
        }
    }
    shown
}

/// Whether a character can be seen, and has no other effect on a terminal.
pub(crate) fn is_visible(c: char) -> bool {
    // Behind another character, so that a combining mark is visible.
    c == ' ' || c.is_ascii_graphic() || format!(" {c}").escape_debug().skip(1).eq([c])
}

/// The same for a text of several lines.
pub(crate) fn printable_lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    lines.join("\n")
}

/// A time in RFC 3339. `None`: it is too far away to be written.
pub(crate) fn rfc3339(time: SystemTime) -> Option<String> {
    let time = Timestamp::try_from(time).ok()?;
    Some(format!("{time:.3}"))
}

/// A time by the clock on the wall, with its date if that is not today.
pub(crate) fn local_time(time: SystemTime) -> Option<String> {
    let time = Timestamp::try_from(time).ok()?;
    let time = time.to_zoned(TimeZone::system());
    let format = match time.date() == Zoned::now().date() {
        true => "%H:%M:%S %Z",
        false => "%a %Y-%m-%d %H:%M:%S %Z",
    };
    Some(time.strftime(format).to_string())
}

/// A date by the clock on the wall.
pub(crate) fn local_date(time: SystemTime) -> Option<String> {
    let time = Timestamp::try_from(time).ok()?;
    Some(time.to_zoned(TimeZone::system()).date().to_string())
}

pub(crate) fn print_line(text: &str) -> Result<(), Failure> {
    print_bytes(format!("{text}\n").as_bytes())
}

pub(crate) fn to_stderr(text: fmt::Arguments<'_>) {
    let lines = printable_lines(&text.to_string());
    // A closed stderr must not end a run.
    let _ = stderr::write(format!("{lines}\n"));
}

/// Writes to stdout. A closed pipe is not an error.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    write_to_reader(bytes).map(|_| ())
}

/// Writes to stdout. Returns whether somebody may read it: `false` for a closed pipe.
pub(crate) fn write_to_reader(bytes: &[u8]) -> Result<bool, Failure> {
    match stderr::write_all(&mut io::stdout().lock(), bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::own("stdout cannot be written", error)),
    }
}

/// Waits until nobody can still read stdout: the reader of a pipe has ended.
pub(crate) async fn no_reader() {
    let (sender, ended) = oneshot::channel();
    let wait = move || {
        let stdout = io::stdout();
        let mut stream = [PollFd::new(&stdout, PollFlags::empty())];
        while poll(&mut stream, None) == Err(Errno::INTR) {}
        let _ = sender.send(());
    };
    match thread::Builder::new().name("stdout".to_owned()).spawn(wait) {
        Ok(_) => drop(ended.await),
        // Then the next line shows it.
        Err(_) => std::future::pending().await,
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
