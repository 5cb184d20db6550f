//! The program of a command, as the client info and the record of a job name it.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::shell;

/// The file name of the program and, behind an interpreter, that of its script: two scripts are two programs.
pub(super) fn name(command: &[OsString]) -> String {
    let Some((program, arguments)) = command.split_first() else {
        return String::new();
    };
    let program = file_name(program);
    let script = arguments
        .iter()
        .find(|it| !it.as_encoded_bytes().starts_with(b"-"));
    match script {
        // The text of -c may have a password.
        Some(script) if shell::is_interpreter(&program) && Path::new(script).is_file() => {
            format!("{program} {}", file_name(script))
        }
        _ => program,
    }
}

fn file_name(path: &OsStr) -> String {
    let name = Path::new(path).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_belongs_to_the_program() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        for (command, expected) in [
            (&["/usr/bin/rsync", "-a", script][..], "rsync"),
            (&["python3.11", script], "python3.11 Cargo.toml"),
            (&["/bin/sh", "-eu", script, "x"], "sh Cargo.toml"),
            (&["bash", "-c", "password=secret true"], "bash"),
            (&["node"], "node"),
            (&[], ""),
        ] {
            let command: Vec<_> = command.iter().map(OsString::from).collect();
            assert_eq!(name(&command), expected);
        }
    }
}
