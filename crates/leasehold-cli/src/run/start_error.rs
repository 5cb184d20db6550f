//! Explanations of commands that did not start.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use clap::CommandFactory as _;

use crate::args::Cli;
use crate::exit::{self, Failure};
use crate::shell::{find, quote};
use crate::{hints, misplaced};

/// Commands that only a shell has.
const BUILTINS: [&str; 22] = [
    "alias", "bg", "cd", "eval", "exec", "exit", "export", "fg", "for", "if", "jobs", "pushd",
    "read", "set", "source", "trap", "ulimit", "umask", "unset", "until", "wait", "while",
];

/// The characters of a command line that a shell interprets.
const SHELL_SYNTAX: [char; 13] = [
    ' ', '\t', '\n', '&', '|', ';', '<', '>', '$', '`', '*', '(', '\'',
];

const NOT_PERMITTED: &str = "this user may not execute it; check the modes of the file and its directories, and whether \
                             it is on a mount with noexec";

/// How much of a script is read for its first line.
const FIRST_LINE_MAX: u64 = 256;

/// The failure of a command that the system could not start. `lock` is the name of its lock.
pub(super) fn explain(lock: &str, command: &[OsString], error: io::Error) -> Failure {
    let program = command.first().map(OsString::as_os_str).unwrap_or_default();
    let name = quote(&program.to_string_lossy());
    let explained = |why: &str| Failure::usage(format!("{name} cannot be run: {why}"));
    let (failure, code) = match (error.kind(), find(program)) {
        (io::ErrorKind::NotFound, file) => {
            let why = file.map(|file| missing_interpreter(&file));
            let why = why.unwrap_or_else(|| no_such_program(lock, command));
            (explained(&why), exit::NOT_FOUND)
        }
        (io::ErrorKind::PermissionDenied, file) => {
            let why = file.and_then(|file| not_executable(&file));
            let failure = explained(why.as_deref().unwrap_or(NOT_PERMITTED));
            (failure, exit::NOT_EXECUTABLE)
        }
        _ => {
            let failure = Failure::own(format!("{name} cannot be run"), error);
            (failure, exit::NOT_EXECUTABLE)
        }
    };
    failure.with_code(code)
}

/// A program that is in no directory of PATH, or at no such path.
fn no_such_program(lock: &str, command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let name = words.first().map_or("", |name| &**name);
    let through_shell = |line: &str| {
        let line = quote(line);
        format!("no shell is used; write leasehold {} -c {line}", usage())
    };
    if words.len() == 1 && name.contains(SHELL_SYNTAX) {
        return through_shell(name);
    }
    if BUILTINS.contains(&name) {
        let line = through_shell(&line_of(&words));
        return format!("it is a builtin of the shell, and {line}");
    }
    if is_assignment(name) {
        let line = line_of(&words);
        let usage = usage();
        return format!("it sets a variable; write leasehold {usage} env {line}");
    }
    if name.is_empty() {
        return "its name is empty; is a variable of your script unset?".to_owned();
    }
    if name.starts_with('-') {
        let option =
            hints::usage_of_option(name, &Cli::command()).unwrap_or_else(|| "[OPTIONS]".to_owned());
        let lock = quote(lock);
        return format!(
            "options of leasehold stand before NAME: leasehold run {option} {lock} COMMAND"
        );
    }
    if name.contains('/') {
        return "there is no such file; correct its path".to_owned();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let path = path.to_string_lossy();
    format!(
        "it is in no directory of PATH ({path}); write its path, or set PATH; {} is the name of the lock",
        quote(lock)
    )
}

/// The subcommand of this process with what stands before the command.
fn usage() -> &'static str {
    let arguments: Vec<_> = env::args_os().collect();
    match misplaced::command(&arguments, &Cli::command()) {
        Some("once") => "once NAME --key KEY",
        Some("elect") => "elect NAME --value TEXT",
        _ => "run NAME",
    }
}

/// An existing file that was not found: the program that would interpret it was not.
fn missing_interpreter(file: &Path) -> String {
    let begin = first_line(file).unwrap_or_default();
    let Some(line) = begin.strip_prefix("#!") else {
        return "its loader does not exist; the file was built for another system".to_owned();
    };
    let interpreter = line.split([' ', '\t', '\n']).find(|word| !word.is_empty());
    let interpreter = interpreter.unwrap_or_default();
    match interpreter.strip_suffix('\r') {
        Some(_) => "its first line ends with a carriage return, as on Windows; remove it, for example with dos2unix"
            .to_owned(),
        None => format!("the interpreter in its first line, {interpreter}, does not exist; install or correct it"),
    }
}

/// A file that this user may not execute.
fn not_executable(file: &Path) -> Option<String> {
    let metadata = fs::metadata(file).ok()?;
    if metadata.is_dir() {
        return Some("it is a directory".to_owned());
    }
    let executable = metadata.permissions().mode() & 0o111 != 0;
    let file = file.to_string_lossy();
    (!executable).then(|| format!("it is not executable; chmod +x {}", quote(&file)))
}

fn first_line(file: &Path) -> Option<String> {
    let mut begin = Vec::new();
    let file = File::open(file).ok()?;
    file.take(FIRST_LINE_MAX).read_to_end(&mut begin).ok()?;
    let line = begin.split_inclusive(|byte| *byte == b'\n').next();
    Some(String::from_utf8_lossy(line.unwrap_or_default()).into_owned())
}

/// Whether a shell would set a variable.
fn is_assignment(word: &str) -> bool {
    let (name, _) = word.split_once('=').unwrap_or_default();
    let is_letter = |c: char| c == '_' || c.is_ascii_alphanumeric();
    !name.is_empty()
        && name.chars().all(is_letter)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// The words as a line for a shell. Operators stay operators: they were quoted to reach us.
fn line_of(words: &[std::borrow::Cow<'_, str>]) -> String {
    let words = words.iter().map(|word| match &**word {
        "&&" | "||" | "|" | ";" | "&" => word.to_string(),
        word => quote(word),
    });
    words.collect::<Vec<_>>().join(" ")
}
