//! Checks in a process of their own, beside the tests.

use std::env;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::nice;

use crate::tools::{OwnedChild, target};

/// The lowest priority: the checks compute while the tests wait.
const NICENESS: i32 = 19;

/// Checks that run in the background.
#[derive(Debug)]
pub(crate) struct BackgroundChecks {
    process: OwnedChild,
    log: PathBuf,
}

impl BackgroundChecks {
    /// Starts the checks of a task. Their output goes to a file, so that it does not mix with that of the tests.
    pub(crate) fn start(task: &str) -> Result<Self, String> {
        let log = target().join("checks.log");
        let start = || {
            let output = File::create(&log)?;
            Command::new(env::current_exe()?)
                .arg(task)
                .stdin(Stdio::null())
                .stderr(output.try_clone()?)
                .stdout(output)
                .spawn()
        };
        match start() {
            Ok(process) => Ok(Self {
                process: OwnedChild(process),
                log,
            }),
            Err(error) => Err(format!("the checks could not be started: {error}")),
        }
    }

    /// Waits for the end of the checks, and prints their output.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        let status = self.process.0.wait().map_err(|error| error.to_string())?;
        let output = fs::read(&self.log).map_err(|error| error.to_string())?;
        println!("{}", String::from_utf8_lossy(&output));
        match status.success() {
            true => Ok(()),
            false => Err(format!("the checks ended with {status}")),
        }
    }
}

/// Gives this process and its children the lowest priority.
pub(crate) fn lower_priority() {
    if let Err(error) = nice(NICENESS) {
        println!("WARNING: the checks compete with the tests: {error}");
    }
}
