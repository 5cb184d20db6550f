//! The output for programs: one JSON object for each command, and lines of them by `hold` and `watch`. `docs/json.md`
//! describes it, and `docs/schema/leasehold.json` is its schema.
//!
//! Each command names the keys of its object; the objects of listings are those of the library. A value that is not known is
//! null, and its key is there.

use std::ffi::OsString;

use leasehold::ClientInfo;
use serde::Serialize;

use crate::exit::Failure;
use crate::output;

/// An object with these keys, in their order.
macro_rules! object {
    ($($key:ident: $value:expr),* $(,)?) => {{
        // The types of the values are named as their keys.
        #[allow(non_camel_case_types, clippy::too_many_arguments)]
        fn object<$($key: serde::Serialize),*>($($key: $key),*) -> impl serde::Serialize {
            #[derive(serde::Serialize)]
            struct Object<$($key),*> {
                $($key: $key),*
            }
            Object { $($key),* }
        }
        object($($value),*)
    }};
}
pub(crate) use object;

/// A leader, with the client info of its holder if that is known.
pub(crate) fn leader(leader: &leasehold::Leader, holder: Option<&ClientInfo>) -> impl Serialize {
    object! {
        value: &*leader.value,
        term: leader.term.get(),
        lease: leader.lease.to_string(),
        holder: holder,
    }
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

/// Prints a failure to stderr, as an object in one line. `lock` is the name in the arguments.
pub(crate) fn report(failure: &Failure, lock: Option<&str>) {
    let error = failure.library_error();
    let error = object! {
        kind: failure.kind(),
        message: failure.to_string(),
        lock: error.and_then(leasehold::Error::lock).or(lock),
        store: error.and_then(leasehold::Error::store),
        transient: failure.is_transient(),
        exit_code: failure.code(),
    };
    match to_line(&object! { error: error }) {
        Ok(line) => note!("{line}"),
        // Not reached: text, numbers and null can be written.
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
