//! `leasehold completions`, and what its scripts query: the names of locks, and where the command of a run begins.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use clap::{
    Arg, ArgMatches, Args as _, Command, CommandFactory as _, FromArgMatches as _, ValueHint,
};
use clap_complete::Shell;
use leasehold::Client;

use crate::args::{Cli, CompletionsArgs, StoreArgs};
use crate::connect;
use crate::exit::{self, Failure};
use crate::output;
use crate::shell;

/// The hidden subcommands that the scripts call.
const NAMES: &str = "__names";
const COMMAND: &str = "__command";

/// How long the store may take: the user waits at a prompt.
const STORE_TIMEOUT: Duration = Duration::from_millis(300);

/// The longest command line that is completed.
const LINE_MAX: u64 = 64 * 1024;

/// Stands for the word at the cursor. No lock can have this name.
const CURSOR: &str = "\u{1}";

pub(crate) fn print(args: &CompletionsArgs) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition(), "leasehold", &mut script);
    let script = with_names(args.shell, &String::from_utf8_lossy(&script));
    output::print_bytes(script.as_bytes())?;
    Ok(0)
}

/// The command line as it is completed: without hidden options, and without names of files for values of another kind.
fn definition() -> Command {
    let definition = Cli::command().mut_args(|option| option.global(false));
    let definition = definition.mut_subcommands(|subcommand| {
        let is_hidden = |option: &Arg| option.is_hide_set();
        let has_hidden = subcommand.get_arguments().any(is_hidden);
        let visible = match has_hidden {
            true => Command::new(subcommand.get_name().to_owned())
                .about(subcommand.get_about().cloned().unwrap_or_default())
                .args(subcommand.get_arguments().filter(|it| !is_hidden(it))),
            false => StoreArgs::augment_args(subcommand),
        };
        visible.mut_args(with_hint)
    });
    definition.mut_args(with_hint)
}

/// Without a hint, the shells complete the value of an option as the name of a file.
fn with_hint(option: Arg) -> Arg {
    let is_text = option.get_action().takes_values()
        && option.get_value_hint() == ValueHint::Unknown
        && option.get_possible_values().is_empty();
    match is_text && !option.is_positional() {
        true => option.value_hint(ValueHint::Other),
        false => option,
    }
}

/// The script, with the names of locks where the shell can call a program for them.
fn with_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}\n{}", include_str!("completions/names.bash")),
        Shell::Fish => format!("{script}\n{}", include_str!("completions/names.fish")),
        Shell::Zsh => {
            let mut lines: Vec<_> = script.lines().map(str::to_owned).collect();
            for line in &mut lines {
                if line.starts_with("':name -- ") || line.starts_with("'*::name -- ") {
                    *line = line.replace(":_default'", ":_leasehold_names'");
                }
                // No options of this program behind the first word of a command.
                if line.starts_with("'*::command -- ") {
                    *line = line.replacen("'*::", "'(-)*::", 1);
                }
            }
            // The first line names the program. The last ones call the function.
            lines.insert(1, include_str!("completions/names.zsh").to_owned());
            lines.join("\n") + "\n"
        }
        _ => script.to_owned(),
    }
}

/// Replies to a script of a shell, if this process was started for that. The command line up to the cursor is on stdin.
/// Prints no errors, because the user is at a prompt. The exit code is 1 if nothing of that kind is at the cursor.
///
/// `__names` prints the held locks whose names begin with the word at the cursor. `__command` prints the command of a
/// run, up to the cursor.
pub(crate) fn reply() -> Option<u8> {
    let query = env::args_os().nth(1)?;
    if query != NAMES && query != COMMAND {
        return None;
    }
    let mut line = String::new();
    let read = io::stdin().take(LINE_MAX).read_to_string(&mut line);
    let line = line.strip_suffix('\n').unwrap_or(&line);
    let found = read.ok().and_then(|_| match query == NAMES {
        true => {
            let (store, given, prefix) = name_at_cursor(line)?;
            let _ = print_names(&store, &given, &prefix);
            Some(())
        }
        false => output::print_line(command_at_cursor(line)?).ok(),
    });
    Some(u8::from(found.is_none()))
}

/// The store, the names before the cursor, and the begin of the name at the cursor, if the last word is the name of a
/// lock.
fn name_at_cursor(line: &str) -> Option<(StoreArgs, Vec<String>, String)> {
    let words = shell::words(line);
    let (matches, last) = parse(&words)?;
    let names = matches.try_get_many::<String>("name").ok()??;
    let mut given: Vec<_> = names.cloned().collect();
    if given.pop()? != CURSOR || last.starts_with('-') {
        return None;
    }
    let store = StoreArgs::from_arg_matches(&matches).ok()?;
    let store = store.resolved().ok()?;
    Some((store, given, last.to_owned()))
}

/// The command of a run, up to the cursor, if the last word is a part of it.
fn command_at_cursor(line: &str) -> Option<&str> {
    let words = shell::words(line);
    let (matches, last) = parse(&words)?;
    let mut command = matches.try_get_many::<OsString>("command").ok()??;
    let (length, end) = (command.len(), command.next_back()?);
    let before = words.iter().nth_back(1);
    let is_escaped = before.is_some_and(|(_, word)| word == "--");
    // As the first word, it is an option of this program.
    let is_option = length == 1 && last.starts_with('-') && !is_escaped;
    if end != CURSOR || is_option || matches.contains_id("shell_command") {
        return None;
    }
    let (begin, _) = words.get(words.len().checked_sub(length)?)?;
    line.get(*begin..)
}

/// Parses the arguments of a command of this program in the words of a line, whose last one is at the cursor. Also
/// returns that word.
fn parse(words: &[(usize, String)]) -> Option<(ArgMatches, &str)> {
    let mut names = words.iter().map(|(_, word)| Path::new(word).file_name());
    let program = names.position(|name| name == Some(OsStr::new("leasehold")))?;
    let ((_, last), before) = words.get(program..)?.split_last()?;
    if before.is_empty() {
        return None;
    }
    let line = before.iter().map(|(_, word)| word.as_str());
    let line = line.chain([CURSOR]);
    let parser = Cli::command().ignore_errors(true);
    let mut matches = parser.try_get_matches_from(line).ok()?;
    let (_, matches) = matches.remove_subcommand()?;
    Some((matches, last))
}

/// Prints the names that complete a word, without those that the line has already.
fn print_names(store: &StoreArgs, given: &[String], prefix: &str) -> Option<()> {
    let runtime = exit::start_runtime(tokio::runtime::Builder::new_current_thread()).ok()?;
    let names = runtime.block_on(async {
        let names = tokio::time::timeout(STORE_TIMEOUT, held_names(store));
        names.await.ok().flatten()
    });
    // The look-up of a host may still be under way.
    runtime.shutdown_background();
    for name in names? {
        // Another process chooses the name of its lock, and a shell may run a part of a name that needs quotes.
        if shell::is_plain(&name) && name.starts_with(prefix) && !given.contains(&name) {
            output::print_line(&name).ok()?;
        }
    }
    Some(())
}

/// The names of the held locks, sorted. Creates no file.
async fn held_names(store: &StoreArgs) -> Option<Vec<String>> {
    let url = connect::url(store).ok()?;
    if let Some(path) = url.strip_prefix("sqlite:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        Path::new(path).exists().then_some(())?;
    }
    let client = connect::connect(store, Client::builder()).await.ok()?;
    let locks = client.locks().await.ok()?;
    let mut names: Vec<_> = locks.into_iter().map(|info| info.name).collect();
    names.sort();
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_lock_is_completed_where_it_stands() {
        let prefix = |line: &str| name_at_cursor(line).map(|(_, _, prefix)| prefix);
        for (line, expected) in [
            ("leasehold show ", Some("")),
            ("/usr/bin/leasehold release --force or", Some("or")),
            ("sudo leasehold run -n --wait 5 d", Some("d")),
            ("leasehold hold -w 5 d", Some("d")),
            ("leasehold watch ", Some("")),
            ("leasehold watch a --json b", Some("b")),
            ("x | leasehold  show a", Some("a")),
            ("leasehold show \"b c", Some("b c")),
            (r"leasehold show b\ c\", Some("b c")),
            ("leasehold run -w", None),
            ("leasehold run -w ", None),
            ("leasehold run --label ", None),
            ("leasehold run job ", None),
            ("leasehold run job leasehold show ", None),
            ("leasehold show --no-such ", None),
            ("leasehold ls ", None),
            ("leasehold ", None),
            ("leasehold", None),
            ("show ", None),
        ] {
            assert_eq!(prefix(line).as_deref(), expected, "{line}");
        }
        let line = "leasehold --namespace a show --store memory: x";
        let (store, _, _) = name_at_cursor(line).unwrap();
        assert_eq!(store.store.as_deref(), Some("memory:"));
        assert_eq!(store.namespace, "a");
    }

    #[test]
    fn the_command_of_a_run_is_found_where_it_begins() {
        for (line, expected) in [
            ("leasehold run job ", Some("")),
            ("leasehold run job l", Some("l")),
            (
                "cd /; leasehold run -n --wait 5 'a b' -- ls -",
                Some("ls -"),
            ),
            (
                "leasehold run job --wait 5 find  \"x y",
                Some("find  \"x y"),
            ),
            ("leasehold run job leasehold show ", Some("leasehold show ")),
            ("leasehold run j\u{f6}b  ls ", Some("ls ")),
            (r#"leasehold run 'd "e' f\ g"#, Some(r"f\ g")),
            ("leasehold run job -", None),
            ("leasehold run job --wa", None),
            ("leasehold run job --wait ", None),
            ("leasehold run job -c true ", None),
            ("leasehold run ", None),
            ("leasehold show job ", None),
            ("leasehold ", None),
            ("", None),
        ] {
            assert_eq!(command_at_cursor(line), expected, "{line}");
        }
    }
}
