//! The program of a command, as the client info and the record of a job name it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use leasehold::Completion;
use ring::digest::{SHA256, digest};

use crate::{output, shell};

/// The program of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The file name of the program and, behind an interpreter, that of its script: two scripts are two programs.
    pub(crate) name: String,
    /// The path of that program or script, or of the one that others such as `timeout` start; only its name if the user
    /// leaves it to the search path. The words behind an interpreter without a script. `None`: it is not known.
    pub(crate) path: Option<String>,
    /// The first argument behind it, if that is perhaps the name of a task, as in `manage.py report`.
    pub(crate) task: Option<String>,
}

impl Program {
    pub(crate) fn of(command: &[OsString]) -> Self {
        let (path, arguments) = path(command).unzip();
        Self {
            name: name(command),
            path: path.map(|path| path.to_string_lossy().into_owned()),
            task: arguments.and_then(task),
        }
    }

    /// The path and the task, as the record of a job names the program.
    pub(super) fn recorded_path(&self) -> Option<String> {
        let task = output::optional(" ", self.task.as_ref());
        self.path.as_ref().map(|path| format!("{path}{task}"))
    }

    /// The recorded program and this one, if they differ. A record without a task is that of each task. Other arguments are
    /// not compared: a date is another one on each day.
    pub(super) fn unless_recorded(&self, run: &Completion) -> Option<(String, String)> {
        let names = || (run.program.clone(), self.name.clone());
        let (Some(recorded), Some(path), Some(with_task)) =
            (&run.program_path, &self.path, self.recorded_path())
        else {
            return (run.program != self.name).then(names);
        };
        if is_same(recorded, path) || is_same(recorded, &with_task) {
            return None;
        }
        // The name of `timeout` does not say what it starts.
        let starts_others = [&run.program, &self.name].map(|name| shell::is_starter(name));
        Some(
            match run.program == self.name || starts_others.contains(&true) {
                true => in_words(recorded, &with_task),
                false => names(),
            },
        )
    }
}

/// A recorded program and this one, with words for their texts: hashes say nothing to people, and a text may have a
/// password.
fn in_words(recorded: &str, this: &str) -> (String, String) {
    let recorded_text = match hash_in(recorded) == hash_in(this) {
        true => "(this text)",
        false => "(another text)",
    };
    let with_text = |program: &str, text: &str| match hash_in(program) {
        Some(hash) => program.replacen(hash, text, 1),
        None => program.to_owned(),
    };
    (
        with_text(recorded, recorded_text),
        with_text(this, "(this text)"),
    )
}

/// The hash of a text, as it stands in a recorded program.
fn hash_in(program: &str) -> Option<&str> {
    let mut words = program.split(' ');
    words.find(|word| word.starts_with('#') && word.len() == "#01234567".len())
}

/// Whether two paths are those of one program. The search path finds a name in any directory.
fn is_same(recorded: &str, path: &str) -> bool {
    match recorded.contains('/') && path.contains('/') {
        true => recorded == path,
        false => Path::new(recorded).file_name() == Path::new(path).file_name(),
    }
}

fn name(command: &[OsString]) -> String {
    let Some((program, arguments)) = command.split_first() else {
        return String::new();
    };
    let program = file_name(program);
    match script(&program, arguments) {
        Some((script, _)) => format!("{program} {}", file_name(script)),
        None => program,
    }
}

/// The path, and the arguments behind it.
fn path(command: &[OsString]) -> Option<(PathBuf, &[OsString])> {
    let (program, arguments) = command.split_first()?;
    let name = file_name(program);
    if shell::is_interpreter(&name) {
        match script(&name, arguments) {
            Some((script, rest)) => Some((absolute(script), rest)),
            None => inline(&name, arguments),
        }
    } else if shell::is_starter(&name) {
        // Not a number, a variable or a lock file.
        let started = arguments.iter().position(|it| shell::is_program(it))?;
        path(&arguments[started..])
    } else if program.as_encoded_bytes().contains(&b'/') {
        Some((absolute(program), arguments))
    } else {
        Some((program.into(), arguments))
    }
}

/// The first argument of a program, if it is perhaps the name of a task: lower-case letters, as in `manage.py report`. Other
/// characters are those of dates, names of days and secrets.
fn task(arguments: &[OsString]) -> Option<String> {
    let word = arguments.first()?.to_str()?;
    let is_of_name = |c: char| c.is_ascii_lowercase() || "_-".contains(c);
    let is_name = !word.starts_with('-') && !word.is_empty() && word.chars().all(is_of_name);
    is_name.then(|| word.to_owned())
}

/// The script of an interpreter, and the arguments behind it.
fn script<'a>(program: &str, arguments: &'a [OsString]) -> Option<(&'a OsString, &'a [OsString])> {
    let is_word = |it: &OsString| !it.as_encoded_bytes().starts_with(b"-");
    let at = arguments.iter().position(is_word)?;
    let (script, rest) = arguments[at..].split_first()?;
    (shell::is_interpreter(program) && Path::new(script).is_file()).then_some((script, rest))
}

/// The words by which an interpreter runs a text or a module. A text may have a password, so a part of its hash stands for
/// it. Also the arguments behind them.
fn inline<'a>(program: &str, arguments: &'a [OsString]) -> Option<(PathBuf, &'a [OsString])> {
    let option = |letters: &[u8]| {
        let mut options = arguments.iter().enumerate();
        options.find_map(|(at, option)| match option.as_encoded_bytes() {
            [b'-', b'-', ..] => None,
            [b'-', .., letter] if letters.contains(letter) => {
                let (text, rest) = arguments[at + 1..].split_first()?;
                Some((*letter, text, rest))
            }
            _ => None,
        })
    };
    // -e of a shell has no text behind it.
    let (letter, text, rest) = option(b"cm").or_else(|| option(b"er"))?;
    let text = match letter {
        b'm' => text.to_string_lossy().into_owned(),
        _ => {
            let hash = digest(&SHA256, text.as_encoded_bytes());
            let part = hash.as_ref().first_chunk().copied();
            format!("#{:08x}", part.map_or(0, u32::from_be_bytes))
        }
    };
    let path = format!("{program} -{} {text}", char::from(letter));
    Some((path.into(), rest))
}

fn file_name(path: &OsStr) -> String {
    let name = Path::new(path).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The absolute path, without `.`. A link, such as the current one of several releases, is not followed.
fn absolute(path: &OsStr) -> PathBuf {
    let same = |directory: &PathBuf| {
        let [shown, real] = [directory.as_path(), Path::new(".")].map(|it| it.metadata().ok());
        let id = |it: Option<std::fs::Metadata>| it.map(|it| (it.dev(), it.ino()));
        directory.is_absolute() && id(shown) == id(real)
    };
    let shown = env::var_os("PWD").map(PathBuf::from).filter(same);
    let joined = shown.map_or_else(|| path.into(), |directory| directory.join(path));
    std::path::absolute(&joined).unwrap_or(joined)
}
