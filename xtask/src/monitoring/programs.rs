//! Programs that the check starts, and what it waits for.

use std::fs::File;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::tools::OwnedChild;

/// How long a state may take to appear.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Starts a program whose output goes to a log, and waits until it is ready.
pub(super) fn start(
    command: &mut Command,
    directory: &Path,
    log: &str,
    ready: impl Fn() -> bool,
) -> Result<OwnedChild, String> {
    let mut spawn = || {
        let log = File::create(directory.join(format!("{log}.log")))?;
        let command = command.current_dir(directory).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log).spawn()
    };
    let child = spawn().map_err(|error: std::io::Error| format!("{log}: {error}"))?;
    let mut child = OwnedChild(child);
    eventually(log, || match child.0.try_wait() {
        Ok(None) => Ok(ready()),
        ended => Err(format!("{log} has ended: {ended:?}")),
    })?;
    Ok(child)
}

pub(super) fn listens(address: &str) -> bool {
    TcpStream::connect(address).is_ok()
}

/// Waits until something is true.
pub(super) fn eventually(
    what: &str,
    mut is_true: impl FnMut() -> Result<bool, String>,
) -> Result<(), String> {
    let start = Instant::now();
    while !is_true()? {
        if start.elapsed() > TIMEOUT {
            return Err(format!("{what}: not after {TIMEOUT:?}"));
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
