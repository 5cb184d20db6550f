//! Hints for arguments and commands that other programs have, and that users of those try here.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::{duration, shell};

/// Options of flock, timeout and consul for `run`, and what to use instead.
const OPTIONS: [(&[&str], &str); 7] = [
    (
        &["-x", "-e", "--exclusive"],
        "every lock is exclusive; leave it out",
    ),
    (
        &["-s", "--shared"],
        "there are no shared locks; every lock is exclusive",
    ),
    (
        &["-u", "--unlock"],
        "'leasehold release --force NAME' frees a lock",
    ),
    (
        &["-o", "--close"],
        "the command does not inherit the lock; leave it out",
    ),
    (
        &["-F", "--no-fork"],
        "leasehold stays to renew the lease; leave it out",
    ),
    (&["-k"], "'--kill-after' has no short form"),
    (
        &["--signal"],
        "'--on-lost' is the action when the lock is lost",
    ),
];

/// Options that limit the wait elsewhere, or the time of the command.
const TIMEOUTS: [&str; 4] = ["--timeout", "--time-limit", "--timelimit", "-t"];

/// Commands of other programs, and ours for the same purpose.
const COMMANDS: [(&[&str], &str, &str); 5] = [
    (
        &["lock", "acquire", "exec", "with", "flock"],
        "run a command under a lock",
        "run NAME COMMAND",
    ),
    (
        &[
            "unlock",
            "free",
            "force-release",
            "force-unlock",
            "break",
            "delete",
            "rm",
            "del",
        ],
        "free a lock by force",
        "release --force NAME",
    ),
    (
        &["status", "info", "get", "holder", "inspect", "describe"],
        "see the holder of a lock",
        "show NAME",
    ),
    (&["list", "locks", "ps"], "list the held locks", "ls"),
    (
        &["check", "diagnose", "health"],
        "check the store",
        "doctor",
    ),
];

/// Adds a hint to an error of the arguments. The parser's own advice, to write `--` before an unknown option, is
/// removed: it would make the option the command.
pub(crate) fn with_hint(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let hint = match error.kind() {
        ErrorKind::UnknownArgument => invalid(&error, ContextKind::InvalidArg)
            .and_then(|option| of_option(&option, arguments)),
        ErrorKind::InvalidSubcommand => invalid(&error, ContextKind::InvalidSubcommand)
            .and_then(|command| of_command(&command, arguments, &error)),
        _ => return error,
    };
    let own = match error.remove(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(own)) => own,
        _ => Vec::new(),
    };
    let mut hints: Vec<_> = own
        .into_iter()
        .filter(|hint| !hint.to_string().starts_with("to pass "))
        .collect();
    if let Some(hint) = hint {
        // A similar name means something else.
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        hints = vec![StyledStr::from(hint)];
    }
    if !hints.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(hints));
    }
    error
}

fn invalid(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    }
}

/// The hint for an unknown option of `run`, or for a command behind `hold`.
fn of_option(option: &str, arguments: &[OsString]) -> Option<String> {
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    if has("hold") && !option.starts_with('-') {
        return Some("to run a command under a lock, use 'leasehold run NAME COMMAND'".to_owned());
    }
    if !has("run") {
        return None;
    }
    if TIMEOUTS.contains(&option) {
        let limit = value_of(option, arguments).unwrap_or_else(|| "DURATION".to_owned());
        return Some(format!(
            "'--wait {limit}' limits the wait for the lock; timeout(1) limits the time of the command"
        ));
    }
    let known = OPTIONS.iter().find(|(names, _)| names.contains(&option));
    known.map(|(_, hint)| (*hint).to_owned())
}

/// The duration that was given to an option.
fn value_of(option: &str, arguments: &[OsString]) -> Option<String> {
    let mut arguments = arguments.iter().filter_map(|argument| argument.to_str());
    let value = arguments.find_map(|argument| argument.strip_prefix(option))?;
    let value = match value.strip_prefix('=') {
        Some(value) => value,
        None => arguments.next()?,
    };
    duration::parse(value).is_ok().then(|| value.to_owned())
}

/// The hint for an unknown command: ours for the same purpose, or `run` for the name of a lock, unless the word is
/// similar to one of our commands.
fn of_command(command: &str, arguments: &[OsString], error: &clap::Error) -> Option<String> {
    let is_typo = error.get(ContextKind::SuggestedSubcommand).is_some();
    let texts = arguments.iter().skip(1).map(|argument| argument.to_str());
    let mut rest = texts.skip_while(|text| *text != Some(command)).skip(1);
    let next = rest.clone().flatten().find(|text| is_name(text));
    let known = COMMANDS.iter().find(|(words, ..)| words.contains(&command));
    let (purpose, ours, name) = match known {
        // Without a name, all locks are meant.
        Some((.., "show NAME")) if next.is_none() => ("list the held locks", "ls", None),
        Some((_, purpose, ours)) => (*purpose, *ours, next),
        None if !is_typo && is_name(command) && rest.next().is_some() => {
            let (_, purpose, ours) = COMMANDS[0];
            (purpose, ours, Some(command))
        }
        None => return None,
    };
    let ours = ours.replace("NAME", name.unwrap_or("NAME"));
    Some(format!("to {purpose}, use 'leasehold {ours}'"))
}

/// Whether a word can be the name of a lock that needs no quotes in a shell. A URL with a password, the value of an
/// option, has an `@`.
fn is_name(word: &str) -> bool {
    shell::is_plain(word) && !word.starts_with('-') && !word.contains('@')
}
