//! Hints for arguments and commands that other programs have, and that users of those try here.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use leasehold::store::redacted_url;

use crate::{duration, secret, shell};

/// Options of flock, timeout and consul for `run`, and what to use instead.
const OPTIONS: [(&[&str], &str); 9] = [
    (
        &["--min-hold", "--minimum-hold", "--hold-at-least"],
        "'--at-least DURATION' is the minimum hold of the lock",
    ),
    (
        &["-x", "-e", "--exclusive"],
        "every lock is exclusive; leave it out",
    ),
    (
        &["-s", "--shared"],
        "there are no shared locks; every lock is exclusive",
    ),
    (
        &["--permits"],
        "a lock has one holder; for several at a time, use several names, such as NAME-1 and NAME-2",
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

/// Options of one command of this program at the others, and what to use instead.
const OTHER_COMMANDS: [(&[&str], &str); 4] = [
    (
        &["--every", "--anchor"],
        "'leasehold run --every DURATION NAME COMMAND' runs a command once in each period",
    ),
    (
        &["--cron", "--schedule", "--at"],
        "cron or a timer starts the command; 'leasehold run --every DURATION NAME COMMAND' runs it once in each period",
    ),
    (
        &["--key"],
        "'leasehold once NAME --key KEY COMMAND' runs a command once for a key",
    ),
    (
        &["--value"],
        "'leasehold elect NAME --value TEXT COMMAND' runs a command as the leader",
    ),
];

/// The hint for an option of a job without its period.
const PERIOD_MISSING: &str = "'--anchor', '--retry-after', '--keep' and '--done-exit-code' are options of a job: add \
                              '--every DURATION', or use 'leasehold once NAME --key KEY COMMAND'";

/// Options that limit the wait elsewhere, or the time of the command.
const TIMEOUTS: [&str; 4] = ["--timeout", "--time-limit", "--timelimit", "-t"];

/// Commands of other programs, and ours for the same purpose.
const COMMANDS: [(&[&str], &str, &str); 7] = [
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
    (
        &["events", "observe", "monitor", "follow", "tail"],
        "print the events of a lock",
        "watch NAME",
    ),
    (
        &["campaign", "election", "lead"],
        "run a command as the leader",
        "elect NAME --value TEXT COMMAND",
    ),
];

/// Adds a hint to an error of the arguments. The parser's own advice, to write `--` before an unknown option, is
/// removed: it would make the option the command.
pub(crate) fn with_hint(
    mut error: clap::Error,
    arguments: &[OsString],
    cli: &Command,
) -> clap::Error {
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::MissingRequiredArgument if lacks_period(&error) => {
            let hint = StyledStr::from(PERIOD_MISSING);
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint]));
            return error;
        }
        _ => return error,
    };
    let Some(invalid) = invalid(&error, kind) else {
        return error;
    };
    let hint = match kind {
        _ if is_url(&invalid) => Some(of_url(&invalid)),
        ContextKind::InvalidArg if invalid.starts_with('-') => of_option(&invalid, arguments, cli),
        ContextKind::InvalidArg => of_argument(&invalid, arguments, cli),
        _ => of_command(&invalid, arguments, &error, cli),
    };
    if secret::password_in(&invalid).is_some() {
        let redacted = redacted_url(&invalid).unwrap_or_else(|_| "URL".to_owned());
        error.insert(kind, ContextValue::String(redacted));
    }
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

/// Whether `--every` is missing.
fn lacks_period(error: &clap::Error) -> bool {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.iter().any(|it| it.starts_with("--every ")),
        _ => false,
    }
}

fn invalid(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    }
}

/// Whether a word is the URL of a store.
fn is_url(word: &str) -> bool {
    word.contains("://") || word.starts_with("sqlite:") || word.starts_with("redis+unix:")
}

/// The hint for a URL that stands where none belongs.
fn of_url(url: &str) -> String {
    match secret::password_in(url) {
        Some(_) => "'LEASEHOLD_STORE' names a store whose URL has a password".to_owned(),
        None => format!("'--store {}' names the store", shell::quote(url)),
    }
}

/// The hint for an unknown option.
fn of_option(option: &str, arguments: &[OsString], cli: &Command) -> Option<String> {
    let command = command(arguments, cli);
    let option = option.split('=').next().unwrap_or(option);
    match (command, option) {
        (Some("run" | "once" | "elect" | "hold" | "show" | "release"), "--name") => {
            let name = value_of(option, arguments);
            let name = name.filter(|name| is_name(name));
            let name = name.unwrap_or_else(|| "NAME".to_owned());
            let usage = match command {
                Some("run") => format!("run {name} COMMAND"),
                Some("once") => format!("once {name} --key KEY COMMAND"),
                Some("elect") => format!("elect {name} --value TEXT COMMAND"),
                Some("release") => format!("release --force {name}"),
                Some(command) => format!("{command} {name}"),
                None => return None,
            };
            Some(format!(
                "the name of the lock stands without an option: 'leasehold {usage}'"
            ))
        }
        (Some("release"), "-y" | "--yes" | "-f") => {
            Some("'--force' confirms that the holder is cut off".to_owned())
        }
        (Some("hold"), "-c" | "--command") => Some(of_run("NAME -c STRING")),
        (Some("hold"), "--json") => Some("'hold' always prints JSON; leave it out".to_owned()),
        (Some("run" | "once" | "elect"), option) if TIMEOUTS.contains(&option) => {
            let limit = value_of(option, arguments);
            let limit = limit.filter(|limit| duration::parse(limit).is_ok());
            let limit = limit.unwrap_or_else(|| "DURATION".to_owned());
            Some(format!(
                "'--wait {limit}' limits the wait for the lock; timeout(1) limits the time of the command"
            ))
        }
        (Some("run" | "once" | "elect" | "hold"), option) => {
            let mut known = OTHER_COMMANDS.iter().chain(&OPTIONS);
            let known = known.find(|(names, _)| names.contains(&option));
            known.map(|(_, hint)| (*hint).to_owned())
        }
        (None, "-c" | "--command") => Some(of_run("NAME -c STRING")),
        (None, option) if is_of_run(option, cli) => Some(of_run(&format!("{option} NAME COMMAND"))),
        _ => None,
    }
}

/// The hint for an option of `run` without `run`.
fn of_run(usage: &str) -> String {
    format!("to run a command under a lock, use 'leasehold run {usage}'")
}

fn is_of_run(option: &str, cli: &Command) -> bool {
    let is_named = |known: &Arg| {
        let short = known.get_short().map(|short| format!("-{short}"));
        let long = known.get_long().map(|long| format!("--{long}"));
        [short, long].iter().flatten().any(|name| name == option)
    };
    let run = cli.find_subcommand("run");
    run.is_some_and(|run| run.get_arguments().any(is_named))
}

/// The hint for an argument where none belongs.
fn of_argument(argument: &str, arguments: &[OsString], cli: &Command) -> Option<String> {
    match command(arguments, cli)? {
        "ls" => {}
        "hold" => return Some(of_run("NAME COMMAND")),
        "jobs" => {
            let reset = format!("leasehold jobs --reset {}", shell::quote(argument));
            return Some(format!(
                "leasehold jobs lists all jobs; {reset} removes the record of one"
            ));
        }
        _ => return None,
    }
    let quoted = shell::quote(argument);
    Some(match argument.contains(['*', '?']) {
        true => format!("leasehold ls --filter {quoted} lists the locks that match"),
        false => format!(
            "leasehold show {quoted} shows one lock, leasehold ls --filter GLOB lists those that match"
        ),
    })
}

/// The command of this program that the arguments name first.
fn command<'a>(arguments: &'a [OsString], cli: &Command) -> Option<&'a str> {
    let words = arguments.iter().skip(1).filter_map(|word| word.to_str());
    let mut commands = words.filter(|word| cli.find_subcommand(word).is_some());
    commands.next()
}

/// The value that was given to an option.
fn value_of(option: &str, arguments: &[OsString]) -> Option<String> {
    let mut arguments = arguments.iter().filter_map(|argument| argument.to_str());
    let value = arguments.find_map(|argument| argument.strip_prefix(option))?;
    let value = match value.strip_prefix('=') {
        Some(value) => value,
        None => arguments.next()?,
    };
    Some(value.to_owned())
}

/// The hint for an unknown command: ours for the same purpose, or `run` for the name of a lock, unless the word is
/// similar to one of our commands.
fn of_command(
    command: &str,
    arguments: &[OsString],
    error: &clap::Error,
    cli: &Command,
) -> Option<String> {
    if let Some(similar) = with_two_letters_swapped(command, cli) {
        return Some(format!("a similar subcommand exists: '{similar}'"));
    }
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

/// The command of this program that a word is, but for two neighbouring letters. The parser finds only longer ones.
fn with_two_letters_swapped(word: &str, cli: &Command) -> Option<String> {
    let letters: Vec<_> = word.chars().collect();
    let swapped = (1..letters.len()).map(|at| {
        let mut swapped = letters.clone();
        swapped.swap(at - 1, at);
        swapped.into_iter().collect::<String>()
    });
    { swapped }.find(|word| cli.find_subcommand(word).is_some())
}

/// Whether a word can be the name of a lock that needs no quotes in a shell. A URL with a password, the value of an
/// option, has an `@`.
fn is_name(word: &str) -> bool {
    shell::is_plain(word) && !word.starts_with('-') && !word.contains('@')
}
