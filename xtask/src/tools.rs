//! Other programs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct OwnedChild(pub(crate) Child);

impl Drop for OwnedChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The directory of the workspace.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut above = here.ancestors();
    above
        .find(|directory| directory.join("Cargo.lock").is_file())
        .unwrap_or(here)
}

/// The directory of everything that cargo builds.
pub(crate) fn target() -> PathBuf {
    let directory = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target"));
    root().join(directory)
}

/// The cargo that runs this.
pub(crate) fn cargo() -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root());
    // Build scripts that read the variables of a package would run again for those of this program.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command
}

/// The cargo that runs this, with a line of arguments.
pub(crate) fn cargo_line(line: &str) -> Command {
    let mut command = cargo();
    command.args(line.split_whitespace());
    command
}

/// Runs a program to its end. It inherits the output of this one.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let line = line(command);
    println!("$ {line}");
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{line} ended with {status}")),
        Err(error) => Err(format!("{line} could not be started: {error}")),
    }
}

/// Runs a program and returns its output.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let line = line(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{line} could not be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let status = output.status;
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{line} ended with {status}: {}", stderr.trim()))
}

/// The file of a program in `PATH`.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name();
    let words = program.into_iter().chain(command.get_args());
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    words.join(" ")
}
