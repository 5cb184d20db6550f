//! Hints for arguments and commands that other programs have, and that users of those try here.

use std::ffi::{OsStr, OsString};

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use leasehold::__private::store::redacted_url;

use crate::misplaced::{command, is_named, split_duration};
use crate::{duration, misplaced, output, secret, shell, variables};

/// Words of other programs, and what to use instead.
const TABLE: &str = include_str!("hints.txt");

/// The hint for an option of a job without its period.
const PERIOD_MISSING: &str = "'--anchor', '--retry-after', '--keep', '--done-exit-code' and '--no-record' are options of a job: \
                              add '--every DURATION', or use 'leasehold once NAME --key KEY COMMAND'";

/// The hint for a job of a key without its key.
const KEY_MISSING: &str =
    "the key stands behind its option: 'leasehold once NAME --key KEY COMMAND'";

/// The hints for a key and a value that are arguments of the command.
const KEY_BEHIND: &str =
    "'--key' stands before COMMAND and --: 'leasehold once NAME --key KEY COMMAND'";
const VALUE_BEHIND: &str =
    "'--value' stands before COMMAND and --: 'leasehold elect NAME --value TEXT COMMAND'";

/// The hint for an option without a value, although a word follows it: perhaps a variable without quotes.
const VALUE_MISSING: &str = "is a variable of your script unset?";

/// The hint for a wait that is refused and limited.
const WAIT_CONFLICT: &str = "-n does not wait, and -w waits: leave one out";

/// The hint for an exit code that would hide that the command did not run.
const ZERO_CODE: &str = "'--skip-ok' exits with 0 if the lock is held elsewhere";

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

/// The hint for an option that other programs have, or that stands for something else here.
fn of_foreign_option(
    command: Option<&str>,
    option: &str,
    arguments: &[OsString],
) -> Option<String> {
    let is_meant = |commands: &str| match command {
        _ if commands == "*" => true,
        None => has(commands, "-"),
        Some(command) => commands == "+" || has(commands, command),
    };
    let mut rows = rows();
    let [_, _, hint] =
        rows.find(|[commands, options, _]| is_meant(commands) && has(options, option))?;
    Some(with_value(hint, value_of(option, arguments)))
}

/// A hint of the table with the value of the option in the place of `{NAME}`, `{KEY}` or `{DURATION}`, if it can be one.
fn with_value(hint: &str, value: Option<String>) -> String {
    let parts = hint.split_once('{');
    let Some((before, (kind, after))) =
        parts.and_then(|(it, rest)| Some((it, rest.split_once('}')?)))
    else {
        return hint.to_owned();
    };
    let value = value.filter(|value| match kind {
        "NAME" => is_name(value),
        "DURATION" => duration::parse(value).is_ok(),
        _ => true,
    });
    let value = value.map_or_else(|| kind.to_owned(), |value| shell::quote(&value));
    format!("{before}{value}{after}")
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
    let message = match error.kind() {
        ErrorKind::InvalidUtf8 => Some(of_bytes(arguments)),
        ErrorKind::InvalidValue => empty_file(&error),
        _ => None,
    };
    if let Some(message) = message {
        return cli.clone().error(error.kind(), message);
    }
    let hint = hint(&error, arguments, cli);
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidSubcommand] {
        if let Some(url) = invalid(&error, kind).filter(|it| secret::password_in(it).is_some()) {
            let redacted = redacted_url(&url).unwrap_or_else(|_| "URL".to_owned());
            error.insert(kind, ContextValue::String(redacted));
        }
    }
    let own = error.remove(ContextKind::Suggested);
    let hints = if let Some(hint) = hint {
        // A similar name means something else.
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        vec![StyledStr::from(hint)]
    } else if let Some(ContextValue::StyledStrs(mut own)) = own {
        own.retain(|hint| !hint.to_string().starts_with("to pass "));
        own
    } else {
        Vec::new()
    };
    if !hints.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(hints));
    }
    error
}

fn hint(error: &clap::Error, arguments: &[OsString], cli: &Command) -> Option<String> {
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    if let Some(meant) = words.find_map(|word| split_duration(word, arguments, cli)) {
        return Some(format!("did you mean '{meant}'?"));
    }
    let fixed = match error.kind() {
        ErrorKind::UnknownArgument => {
            let argument = invalid(error, ContextKind::InvalidArg)?;
            return match argument.starts_with('-') {
                _ if argument.starts_with(misplaced::DASHES) => misplaced::of_dash(&argument),
                _ if is_url(&argument) => Some(of_url(&argument)),
                true => of_option(&argument, arguments, cli),
                false => of_argument(&argument, arguments, cli),
            };
        }
        ErrorKind::InvalidSubcommand => {
            let word = invalid(error, ContextKind::InvalidSubcommand)?;
            return match is_url(&word) {
                _ if word.starts_with(misplaced::DASHES) => misplaced::of_dash(&word),
                true => Some(of_url(&word)),
                false => of_command(&word, arguments, error, cli),
            };
        }
        ErrorKind::MissingRequiredArgument if lacks(error, "<COMMAND>") => {
            return of_missing_command(arguments, cli);
        }
        ErrorKind::MissingRequiredArgument if is_behind("--key", error, arguments) => KEY_BEHIND,
        ErrorKind::MissingRequiredArgument if lacks(error, "--key ") => KEY_MISSING,
        ErrorKind::MissingRequiredArgument if is_behind("--value", error, arguments) => {
            VALUE_BEHIND
        }
        ErrorKind::MissingRequiredArgument if lacks(error, "--every ") => PERIOD_MISSING,
        ErrorKind::ArgumentConflict if error.to_string().contains("'--no-wait' cannot") => {
            WAIT_CONFLICT
        }
        ErrorKind::ValueValidation if is_zero_code(error) => ZERO_CODE,
        ErrorKind::InvalidValue if lacks_value(error, arguments) => VALUE_MISSING,
        _ => return None,
    };
    Some(fixed.to_owned())
}

/// The message for a variable without a value that is read in place of an option for a file.
fn empty_file(error: &clap::Error) -> Option<String> {
    let option = invalid(error, ContextKind::InvalidArg)?;
    let option = option.strip_prefix("--")?.strip_suffix("-file <FILE>")?;
    let option = option.replace('-', "_").to_ascii_uppercase();
    let variable = format!("LEASEHOLD_{option}_FILE");
    let is_empty = std::env::var_os(&variable).is_some_and(|value| value.is_empty());
    is_empty.then(|| format!("{variable} is empty; unset it, or name a file"))
}

/// Whether the exit code of a refusal is to be 0.
fn is_zero_code(error: &clap::Error) -> bool {
    let option = invalid(error, ContextKind::InvalidArg).unwrap_or_default();
    let value = invalid(error, ContextKind::InvalidValue);
    option.starts_with("--conflict-exit-code") && value.as_deref() == Some("0")
}

/// Whether an option has no value, although a word follows it.
fn lacks_value(error: &clap::Error, arguments: &[OsString]) -> bool {
    let option = invalid(error, ContextKind::InvalidArg).unwrap_or_default();
    let option = option.split([' ', '[', '=']).next().unwrap_or_default();
    let value = invalid(error, ContextKind::InvalidValue);
    value.as_deref() == Some("") && value_of(option, arguments).is_some()
}

/// Whether a required argument that begins so is missing.
fn lacks(error: &clap::Error, begin: &str) -> bool {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.iter().any(|it| it.starts_with(begin)),
        _ => false,
    }
}

/// Whether a required option is missing, but stands behind the command, whose argument it is there.
fn is_behind(option: &str, error: &clap::Error, arguments: &[OsString]) -> bool {
    lacks(error, &format!("{option} ")) && value_of(option, arguments).is_some()
}

/// The message for text that is not UTF-8.
fn of_bytes(arguments: &[OsString]) -> String {
    if let Some(variable) = variables::not_utf8() {
        return format!("the value of {variable} is not UTF-8; correct or unset the variable");
    }
    let mut arguments = arguments.iter();
    let argument = arguments.find(|argument| argument.to_str().is_none());
    match argument.map(|argument| argument.to_string_lossy()) {
        Some(argument) if !argument.contains('@') => {
            format!("the argument '{argument}' is not UTF-8")
        }
        // Perhaps a URL with a password.
        _ => "an argument is not UTF-8".to_owned(),
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
    let key = given("key", arguments, cli);
    let is_command = |word: &str| word.contains('/') || shell::is_program(OsStr::new(word));
    let is_in_place_of_name = match &key {
        Some(_) => is_command(&name),
        None => name.contains(['/', ' ']),
    };
    let quoted = shell::quote(&name);
    let option = key.as_deref().map(shell::quote);
    let option = option.map(|key| format!(" --key {key} --"));
    let option = option.unwrap_or_default();
    Some(match key {
        _ if is_in_place_of_name => format!(
            "'{name}' is in the place of the lock's name: leasehold {subcommand} NAME{option} {quoted}"
        ),
        Some(key) if is_command(&key) => format!(
            "'{key}' is the key, and a command follows it; if that is the command, a variable before it is unset: write \
             leasehold {subcommand} {quoted} --key \"$KEY\" -- COMMAND"
        ),
        _ => format!(
            "'{name}' is the name of the lock, and a command follows it: leasehold {subcommand} {quoted}{option} COMMAND"
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
    let hint = with_one_hyphen(option, arguments, cli)
        .or_else(|| of_position(option, arguments, cli))
        .or_else(|| of_foreign_option(command, option, arguments));
    match (command, option) {
        _ if hint.is_some() => hint,
        (Some("run" | "once"), "--reset") => {
            let name = given("name", arguments, cli).unwrap_or_else(|| "NAME".to_owned());
            let key = value_of("--key", arguments).map(|key| shell::quote(&key));
            let (name, key) = (shell::quote(&name), output::optional(" --key ", key));
            Some(format!(
                "'leasehold jobs --reset {name}{key}' removes the record"
            ))
        }
        (None, option) => {
            usage_of_option(option, cli).map(|_| of_run(&format!("{option} NAME COMMAND")))
        }
        _ => None,
    }
}

/// The hint for a long option with one hyphen: the parser reads it as short options, and does not know `short`.
fn with_one_hyphen(short: &str, arguments: &[OsString], cli: &Command) -> Option<String> {
    let command = cli.find_subcommand(command(arguments, cli)?)?;
    let names = arguments
        .iter()
        .filter_map(|word| word.to_str()?.split('=').next());
    let mut names = names.filter(|name| name.len() > short.len() && name.contains(&short[1..]));
    names.find_map(|name| {
        let long = format!("-{name}");
        let mut known = command.get_arguments();
        let known = known.find(|known| is_named(known, &long))?;
        let value = value_of(name, arguments).filter(|_| known.get_action().takes_values());
        let value = output::optional(" ", value.map(|value| shell::quote(&value)));
        Some(format!("did you mean '{long}{value}'?"))
    })
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

/// How an option of `run` is written: with the name of its value.
pub(crate) fn usage_of_option(option: &str, cli: &Command) -> Option<String> {
    let run = cli.find_subcommand("run")?;
    let known = run.get_arguments().find(|known| is_named(known, option))?;
    let takes_value = known.get_action().takes_values() && !known.is_require_equals_set();
    let value = known.get_value_names().and_then(<[_]>::first);
    let value = value.filter(|_| takes_value);
    Some(value.map_or_else(|| option.to_owned(), |value| format!("{option} {value}")))
}

/// The hint for an argument where none belongs.
fn of_argument(argument: &str, arguments: &[OsString], cli: &Command) -> Option<String> {
    let quoted = shell::quote(argument);
    Some(match command(arguments, cli)? {
        "hold" if argument.contains('/') || shell::is_program(OsStr::new(argument)) => {
            of_run("NAME COMMAND")
        }
        "hold" => format!("'--and {quoted}' also holds the lock of this name"),
        "show" | "release" | "leader" => {
            "one name is expected; quote a name that has spaces".to_owned()
        }
        "jobs" => of_argument_of_jobs(argument, arguments),
        "ls" if argument.contains(['*', '?']) => {
            format!("leasehold ls --filter {quoted} lists the locks that match")
        }
        "ls" => format!(
            "leasehold show {quoted} shows one lock, leasehold ls --filter GLOB lists those that match"
        ),
        _ => return None,
    })
}

fn of_argument_of_jobs(argument: &str, arguments: &[OsString]) -> String {
    let quoted = shell::quote(argument);
    match argument {
        "ls" | "list" | "show" => "'leasehold jobs' lists them".to_owned(),
        "reset" | "check" => {
            let name = value_of(argument, arguments).unwrap_or_else(|| "NAME".to_owned());
            let name = shell::quote(&name);
            format!("did you mean 'leasehold jobs --{argument} {name}'?")
        }
        _ if let Some(name) = value_of("--reset", arguments) => {
            let name = shell::quote(&name);
            format!("did you mean 'leasehold jobs --reset {name} --key {quoted}'?")
        }
        _ if arguments.iter().any(|word| word == "--check") => {
            format!("the names stand behind --check: leasehold jobs --check {quoted}")
        }
        _ => format!(
            "leasehold jobs lists all jobs; leasehold jobs --reset {quoted} removes the record of one"
        ),
    }
}

/// The word behind an option, or its value behind `=`.
fn value_of(option: &str, arguments: &[OsString]) -> Option<String> {
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    let rest = words.find_map(|word| {
        let rest = word.strip_prefix(option)?;
        (rest.is_empty() || rest.starts_with('=')).then_some(rest)
    })?;
    let value = rest.strip_prefix('=').or_else(|| words.next())?;
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
    if let Some(similar) = with_typo(command, cli) {
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

/// The command of this program that a word is, but for two neighbouring letters, or for a missing one of three. The parser
/// finds only longer ones.
fn with_typo(word: &str, cli: &Command) -> Option<String> {
    let letters: Vec<_> = word.chars().collect();
    let swapped = (1..letters.len()).map(|at| {
        let mut swapped = letters.clone();
        swapped.swap(at - 1, at);
        swapped.into_iter().collect::<String>()
    });
    let mut short = cli.get_subcommands().map(Command::get_name);
    let lacks_one = |name: &&str| {
        let shorter = |at: usize| format!("{}{}", &name[..at], &name[at + 1..]);
        name.len() == 3 && (0..3).any(|at| shorter(at) == word)
    };
    { swapped }
        .find(|word| cli.find_subcommand(word).is_some())
        .or_else(|| short.find(lacks_one).map(str::to_owned))
}

/// Whether a word can be the name of a lock that needs no quotes in a shell. A URL with a password, the value of an
/// option, has an `@`.
fn is_name(word: &str) -> bool {
    shell::is_plain(word) && !word.starts_with('-') && !word.contains('@')
}
