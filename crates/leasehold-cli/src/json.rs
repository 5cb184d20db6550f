//! The output for programs: one JSON object for each command, and lines of them by `hold` and `watch`. `docs/json.md`
//! describes it, and `docs/schema/leasehold.json` is its schema.
//!
//! Each command has the struct of its own object, and the library those of listings. The order of the fields is that of
//! the keys. What is not known is null, and its key is there.

use std::ffi::OsString;

use leasehold::ClientInfo;
use serde::Serialize;

use crate::exit::Failure;
use crate::output;

/// A leader.
#[derive(Debug, Serialize)]
pub(crate) struct Leader<'a> {
    value: &'a str,
    term: u64,
    lease: String,
    holder: Option<&'a ClientInfo>,
}

impl<'a> Leader<'a> {
    pub(crate) fn new(leader: &'a leasehold::Leader, holder: Option<&'a ClientInfo>) -> Self {
        Self {
            value: &leader.value,
            term: leader.term.get(),
            lease: leader.lease.to_string(),
            holder,
        }
    }
}

/// A failure of any command. It is on stderr, in one line.
#[derive(Debug, Serialize)]
struct Error<'a> {
    error: ErrorBody<'a>,
}

#[derive(Debug, Serialize)]
struct ErrorBody<'a> {
    kind: &'static str,
    message: String,
    lock: Option<&'a str>,
    store: Option<&'a str>,
    transient: bool,
    exit_code: u8,
}

/// Whether arguments that the parser refuses request JSON. Behind `run`, `once` and `elect` are those of another command.
pub(crate) fn is_requested(args: impl Iterator<Item = OsString>) -> bool {
    args.take_while(|arg| arg != "run" && arg != "once" && arg != "elect" && arg != "--")
        .any(|arg| arg == "--json")
}

/// Prints an object over several lines, for people as well.
pub(crate) fn print(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(unwritable)?;
    output::print_line(&escaped(&text))
}

/// Prints a failure to stderr, in one line. `lock` is the name in the arguments.
pub(crate) fn report(failure: &Failure, lock: Option<&str>) {
    let error = failure.library_error();
    let body = ErrorBody {
        kind: failure.kind(),
        message: failure.to_string(),
        lock: error.and_then(leasehold::Error::lock).or(lock),
        store: error.and_then(leasehold::Error::store),
        transient: failure.is_transient(),
        exit_code: failure.code(),
    };
    match to_line(&Error { error: body }) {
        Ok(line) => note!("{line}"),
        Err(_) => failure.report(),
    }
}

/// An object in one line.
pub(crate) fn to_line(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(value).map_err(unwritable)?;
    Ok(escaped(&text))
}

fn unwritable(error: serde_json::Error) -> Failure {
    Failure::own("the output cannot be written as JSON", error)
}

/// Writes invisible characters, which are in strings only, as `\u202e`: a reader gets them exactly, and a terminal
/// does not.
pub(crate) fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || output::is_visible(c) {
            text.push(c);
        } else {
            let mut buffer = [0; 2];
            let units = c.encode_utf16(&mut buffer).iter();
            text.extend(units.map(|unit| format!("\\u{unit:04x}")));
        }
    }
    text
}
