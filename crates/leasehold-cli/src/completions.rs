//! `leasehold completions`, and the names of locks for its scripts.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _};
use clap_complete::Shell;
use leasehold::Client;

use crate::args::{Cli, CompletionsArgs, StoreArgs};
use crate::connect;
use crate::exit::Failure;
use crate::output;
use crate::shell;

/// The hidden subcommand that the scripts call for names.
const NAMES: &str = "__names";

/// How long the store may take: the user waits at a prompt.
const STORE_TIMEOUT: Duration = Duration::from_millis(300);

/// The longest command line that is completed.
const LINE_MAX: u64 = 64 * 1024;

/// Stands for the word at the cursor. It is no name of a lock.
const CURSOR: &str = "\u{1}";

pub(crate) fn print(args: &CompletionsArgs) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "leasehold", &mut script);
    let script = with_names(args.shell, &String::from_utf8_lossy(&script));
    output::print_bytes(script.as_bytes())?;
    Ok(0)
}

/// The script, with the names of locks where the shell can call a program for them.
fn with_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}\n{}", include_str!("completions/names.bash")),
        Shell::Fish => format!("{script}\n{}", include_str!("completions/names.fish")),
        Shell::Zsh => {
            let mut lines: Vec<_> = script.lines().map(str::to_owned).collect();
            for line in &mut lines {
                if line.starts_with("':name -- ") {
                    *line = line.replace(":_default'", ":_leasehold_names'");
                }
            }
            // The first line names the program. The last ones call the function.
            lines.insert(1, include_str!("completions/names.zsh").to_owned());
            lines.join("\n") + "\n"
        }
        _ => script.to_owned(),
    }
}

/// Completes the name of a lock, if this process was started for that: prints the held locks whose names begin with
/// the last word of the command line on stdin. Exits with 1 if that word is not the name of a lock. Prints no errors,
/// because the user is at a prompt.
pub(crate) fn names() -> Option<u8> {
    if env::args_os().nth(1)? != NAMES {
        return None;
    }
    let mut line = String::new();
    let read = io::stdin().take(LINE_MAX).read_to_string(&mut line);
    let line = line.strip_suffix('\n').unwrap_or(&line);
    let words = shell::words(line);
    let Some((store, prefix)) = read.ok().and_then(|_| name_at_cursor(&words)) else {
        return Some(1);
    };
    let _ = print_names(&store, prefix);
    Some(0)
}

/// The store and the begin of the name, if the last word is the name of a lock.
fn name_at_cursor(words: &[String]) -> Option<(StoreArgs, &str)> {
    let is_program = |word: &String| Path::new(word).file_name() == Some(OsStr::new("leasehold"));
    let program = words.iter().position(is_program)?;
    let (last, before) = words.get(program..)?.split_last()?;
    if before.is_empty() || last.starts_with('-') {
        return None;
    }
    let line = before.iter().map(String::as_str).chain([CURSOR]);
    let parser = Cli::command().ignore_errors(true);
    let matches = parser.try_get_matches_from(line).ok()?;
    let (command, matches) = matches.subcommand()?;
    let has_name = matches!(command, "run" | "once" | "show" | "release");
    if !has_name || matches.get_one::<String>("name")? != CURSOR {
        return None;
    }
    let store = StoreArgs::from_arg_matches(matches).ok()?;
    Some((store, last))
}

fn print_names(store: &StoreArgs, prefix: &str) -> Option<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().ok()?;
    let names = runtime.block_on(async {
        let names = tokio::time::timeout(STORE_TIMEOUT, held_names(store));
        names.await.ok().flatten()
    });
    // The look-up of a host may still be under way.
    runtime.shutdown_background();
    for name in completed(&names?, prefix) {
        output::print_line(name).ok()?;
    }
    Some(())
}

/// The names that complete a word. Another process chooses the name of its lock, and a shell may run a part of a name
/// that needs quotes.
fn completed<'a>(names: &'a [String], prefix: &str) -> Vec<&'a str> {
    let names = names.iter().map(String::as_str);
    names
        .filter(|name| name.starts_with(prefix) && shell::is_plain(name))
        .collect()
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
    fn a_name_that_a_shell_would_interpret_is_not_completed() {
        let names = [
            "$(id)",
            "a b",
            "a\"$(id)\"",
            "a$x",
            "a'b",
            "a/b:c@d",
            "a;id",
            "a\\b",
            "a`id`",
            "a~",
            "a\u{e9}",
            "ab",
        ];
        let names = names.map(str::to_owned);
        assert_eq!(completed(&names, ""), ["a/b:c@d", "ab"]);
        assert_eq!(completed(&names, "ab"), ["ab"]);
        assert!(completed(&names, "$").is_empty());
    }

    #[test]
    fn the_name_of_a_lock_is_completed_where_it_stands() {
        let prefix = |line: &str| {
            let words = shell::words(line);
            name_at_cursor(&words).map(|(_, prefix)| prefix.to_owned())
        };
        for (line, expected) in [
            ("leasehold show ", Some("")),
            ("/usr/bin/leasehold release --force or", Some("or")),
            ("sudo leasehold run -n --wait 5 d", Some("d")),
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
        let words = shell::words("leasehold --namespace a show --store memory: x");
        let (store, _) = name_at_cursor(&words).unwrap();
        assert_eq!(store.store.as_deref(), Some("memory:"));
        assert_eq!(store.namespace, "a");
    }
}
