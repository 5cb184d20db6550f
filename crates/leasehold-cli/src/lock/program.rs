//! The program of a command, as the client info and the record of a job name it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use leasehold::Completion;
use ring::digest::{SHA256, digest};

use crate::shell;

/// The program of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The file name of the program and, behind an interpreter, that of its script: two scripts are two programs.
    pub(crate) name: String,
    /// The path of that program or script, or of the one that others such as `timeout` start; only its name if the user
    /// leaves it to the search path. The words behind an interpreter without a script. `None`: it is not known.
    pub(crate) path: Option<String>,
}

impl Program {
    pub(crate) fn of(command: &[OsString]) -> Self {
        let path = path(command).map(|path| path.to_string_lossy().into_owned());
        Self {
            name: name(command),
            path,
        }
    }

    /// The recorded program and this one, if they differ. Arguments are not compared: a date is another one on each day.
    pub(super) fn unless_recorded<'a>(&'a self, run: &'a Completion) -> Option<(&'a str, &'a str)> {
        if run.program != self.name {
            return Some((run.program.as_str(), self.name.as_str()));
        }
        let (recorded, path) = (run.program_path.as_deref()?, self.path.as_deref()?);
        let is_same = match recorded.contains('/') && path.contains('/') {
            true => recorded == path,
            false => Path::new(recorded).file_name() == Path::new(path).file_name(),
        };
        (!is_same).then_some((recorded, path))
    }
}

fn name(command: &[OsString]) -> String {
    let Some((program, arguments)) = command.split_first() else {
        return String::new();
    };
    let program = file_name(program);
    match script(&program, arguments) {
        Some(script) => format!("{program} {}", file_name(script)),
        None => program,
    }
}

fn path(command: &[OsString]) -> Option<PathBuf> {
    let (program, arguments) = command.split_first()?;
    let name = file_name(program);
    if shell::is_interpreter(&name) {
        match script(&name, arguments) {
            Some(script) => Some(absolute(script)),
            None => inline(&name, arguments),
        }
    } else if shell::is_starter(&name) {
        // Not a number, a variable or a lock file.
        let started = arguments.iter().position(|it| shell::is_program(it))?;
        path(&arguments[started..])
    } else if program.as_encoded_bytes().contains(&b'/') {
        Some(absolute(program))
    } else {
        Some(program.into())
    }
}

/// The script of an interpreter.
fn script<'a>(program: &str, arguments: &'a [OsString]) -> Option<&'a OsString> {
    let mut words = arguments.iter();
    let script = words.find(|it| !it.as_encoded_bytes().starts_with(b"-"))?;
    (shell::is_interpreter(program) && Path::new(script).is_file()).then_some(script)
}

/// The words by which an interpreter runs a text or a module. A text may have a password, so a part of its hash stands for
/// it.
fn inline(program: &str, arguments: &[OsString]) -> Option<PathBuf> {
    let option = |letters: &[u8]| {
        let mut pairs = arguments.windows(2);
        pairs.find_map(|words| match words[0].as_encoded_bytes() {
            [b'-', b'-', ..] => None,
            [b'-', .., letter] if letters.contains(letter) => Some((*letter, &words[1])),
            _ => None,
        })
    };
    // -e of a shell has no text behind it.
    let (letter, text) = option(b"cm").or_else(|| option(b"er"))?;
    let text = match letter {
        b'm' => text.to_string_lossy().into_owned(),
        _ => {
            let hash = digest(&SHA256, text.as_encoded_bytes());
            let part = hash.as_ref().first_chunk().copied();
            format!("#{:08x}", part.map_or(0, u32::from_be_bytes))
        }
    };
    Some(format!("{program} -{} {text}", char::from(letter)).into())
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
