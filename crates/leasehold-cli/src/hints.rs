//! Hints for arguments and commands that other programs have, and that users of those try here.

use std::ffi::{OsStr, OsString};

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use leasehold::__private::store::redacted_url;

use crate::misplaced::{command, is_named, split_duration};
use crate::{duration, secret, shell, variables};

/// Words of other programs, and what to use instead.
const TABLE: &str = include_str!("hints.txt");

/// The hint for an option of a job without its period.
const PERIOD_MISSING: &str = "'--anchor', '--retry-after', '--keep', '--done-exit-code' and '--no-record' are options of a job: \
                              add '--every DURATION', or use 'leasehold once NAME --key KEY COMMAND'";

/// The hint for a job of a key without its key.
const KEY_MISSING: &str =
    "the key stands behind its option: 'leasehold once NAME --key KEY COMMAND'";

/// The hint for a wait that is refused and limited.
const WAIT_CONFLICT: &str = "-n does not wait, and -w waits: leave one out";

/// The hint for an exit code that would hide that the command did not run.
const ZERO_CODE: &str = "'--skip-ok' exits with 0 if the lock is held elsewhere";

/// Options that limit the wait elsewhere, or the time of the command.
const TIMEOUTS: [&str; 4] = ["--timeout", "--time-limit", "--timelimit", "-t"];

/// The cells of the rows of the table.
fn rows() -> impl Iterator<Item = [&'static str; 3]> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut cells = line.splitn(3, '|').map(str::trim);
        Some([cells.next()?, cells.next()?, cells.next()?])
    })
}

/// Whether a cell has a word.
fn has(cell: &str, word: &str) -> bool {
    cell.split(' ').any(|known| known == word)
}

/// The hint for an option that other programs have.
fn of_foreign_option(command: Option<&str>, option: &str) -> Option<&'static str> {
    let is_meant = |commands: &str| match command {
        _ if commands == "*" => true,
        None => has(commands, "-"),
        Some(command) => commands == "+" || has(commands, command),
    };
    let found = rows().find(|[commands, options, _]| is_meant(commands) && has(options, option));
    found.map(|[_, _, hint]| hint)
}

/// Our commands for the purposes of those of other programs: their words, ours, and the purpose.
fn commands() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let rows = rows().filter(|[kind, ..]| *kind == "command");
    rows.filter_map(|[_, words, rest]| {
        let (ours, purpose) = rest.split_once(" | ")?;
        Some((words, ours, purpose))
    })
}

/// Adds a hint to an error of the arguments. The parser's own advice, to write `--` before an unknown option, is
/// removed: it would make the option the command.
pub(crate) fn with_hint(
    mut error: clap::Error,
    arguments: &[OsString],
    cli: &Command,
) -> clap::Error {
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    if let Some(meant) = words.find_map(|word| split_duration(word, arguments, cli)) {
        error.remove(ContextKind::SuggestedArg);
        insert(&mut error, format!("did you mean '{meant}'?"));
        return error;
    }
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::ArgumentConflict if error.to_string().contains("'--no-wait' cannot") => {
            insert(&mut error, WAIT_CONFLICT.to_owned());
            return error;
        }
        ErrorKind::InvalidValue if let Some(variable) = empty_file(&error) => {
            let message = format!("{variable} is empty; unset it, or name a file");
            return cli.clone().error(error.kind(), message);
        }
        ErrorKind::ValueValidation if is_zero_code(&error) => {
            insert(&mut error, ZERO_CODE.to_owned());
            return error;
        }
        ErrorKind::InvalidUtf8 => return cli.clone().error(error.kind(), of_bytes(arguments)),
        ErrorKind::MissingRequiredArgument if lacks(&error, "<COMMAND>") => {
            if let Some(hint) = of_missing_command(arguments, cli) {
                insert(&mut error, hint);
            }
            return error;
        }
        ErrorKind::MissingRequiredArgument if lacks(&error, "--key ") => {
            insert(&mut error, KEY_MISSING.to_owned());
            return error;
        }
        ErrorKind::MissingRequiredArgument if lacks(&error, "--every ") => {
            insert(&mut error, PERIOD_MISSING.to_owned());
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

fn insert(error: &mut clap::Error, hint: String) {
    let hints = vec![StyledStr::from(hint)];
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(hints));
}

/// The variable without a value that is read in place of an option for a file.
fn empty_file(error: &clap::Error) -> Option<String> {
    let option = invalid(error, ContextKind::InvalidArg)?;
    let option = option.strip_prefix("--")?.strip_suffix("-file <FILE>")?;
    let variable = format!(
        "LEASEHOLD_{}_FILE",
        option.replace('-', "_").to_ascii_uppercase()
    );
    std::env::var_os(&variable)
        .is_some_and(|value| value.is_empty())
        .then_some(variable)
}

/// Whether the exit code of a refusal is to be 0.
fn is_zero_code(error: &clap::Error) -> bool {
    let option = invalid(error, ContextKind::InvalidArg).unwrap_or_default();
    let value = invalid(error, ContextKind::InvalidValue);
    option.starts_with("--conflict-exit-code") && value.as_deref() == Some("0")
}

/// Whether a required argument that begins so is missing.
fn lacks(error: &clap::Error, begin: &str) -> bool {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.iter().any(|it| it.starts_with(begin)),
        _ => false,
    }
}

/// The message for text that is not UTF-8.
fn of_bytes(arguments: &[OsString]) -> String {
    if let Some(variable) = variables::not_utf8() {
        return format!("the value of {variable} is not UTF-8; correct or unset the variable");
    }
    let argument = arguments
        .iter()
        .find(|argument| argument.to_str().is_none());
    let argument = argument.map_or_else(Default::default, |argument| argument.to_string_lossy());
    match argument.contains('@') {
        // Perhaps a URL with a password.
        true => "an argument is not UTF-8".to_owned(),
        false => format!("the argument '{argument}' is not UTF-8"),
    }
}

/// The value of an argument of a command, as far as the arguments are understood.
fn given(id: &str, arguments: &[OsString], cli: &Command) -> Option<String> {
    let partial = cli.clone().ignore_errors(true);
    let matches = partial.try_get_matches_from(arguments).ok()?;
    let (_, matches) = matches.subcommand()?;
    matches.try_get_one::<String>(id).ok()?.cloned()
}

/// The hint for a run without a command: it is in the place of the key, or of the lock's name.
fn of_missing_command(arguments: &[OsString], cli: &Command) -> Option<String> {
    let subcommand = command(arguments, cli)?;
    let name = given("name", arguments, cli)?;
    let quoted = shell::quote(&name);
    let is_command = name.contains('/') || shell::is_program(OsStr::new(&name));
    if let Some(key) = given("key", arguments, cli) {
        let quoted_key = shell::quote(&key);
        if is_command {
            return Some(format!(
                "'{name}' is in the place of the lock's name: leasehold {subcommand} NAME --key {quoted_key} -- {quoted}"
            ));
        }
        if !key.contains('/') && !shell::is_program(OsStr::new(&key)) {
            return Some(format!(
                "'{name}' is the name of the lock, and a command follows it: leasehold {subcommand} {quoted} --key \
                 {quoted_key} -- COMMAND"
            ));
        }
        return Some(format!(
            "'{key}' is the key, and a command follows it; if that is the command, a variable before it is unset: write \
             leasehold {subcommand} {quoted} --key \"$KEY\" -- COMMAND"
        ));
    }
    Some(match name.contains(['/', ' ']) {
        true => format!(
            "'{name}' is in the place of the lock's name: leasehold {subcommand} NAME {quoted}"
        ),
        false => format!(
            "'{name}' is the name of the lock, and a command follows it: leasehold {subcommand} {quoted} COMMAND"
        ),
    })
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
    if let Some(hint) = of_position(option, arguments, cli) {
        return Some(hint);
    }
    match (command, option) {
        (Some("jobs"), "--name" | "--job") => {
            let name = value_of(option, arguments).unwrap_or_else(|| "NAME".to_owned());
            let name = shell::quote(&name);
            Some(format!(
                "leasehold jobs lists all jobs; leasehold jobs --check {name} checks one"
            ))
        }
        (Some("run" | "once"), "--reset") => {
            let name = given("name", arguments, cli).unwrap_or_else(|| "NAME".to_owned());
            let key = value_of("--key", arguments);
            let key = key.map(|key| format!(" --key {}", shell::quote(&key)));
            Some(format!(
                "'leasehold jobs --reset {}{}' removes the record",
                shell::quote(&name),
                key.unwrap_or_default()
            ))
        }
        (Some("run" | "once" | "elect" | "hold" | "show" | "release"), "--name" | "--lock") => {
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
        (Some("run" | "once" | "elect"), option) if TIMEOUTS.contains(&option) => {
            let limit = value_of(option, arguments);
            let limit = limit.filter(|limit| duration::parse(limit).is_ok());
            let limit = limit.unwrap_or_else(|| "DURATION".to_owned());
            Some(format!(
                "'--wait {limit}' limits the wait for the lock; timeout(1) limits the time of the command"
            ))
        }
        (Some("once"), "-k") => {
            let key = value_of(option, arguments).unwrap_or_else(|| "KEY".to_owned());
            Some(format!("'--key {}' is the key", shell::quote(&key)))
        }
        (None, option) if is_of_run(option, cli) && option != "-c" && option != "--command" => {
            Some(of_run(&format!("{option} NAME COMMAND")))
        }
        _ => of_foreign_option(command, option).map(str::to_owned),
    }
}

/// The hint for an option of a command that stands before it.
fn of_position(option: &str, arguments: &[OsString], cli: &Command) -> Option<String> {
    let command = command(arguments, cli)?;
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    let first = words.find(|word| *word == command || word.split('=').next() == Some(option))?;
    let known = cli.find_subcommand(command)?.get_arguments();
    let is_before = first != command && { known }.any(|known| is_named(known, option));
    is_before.then(|| format!("it stands behind the command: leasehold {command} {option}"))
}

/// The hint for an option of `run` without `run`.
fn of_run(usage: &str) -> String {
    format!("to run a command under a lock, use 'leasehold run {usage}'")
}

fn is_of_run(option: &str, cli: &Command) -> bool {
    let run = cli.find_subcommand("run");
    run.is_some_and(|run| run.get_arguments().any(|known| is_named(known, option)))
}

/// How an option of `run` is written: with the name of its value.
pub(crate) fn usage_of_option(option: &str, cli: &Command) -> Option<String> {
    let run = cli.find_subcommand("run")?;
    let known = run.get_arguments().find(|known| is_named(known, option))?;
    let takes_value = known.get_action().takes_values() && !known.is_require_equals_set();
    let value = known
        .get_value_names()
        .and_then(<[_]>::first)
        .filter(|_| takes_value);
    Some(value.map_or_else(|| option.to_owned(), |value| format!("{option} {value}")))
}

/// The hint for an argument where none belongs.
fn of_argument(argument: &str, arguments: &[OsString], cli: &Command) -> Option<String> {
    match command(arguments, cli)? {
        "ls" => {}
        "hold" => return Some(of_run("NAME COMMAND")),
        "show" | "release" | "leader" => {
            return Some("one name is expected; quote a name that has spaces".to_owned());
        }
        "jobs" if ["ls", "list", "show"].contains(&argument) => {
            return Some("'leasehold jobs' lists them".to_owned());
        }
        "jobs" if ["reset", "check"].contains(&argument) => {
            let mut words = arguments.iter().filter_map(|word| word.to_str());
            let name = words.by_ref().skip_while(|word| *word != argument).nth(1);
            let name = shell::quote(name.unwrap_or("NAME"));
            return Some(format!(
                "did you mean 'leasehold jobs --{argument} {name}'?"
            ));
        }
        "jobs" if let Some(name) = value_of("--reset", arguments) => {
            let (name, key) = (shell::quote(&name), shell::quote(argument));
            return Some(format!(
                "did you mean 'leasehold jobs --reset {name} --key {key}'?"
            ));
        }
        "jobs" if arguments.iter().any(|word| word == "--check") => {
            let name = shell::quote(argument);
            return Some(format!(
                "the names stand behind --check: leasehold jobs --check {name}"
            ));
        }
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
    match command {
        "version" => return Some("'leasehold --version' prints it".to_owned()),
        "start" | "serve" | "run" if arguments.iter().any(|word| word == "watchdog") => {
            return Some("'leasehold watchdog' without a further word is a node".to_owned());
        }
        _ => {}
    }
    if let Some(similar) = with_two_letters_swapped(command, cli) {
        return Some(format!("a similar subcommand exists: '{similar}'"));
    }
    let texts = arguments.iter().skip(1).map(|argument| argument.to_str());
    let mut rest = texts.skip_while(|text| *text != Some(command)).skip(1);
    let is_similar = error.get(ContextKind::SuggestedSubcommand).is_some();
    let is_typo = is_similar && rest.clone().next() != Some(Some("--"));
    let next = rest.clone().flatten().find(|text| is_name(text));
    let known = commands().find(|(words, ..)| has(words, command));
    let (ours, purpose, name) = match known {
        // Without a name, all locks are meant.
        Some((_, "show NAME", _)) if next.is_none() => ("ls", "list the held locks", None),
        Some((_, ours, purpose)) => (ours, purpose, next),
        None if !is_typo && is_name(command) && rest.next().is_some() => {
            let (_, ours, purpose) = commands().next()?;
            (ours, purpose, Some(command))
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
