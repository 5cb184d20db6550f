//! A small process that outlives the runner if the runner is killed, and then ends the command.
//!
//! The parent-death signal reaches the command's first process only; a shell's children would work
//! on without the lock. The guardian reads from a pipe whose other end only the runner has. If the
//! pipe ends without a word, the runner was killed: every process that carries the lease in its
//! environment is killed.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::LeaseId;
use rustix::process::Signal;

use super::processes::Family;

/// The hidden command that starts it.
pub(crate) const COMMAND: &str = "__guard";

/// What the runner says when all is well.
const DISMISSED: u8 = b'.';

/// How long it keeps looking for processes to kill.
const PATIENCE: Duration = Duration::from_secs(10);

/// The runner's end of the pipe.
pub(crate) struct Guardian {
    process: Child,
    pipe: ChildStdin,
}

impl Guardian {
    /// Starts one. `None` if that is not possible: the parent-death signal remains.
    pub(crate) fn start(lease: LeaseId) -> Option<Self> {
        let started = std::env::current_exe().and_then(|program| {
            let mut process = Command::new(program)
                .arg(COMMAND)
                .env_clear()
                .current_dir("/")
                // Out of the reach of the terminal's signals.
                .process_group(0)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            let mut pipe = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
            writeln!(pipe, "{lease}")?;
            Ok(Self { process, pipe })
        });
        started
            .inspect_err(|error| tracing::warn!(%error, "no guardian for the command"))
            .ok()
    }

    /// Sends it home.
    pub(crate) fn dismiss(mut self) {
        // If it is gone already, there is nobody to tell.
        let _ = self.pipe.write_all(&[DISMISSED]);
        drop(self.pipe);
        let _ = self.process.wait();
    }
}

/// The guardian's own life.
pub(crate) fn guard() -> u8 {
    let mut words = Vec::new();
    let read = io::stdin().read_to_end(&mut words);
    if read.is_err() || words.last() == Some(&DISMISSED) {
        return 0;
    }
    let Ok(lease) = String::from_utf8(words) else {
        return 0;
    };
    let family = Family {
        child: None,
        own_group: false,
        lease: lease.trim().to_owned(),
    };
    if family.lease.is_empty() {
        return 0;
    }
    // A process may start another while we look: until a look finds none.
    let begun = Instant::now();
    while family.signal_all(Signal::KILL) > 0 && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    0
}
