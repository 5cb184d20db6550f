//! Processes that a test starts: every wait for one has a deadline.

use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The time limit of a process to end, or to write a line. None takes so long.
pub(crate) const LINE_TIMEOUT: Duration = Duration::from_secs(300);

/// The user and group `nobody` of every Linux: PostgreSQL refuses to be run by root.
pub(crate) const NOBODY: u32 = 65534;
pub(crate) const AS_NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

/// Runs a command until its process has ended. If it does not end in time, it is killed.
pub trait RunToEnd {
    /// Runs it, and returns its output.
    fn run_to_end(&mut self) -> Output;
}

impl RunToEnd for Command {
    #[track_caller]
    fn run_to_end(&mut self) -> Output {
        let child = self.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        finish(child.unwrap())
    }
}

/// Waits until a process has ended, and returns its output.
#[track_caller]
pub fn finish(process: Child) -> Output {
    let pid = process.id();
    within_deadline(pid, move || process.wait_with_output().unwrap())
}

/// Waits for something that a process is about to do. If it does not, the process is killed.
#[track_caller]
pub fn within_deadline<T: Send + 'static>(
    pid: u32,
    wait: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, done) = mpsc::channel();
    thread::spawn(move || sender.send(wait()));
    match done.recv_timeout(LINE_TIMEOUT) {
        Ok(done) => done,
        Err(RecvTimeoutError::Timeout) => {
            kill("KILL", pid);
            panic!("process {pid} is not done after {LINE_TIMEOUT:?}");
        }
        Err(RecvTimeoutError::Disconnected) => panic!("process {pid} cannot be waited for"),
    }
}

/// Sends a signal to a process.
#[track_caller]
pub fn kill(signal: &str, pid: u32) {
    let pid = pid.to_string();
    let status = Command::new("kill").args(["-s", signal, &pid]).status();
    assert!(status.unwrap().success(), "kill -s {signal} {pid}");
}

/// The lines that a process writes.
#[derive(Debug)]
pub struct OutputLines(Receiver<String>);

impl OutputLines {
    /// Reads them on a thread of their own, until they end.
    #[must_use]
    pub fn read(output: impl Read + Send + 'static) -> Self {
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // A test that has ended reads no more.
            lines.for_each(|line| drop(sender.send(line)));
        });
        Self(lines)
    }

    /// The next line. `None`: there are no more.
    #[track_caller]
    pub fn next_line(&self) -> Option<String> {
        match self.0.recv_timeout(LINE_TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no line after {LINE_TIMEOUT:?}"),
        }
    }

    /// The rest of the next line that contains a prefix.
    #[track_caller]
    pub fn after(&self, prefix: &str) -> String {
        let rest = self.after_within(prefix, LINE_TIMEOUT);
        rest.unwrap_or_else(|| panic!("no line with {prefix:?} after {LINE_TIMEOUT:?}"))
    }

    /// As [`OutputLines::after`]. `None`: it takes longer.
    #[track_caller]
    pub fn after_within(&self, prefix: &str, timeout: Duration) -> Option<String> {
        let start = Instant::now();
        loop {
            match self.0.recv_timeout(timeout.saturating_sub(start.elapsed())) {
                Ok(line) => {
                    if let Some((_, rest)) = line.split_once(prefix) {
                        return Some(rest.to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => panic!("no line with {prefix:?}"),
            }
        }
    }
}

/// A figure about the memory of a process in bytes, such as `VmRSS`. `None`: there is no such process.
#[must_use]
pub fn memory(pid: impl fmt::Display, figure: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mut figures = status.lines().filter_map(|line| line.split_once(':'));
    let (_, kib) = figures.find(|(name, _)| *name == figure)?;
    let kib: u64 = kib.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}
