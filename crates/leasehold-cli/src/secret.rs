//! Secrets from files and from the environment.

use std::env;
use std::fs;
use std::path::Path;

use crate::exit::Failure;

/// The secret in a variable.
pub(crate) fn in_environment(variable: &str) -> Result<Option<String>, Failure> {
    match env::var(variable) {
        Ok(secret) => Ok(Some(secret).filter(|secret| !secret.is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => {
            Err(Failure::usage(format!("{variable} is not UTF-8")))
        }
    }
}

/// The first line of a file, which contains a secret of this kind.
pub(crate) fn first_line(kind: &str, file: &Path) -> Result<String, Failure> {
    let path = file.display();
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::own(format!("the {kind} {path} cannot be read"), error))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(Failure::usage(format!("the {kind} {path} is empty"))),
    }
}
