//! Arguments that are valid where they stand, but mean something else than their user thinks.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use leasehold::__private::store::redacted_url;

use crate::exit::Failure;
use crate::{duration, output, shell};

/// Quotes that word processors write in place of those of a shell. The closing single one is also an apostrophe.
const TYPOGRAPHIC_QUOTES: &str = "“”„‟‘‚‛";
const APOSTROPHE: char = '’';

/// Dashes that word processors write in place of one or two hyphens.
pub(crate) const DASHES: [char; 7] = ['‐', '‑', '‒', '–', '—', '―', '−'];

/// The message for an option that begins with such a dash.
pub(crate) fn of_dash(option: &str) -> Option<String> {
    let dash = option.chars().next().filter(|c| DASHES.contains(c))?;
    let name = option.trim_start_matches(|c: char| c == '-' || DASHES.contains(&c));
    let hyphens = if name.len() > 1 { "--" } else { "-" };
    let message = format!(
        "{option} begins with the dash {dash:?}, which is not a hyphen: did you mean '{hyphens}{name}'?"
    );
    Some(output::printable(&message))
}

/// The message for a name or a key that is empty, or has what nobody has meant to be in it. `what` is such as `the key`.
pub(crate) fn of_text(what: &str, text: &str) -> Option<String> {
    if text.is_empty() {
        let message = format!("{what} is empty; is a variable of your script unset?");
        return Some(message);
    }
    of_variable(what, text)
        .or_else(|| of_dash(text).map(|message| format!("{what} {message}")))
        .or_else(|| of_characters(what, text))
}

/// The message for a text with a variable or a command that no shell has replaced.
pub(crate) fn of_variable(what: &str, text: &str) -> Option<String> {
    if let Some((_, rest)) = text.split_once("{{")
        && let Some((expression, _)) = rest.split_once("}}")
    {
        return Some(format!(
            "no template engine has replaced {{{{{}}}}} in {what}: is the file rendered before it is used?",
            output::printable(expression)
        ));
    }
    let part = output::printable(shell::not_replaced(text)?);
    Some(format!(
        "the shell has not replaced {part} in {what}: write double quotes, not single ones; the args of a container have \
         no shell (Kubernetes replaces $(NAME) by a variable of env)"
    ))
}

/// The message for a text with quotes that no shell has removed, or with an invisible character.
fn of_characters(what: &str, text: &str) -> Option<String> {
    let is_in = |quote| text.len() > 1 && text.starts_with(quote) && text.ends_with(quote);
    if is_in('"') || is_in('\'') {
        return Some(format!(
            "{what} is in quotes, which are a part of it here: {}; remove them",
            output::printable(text)
        ));
    }
    // The library names a control character.
    let is_invisible = |c: &char| !c.is_control() && !output::is_visible(*c);
    if let Some(c) = text.chars().find(is_invisible) {
        return Some(format!(
            "{what} contains the character {c:?}, which is invisible; remove it"
        ));
    }
    let outer = [text.chars().next(), text.chars().next_back()];
    let is_apostrophe = outer.contains(&Some(APOSTROPHE));
    let quote = text.chars().find(|c| TYPOGRAPHIC_QUOTES.contains(*c));
    let quote = quote.or_else(|| is_apostrophe.then_some(APOSTROPHE))?;
    Some(format!(
        "{what} contains the quote {quote:?}, which is none for a shell; remove it, or write \" or '"
    ))
}

/// Refuses the name or key of what was not found, if its user has hardly meant it. Another program may have chosen a
/// name with such characters, so what is found is shown.
pub(crate) fn refuse_text(what: &str, text: &str) -> Result<(), Failure> {
    let message = of_text(what, text);
    message.map_or(Ok(()), |message| Err(Failure::usage(message)))
}

/// The message for a name that is a part of an option.
pub(crate) fn of_name(name: &str, arguments: &[OsString], cli: &Command) -> Option<String> {
    if let Some(meant) = split_duration(name, arguments, cli) {
        return Some(format!(
            "'{name}' would be the name of the lock, because a space is before it: did you mean '{meant}'?"
        ));
    }
    let mut pairs = arguments.windows(2);
    let is_watchdog = pairs.any(|it| it[0] == "--watchdog" && it[1] == *name);
    let is_address = name.starts_with("unix:") || name.starts_with("tcp:");
    (is_watchdog && is_address).then(|| {
        format!("'{name}' would be the name of the lock: did you mean '--watchdog={name}'?")
    })
}

/// The message for the names of further locks, if one of them cannot be meant, is a list of names, or is there twice.
pub(crate) fn of_further_names(name: &str, further: &[String]) -> Option<String> {
    further.iter().enumerate().find_map(|(at, other)| {
        let is_repeated = other == name || further[..at].contains(other);
        of_text("the name of a lock", other)
            .or_else(|| of_list(other))
            .or_else(|| is_repeated.then(|| of_repeated(other)))
    })
}

/// The message for a list of names in the place of one.
fn of_list(list: &str) -> Option<String> {
    if !list.contains(',') {
        return None;
    }
    let names = list.split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty()).map(shell::quote);
    let meant: Vec<_> = names.map(|name| format!("--and {name}")).collect();
    let meant = meant.join(" ");
    let message = format!("'{list}' would be the name of one lock: did you mean '{meant}'?");
    Some(output::printable(&message))
}

fn of_repeated(name: &str) -> String {
    let name = output::printable(name);
    format!("{name} is named twice; leave one out")
}

/// The message for a key that is a program: the word behind it, because a variable without quotes is unset. `--` before
/// the command, or `=` before the key, says that it is meant.
pub(crate) fn of_key(key: &str, command: &[OsString], arguments: &[OsString]) -> Option<String> {
    let (own, _) = arguments.split_at(arguments.len() - command.len());
    let is_word = own.windows(2).any(|it| it[0] == "--key" && it[1] == *key);
    let is_meant = own.last().is_some_and(|last| last == "--");
    let is_program = shell::is_program(OsStr::new(key));
    (is_word && !is_meant && is_program).then(|| {
        format!(
            "the key would be '{key}', a program: is a variable of your script unset? Write quotes: --key \"$KEY\", and \
             -- before the command (or --key={key} if that is the key)"
        )
    })
}

/// The message for a name that is a program which starts others, as the word before it was a variable without quotes
/// that is unset. `--` before the command says that it is meant.
pub(crate) fn of_program(
    name: &str,
    command: &[OsString],
    arguments: &[OsString],
) -> Option<String> {
    let (own, _) = arguments.split_at(arguments.len() - command.len());
    let is_meant = match command {
        // Its own -c is that of this program.
        [] => !own
            .windows(2)
            .any(|it| it[0] == *name && it[1].as_encoded_bytes().starts_with(b"-c")),
        _ => own.last().is_some_and(|last| last == "--"),
    };
    (!is_meant && shell::starts_others(name)).then(|| {
        format!(
            "the name of the lock would be '{name}', a program: is a variable before it unset? Write quotes: \"$NAME\", \
             and -- before the command"
        )
    })
}

/// An option whose duration was written in two words, the second of which is `unit`, as it was meant: `--every 1d`.
pub(crate) fn split_duration(unit: &str, arguments: &[OsString], cli: &Command) -> Option<String> {
    let command = cli.find_subcommand(command(arguments, cli)?)?;
    let texts = texts(arguments);
    let end = texts.iter().position(|text| *text == "--");
    let end = end.unwrap_or(texts.len());
    let positions = (2..end).filter(|at| texts[*at] == unit);
    let meant = positions.filter_map(|at| {
        let before = texts[at - 1];
        let (option, number) = match before.split_once('=') {
            Some(split) => split,
            None if duration::is_number(before) || is_span(before) => (texts[at - 2], before),
            None => before
                .split_at_checked(2)
                .filter(|(_, number)| !number.is_empty())?,
        };
        let takes_duration = command.get_arguments().any(|known| {
            let of_time = |value: &str| ["DURATION", "INTERVAL"].contains(&value);
            let mut values = known.get_value_names().unwrap_or_default().iter();
            values.any(|value| of_time(value)) && is_named(known, option)
        });
        let span = duration::parse(&format!("{number}{unit}")).ok()?;
        // `1 d`, or `1d 2h`.
        let is_split = takes_duration && duration::is_number(number) != duration::is_number(unit)
            || takes_duration && is_span(number) && is_span(unit);
        is_split.then(|| format!("{option} {}", duration::format(span).replace(' ', "")))
    });
    { meant }.next()
}

/// Says how long a duration without a unit is that was perhaps meant as milliseconds: whole thousands, but not whole hours.
pub(crate) fn note_seconds(given: &ArgMatches, cli: &Command) {
    let Some((subcommand, matches)) = given.subcommand() else {
        return;
    };
    let options = cli.find_subcommand(subcommand).into_iter();
    for option in options.flat_map(Command::get_arguments) {
        let mut kinds = option.get_value_names().unwrap_or_default().iter();
        let given = matches.try_get_raw(option.get_id().as_str());
        let (true, Some(long), Ok(Some(given))) = (
            kinds.any(|kind| kind.as_str() == "DURATION"),
            option.get_long(),
            given,
        ) else {
            continue;
        };
        for number in given.filter_map(OsStr::to_str) {
            let seconds: u64 = number.parse().unwrap_or_default();
            if seconds > 0 && seconds.is_multiple_of(1000) && !seconds.is_multiple_of(3600) {
                let time = duration::format(Duration::from_secs(seconds));
                note!(
                    "leasehold: --{long} {number} is {time}: without a unit it is seconds; write {number}ms or {number}s"
                );
            }
        }
    }
}

/// The words as text, empty where they are not UTF-8.
fn texts(words: &[OsString]) -> Vec<&str> {
    let texts = words.iter().map(|word| word.to_str());
    texts.map(Option::unwrap_or_default).collect()
}

/// Whether a word is a number with its unit.
fn is_span(word: &str) -> bool {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
    unit.len() < word.len() && !unit.is_empty() && unit.chars().all(|c| c.is_ascii_lowercase())
}

/// Options without which a job runs each time.
const OF_JOBS: [&str; 5] = [
    "--anchor",
    "--at-least",
    "--no-record",
    "--retry-after",
    "--skip-ok",
];

/// Options that other programs also have.
const COMMON: [&str; 17] = [
    "--command",
    "--every",
    "--exclusive",
    "--health",
    "--keep",
    "--kill-after",
    "--label",
    "--lease",
    "--namespace",
    "--no-wait",
    "--numbered",
    "--password-file",
    "--replicas",
    "--shared",
    "--tenant",
    "--ttl",
    "--weight",
];

/// Options that nearly every program has, and those that the parser requires before COMMAND.
const NEVER_MISPLACED: [&str; 4] = ["--key", "--quiet", "--value", "--verbose"];

/// Warns of long options of this program behind the first word of a command: they are arguments of the command. Those that
/// hardly another program has, or that have a value of this one, are printed always; others only to a person. `--` before the
/// command says that they are meant. Behind it, only options of a job are printed that the job does not have: it would run
/// each time. An option that this subcommand does not take, such as `--every` of `elect`, is one of the command.
pub(crate) fn warn_of_options(command: &[OsString], cli: &Command) {
    let words = texts(command);
    let is_nested = |word: &&str| Path::new(word).file_name() == Some(OsStr::new("leasehold"));
    if words.iter().any(is_nested) {
        return;
    }
    let option_at = |at: usize| words[at].split('=').next().unwrap_or_default();
    let has_value = |at: usize, is_valid: fn(&str) -> bool| {
        let value = match words[at].split_once('=') {
            Some((_, value)) => Some(value),
            None => words.get(at + 1).copied(),
        };
        value.is_some_and(is_valid)
    };
    let is_duration = |text: &str| duration::parse(text).is_ok();
    let is_of_job = |at: usize| match option_at(at) {
        "--every" => has_value(at, is_duration),
        option => OF_JOBS.contains(&option),
    };
    let is_ours = |at: usize| match option_at(at) {
        "--every" | "--ttl" | "--wait" => has_value(at, is_duration),
        "--store" => has_value(at, |url| redacted_url(url).is_ok()),
        option => !COMMON.contains(&option) && !NEVER_MISPLACED.contains(&option),
    };
    let is_person = io::stderr().is_terminal();
    let arguments: Vec<_> = env::args_os().collect();
    let subcommand = self::command(&arguments, cli).and_then(|name| cli.find_subcommand(name));
    let takes = |option: &str| {
        let long = option.strip_prefix("--");
        let own = subcommand.into_iter().flat_map(Command::get_arguments);
        let mut known = cli.get_arguments().chain(own);
        long.is_some() && known.any(|known| known.get_long() == long)
    };
    let escape = arguments.iter().position(|argument| argument == "--");
    let own = texts(&arguments[..escape.unwrap_or_default()]);
    let is_given = |option: &str| own.iter().any(|own| own.split('=').next() == Some(option));
    let is_meant = |at: usize| match escape {
        _ if !takes(option_at(at)) => true,
        Some(_) => !is_of_job(at) || is_given(option_at(at)),
        None => !(is_ours(at) || is_person && COMMON.contains(&option_at(at))),
    };
    if let (Some(at), Some(program)) = ((1..words.len()).find(|at| !is_meant(*at)), words.first()) {
        let option = option_at(at);
        let fix = match escape {
            Some(_) => "or the command by -c if that is meant",
            None => "or -- before COMMAND",
        };
        note!(
            "leasehold: {option} behind COMMAND is an argument of {program}, not of leasehold: write it before NAME, {fix}"
        );
    }
}

/// Keys that are not those of a version: of an unset variable, or of a version that changes.
const NO_VERSIONS: [&str; 5] = ["latest", "none", "null", "undefined", "v"];

/// Characters before a variable in a name or a key. At the end, the variable is perhaps unset.
const SEPARATORS: [char; 3] = ['-', '_', '.'];

/// Says that a variable in a name is perhaps unset.
pub(crate) fn note_name(name: &str) {
    if name.ends_with(SEPARATORS) {
        note!("leasehold: {name} is the name of the lock: is a variable at its end unset?");
    }
}

/// Says that a key is perhaps that of several versions.
pub(crate) fn note_key(name: &str, key: &str) {
    if key.ends_with(SEPARATORS) || NO_VERSIONS.contains(&&*key.to_ascii_lowercase()) {
        note!(
            "leasehold: {name}: the key is {key:?}: the next release with this key is not run; is a variable unset?"
        );
    }
}

/// Says that a name is not a pattern.
pub(crate) fn note_pattern(name: &str) {
    if name.contains('*') {
        note!("leasehold: {name} is the name of one lock: * does not stand for other characters");
    }
}

/// The command of this program that the arguments name first.
pub(crate) fn command<'a>(arguments: &'a [OsString], cli: &Command) -> Option<&'a str> {
    let words = arguments.iter().skip(1).filter_map(|word| word.to_str());
    let mut commands = words.filter(|word| cli.find_subcommand(word).is_some());
    commands.next()
}

/// Whether an option has a name, such as `-w` or `--wait`.
pub(crate) fn is_named(known: &Arg, name: &str) -> bool {
    let short = known.get_short().map(|short| format!("-{short}"));
    let long = known.get_long().map(|long| format!("--{long}"));
    short.as_deref() == Some(name) || long.as_deref() == Some(name)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    /// The name of an option that no longer exists would have no effect.
    #[test]
    fn the_options_in_the_lists_exist() {
        let cli = Cli::command();
        let commands = ["run", "once", "elect"].map(|name| cli.find_subcommand(name).unwrap());
        for option in OF_JOBS.iter().chain(&COMMON).chain(&NEVER_MISPLACED) {
            let own = commands.into_iter().flat_map(Command::get_arguments);
            let mut known = cli.get_arguments().chain(own);
            assert!(known.any(|known| is_named(known, option)), "{option}");
        }
    }
}
