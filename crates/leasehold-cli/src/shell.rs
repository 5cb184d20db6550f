//! Words as a shell reads and writes them, and the programs that it finds.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Whether a word needs no quotes.
pub(crate) fn is_plain(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    !word.is_empty() && word.chars().all(is_plain)
}

/// A word in quotes, if it needs them.
pub(crate) fn quote(word: &str) -> String {
    match is_plain(word) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Programs that run the script which their first argument names. A version may follow.
const INTERPRETERS: [&str; 13] = [
    "ash", "bash", "bun", "dash", "fish", "ksh", "node", "perl", "php", "python", "ruby", "sh",
    "zsh",
];

/// Programs that start the command which their arguments name.
const STARTERS: [&str; 14] = [
    "chronic",
    "chrt",
    "doas",
    "env",
    "flock",
    "ionice",
    "nice",
    "nohup",
    "setsid",
    "sudo",
    "systemd-run",
    "time",
    "timeout",
    "xargs",
];

/// Whether a program runs the script which its first argument names.
pub(crate) fn is_interpreter(program: &str) -> bool {
    let unversioned = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&unversioned)
}

/// Whether a program starts the command which its arguments name.
pub(crate) fn is_starter(program: &str) -> bool {
    STARTERS.contains(&program)
}

/// Whether a program, perhaps with its path, starts others.
pub(crate) fn starts_others(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    is_interpreter(name) || is_starter(name)
}

/// The first part of a text that a shell would have replaced: `$NAME`, `${NAME}`, `$(COMMAND)` or a command in
/// backquotes.
pub(crate) fn not_replaced(text: &str) -> Option<&str> {
    text.match_indices(['$', '`']).find_map(|(at, mark)| {
        let (part, rest) = (&text[at..], &text[at + 1..]);
        let is_of_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
        let length = match rest.chars().next()? {
            _ if mark == "`" => rest.find('`')? + 1,
            '{' => rest.find('}')? + 1,
            '(' => rest.find(')')? + 1,
            first if is_of_name(first) && !first.is_ascii_digit() => {
                rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())
            }
            _ => return None,
        };
        Some(&part[..=length])
    })
}

/// The existing file that a system call would execute.
pub(crate) fn find(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if program.as_encoded_bytes().contains(&b'/') {
        return path.exists().then(|| path.to_owned());
    }
    let directories = env::var_os("PATH")?;
    let mut files = env::split_paths(&directories).map(|directory| directory.join(path));
    files.find(|file| !program.is_empty() && file.is_file())
}

/// Whether a system call would execute a file for this word.
pub(crate) fn is_program(word: &OsStr) -> bool {
    let file = find(word).and_then(|file| file.metadata().ok());
    file.is_some_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// The words of the last command in a line of a shell, with their positions in the line. The last word is the one at the
/// cursor, and may be empty.
pub(crate) fn words(line: &str) -> Vec<(usize, String)> {
    let mut words = vec![(0, String::new())];
    let mut quote = None;
    let mut letters = line.char_indices();
    while let Some((at, letter)) = letters.next() {
        let last = words.len() - 1;
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(mark), letter) if mark == letter => quote = None,
            (None | Some('"'), '\\') => words[last].1.extend(letters.next().map(|(_, it)| it)),
            (None, ';' | '|' | '&' | '\n') => words = vec![(at + 1, String::new())],
            (None, letter) if letter.is_whitespace() => {
                let next = at + letter.len_utf8();
                match words[last].1.is_empty() {
                    true => words[last].0 = next,
                    false => words.push((next, String::new())),
                }
            }
            (_, letter) => words[last].1.push(letter),
        }
    }
    words
}
